#include "tutti/net/link/outbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/wire.h"

namespace tutti::net::link {
namespace {

constexpr size_t kMaxParts = 64;
// Of a payload with a checksum: small enough to stay in the cache between the sum and the copy into
// the kernel.
constexpr size_t kSummedPiece = size_t{256} << 10;
constexpr size_t kPiece = size_t{4} << 20;
constexpr size_t kMaxReason = 1024;

}  // namespace

uint64_t Outbox::Frame::bytes() const {
  uint64_t total = head.size();
  for (const Payload& payload : written) total += payload.bytes.size();
  return total;
}

void Outbox::Sum::Cover(ConstBytes bytes) {
  if (bytes.size() <= covered) return;  // after a short write
  crc = tcp::Crc32c(bytes.subspan(covered), crc);
  covered = bytes.size();
}

// Queueing ---------------------------------------------------------------------------------------

void Outbox::Open(Terms terms) {
  terms_ = std::move(terms);
  open_ = true;
  std::deque<Message> waiting = std::exchange(held_, {});
  for (Message& message : waiting) QueueOrHold(std::move(message));
  Release();
}

void Outbox::Send(std::string header, std::vector<Payload> payloads, bool counted) {
  if (closing_) {
    for (Payload& payload : payloads) done_.push_back(std::move(payload));
    return;
  }
  Message message{.header = std::move(header), .payloads = std::move(payloads)};
  if (counted) message.bytes = message.header.size();
  for (const Payload& payload : message.payloads) message.bytes += payload.bytes.size();
  if (open_) return QueueOrHold(std::move(message));
  held_.push_back(std::move(message));
}

void Outbox::QueueOrHold(Message message) {
  const bool waits = message.bytes > 0 && (!held_.empty() || !HasRoom(message.bytes));
  if (!waits) return Queue(std::move(message));
  held_.push_back(std::move(message));
  if (!std::exchange(told_waiting_, true)) SendControl(FrameKind::kWaiting);
}

void Outbox::Release() {
  if (!open_) return;
  while (!held_.empty() && HasRoom(held_.front().bytes)) {
    Queue(std::move(held_.front()));
    held_.pop_front();
  }
  if (held_.empty()) told_waiting_ = false;
  if (held_.empty() && std::exchange(close_held_, false)) {
    queue_.push_back({.head = std::move(close_frame_)});
  }
}

void Outbox::SendControl(FrameKind kind, uint64_t number, std::string_view text) {
  if (closing_ && !close_held_) return;  // nothing follows the closing frame
  queue_.push_back({.head = EncodeFrame(kind, number, text)});
}

void Outbox::SendPing() {
  if (closing_ && !close_held_) return;
  const bool begun = segment_ > 0 || offset_ > 0;
  if (!queue_.empty() && (begun || queue_.front().copies.empty())) return;
  queue_.push_front({.head = EncodeFrame(FrameKind::kPing, 0, {})});
}

void Outbox::SendClose(const absl::Status& reason) {
  if (std::exchange(closing_, true)) return;
  close_frame_ = EncodeFrame(FrameKind::kClose, static_cast<uint64_t>(reason.code()),
                             MessageOf(reason).substr(0, kMaxReason));
  close_held_ = true;
  Release();
}

void Outbox::QueueBare(const std::string& header) {
  const bool joins = !queue_.empty() && queue_.back().open &&
                     queue_.back().head.size() + header.size() <= kJoinedBytes;
  if (!joins) {
    Frame& frame = queue_.emplace_back();
    frame.number = next_number_;
    frame.open = true;
    frame.head = std::exchange(spare_, {});
    frame.head.resize(kHeadBytes);
    bytes_ += kHeadBytes;
  }
  ++next_number_;
  std::string& text = queue_.back().head;
  WireWriter(&text).U32(static_cast<uint32_t>(header.size()));
  text.append(header);
  bytes_ += sizeof(uint32_t) + header.size();
}

void Outbox::Queue(Message message) {
  in_window_ += message.bytes;
  sent_ += message.bytes;
  ++messages_;
  if (message.payloads.empty()) return QueueBare(message.header);
  Frame frame;
  frame.number = next_number_++;
  std::vector<PayloadPlace> places;
  places.reserve(message.payloads.size());
  for (Payload& payload : message.payloads) places.push_back(PlaceOf(std::move(payload), &frame));
  uint8_t flags = 0;
  if (terms_.checksums && !frame.written.empty()) {
    flags = kPayloadCrc;
    frame.sums.resize(frame.written.size());
  }
  frame.head = EncodeFrame(FrameKind::kMessage, frame.number, message.header, places, flags);
  bytes_ += frame.head.size();
  for (const PayloadPlace& place : places) bytes_ += place.bytes;
  queue_.push_back(std::move(frame));
}

PayloadPlace Outbox::PlaceOf(Payload payload, Frame* frame) {
  PayloadPlace place{.bytes = payload.bytes.size()};
  if (terms_.memory != nullptr && payload.bytes.size() >= SharedMemory::kLeastBytes) {
    std::optional<SharedMemory::Place> found =
        terms_.memory->Find(payload.bytes.data(), payload.bytes.size());
    if (!found.has_value()) {
      absl::StatusOr<SharedMemory::Block> block = terms_.memory->Allocate(payload.bytes.size());
      if (block.ok()) found = terms_.memory->Find(block->bytes.data(), block->bytes.size());
      if (found.has_value() && CanAnnounce(found->region->id)) {
        Payload copy = {block->bytes, std::move(block->owner)};
        frame->copies.push_back({std::move(payload), block->bytes.data()});
        payload = std::move(copy);
      }
    }
    if (found.has_value() && CanAnnounce(found->region->id)) {
      Announce(found->region);
      place.region = found->region->id;
      place.offset = found->offset;
      frame->kept.push_back(std::move(payload));
      return place;
    }
  }
  frame->written.push_back(std::move(payload));
  return place;
}

bool Outbox::CanAnnounce(uint32_t region) {
  if (announced_.contains(region) || announced_.size() < kMostRegions) return true;
  ForgetRegions();
  return announced_.size() < kMostRegions;
}

void Outbox::Announce(const std::shared_ptr<const SharedMemory::Region>& region) {
  if (!announced_.try_emplace(region->id, region).second) return;
  std::string size;
  WireWriter(&size).U64(region->bytes.size());
  queue_.push_back({.head = EncodeFrame(FrameKind::kRegion, region->id, size), .region = region});
}

void Outbox::ForgetRegions() {
  std::erase_if(announced_, [this](const auto& entry) {
    if (!entry.second.expired()) return false;
    SendControl(FrameKind::kForgotten, entry.first);
    return true;
  });
}

absl::Status Outbox::OnTaken(uint64_t total) {
  if (total < taken_ || total > sent_) {
    return InvalidArgument(
        "it has taken {} bytes of payloads, of {} that were sent; before it was {}", total, sent_,
        taken_);
  }
  in_window_ -= total - taken_;
  taken_ = total;
  Release();
  if (!held_.empty()) SendControl(FrameKind::kWaiting);
  return absl::OkStatus();
}

absl::Status Outbox::OnReleased(uint64_t message) {
  const auto found = unreleased_.find(message);
  if (found == unreleased_.end()) {
    return InvalidArgument("it released message {}, of which it holds nothing", message);
  }
  for (Payload& payload : found->second) done_.push_back(std::move(payload));
  unreleased_.erase(found);
  return absl::OkStatus();
}

void Outbox::Drop() {
  closing_ = true;
  close_held_ = false;
  const auto drop = [this](std::vector<Payload>& payloads) {
    for (Payload& payload : payloads) done_.push_back(std::move(payload));
  };
  for (Message& message : held_) drop(message.payloads);
  for (Frame& frame : queue_) {
    drop(frame.written);
    drop(frame.kept);
    for (Copy& copy : frame.copies) done_.push_back(std::move(copy.from));
  }
  for (auto& [number, payloads] : unreleased_) drop(payloads);
  held_.clear();
  queue_.clear();
  unreleased_.clear();
}

void Outbox::Restart() {
  queue_.clear();
  segment_ = offset_ = 0;
}

// Writing ----------------------------------------------------------------------------------------

// What one system call writes.
struct Outbox::Batch {
  std::array<iovec, kMaxParts> parts;
  size_t count = 0;
  size_t bytes = 0;
  int file = -1;

  void Add(const void* data, size_t size) {
    parts[count++] = {const_cast<void*>(data), size};
    bytes += size;
  }
};

size_t Outbox::FrontBytes(size_t limit) const {
  size_t total = 0;
  for (const Frame& frame : queue_) {
    if (!frame.copies.empty()) return limit;
    total += frame.bytes();
    if (total >= limit) return limit;
  }
  return total;
}

bool Outbox::CopySome(Frame* frame, size_t* budget) {
  while (!frame->copies.empty() && *budget > 0) {
    Copy& copy = frame->copies.back();
    const size_t bytes = std::min(*budget, copy.from.bytes.size());
    std::memcpy(copy.to, copy.from.bytes.data(), bytes);
    copy.from.bytes = copy.from.bytes.subspan(bytes);
    copy.to += bytes;
    *budget -= bytes;
    if (!copy.from.bytes.empty()) return false;
    done_.push_back(std::move(copy.from));
    frame->copies.pop_back();
  }
  return frame->copies.empty();
}

// Puts frames into the batch from where writing stands. A frame with a file is written alone.
void Outbox::Fill(Batch* batch, size_t budget) {
  size_t segment = segment_, offset = offset_;
  for (size_t at = 0; at < queue_.size(); ++at, segment = 0, offset = 0) {
    Frame& frame = queue_[at];
    if (at > 0 && (frame.region != nullptr || !frame.copies.empty())) return;
    if (std::exchange(frame.open, false)) {
      SealFrame(FrameKind::kMessages, frame.number, &frame.head);
    }
    const bool summed = !frame.sums.empty();
    for (; segment <= 2 * frame.written.size(); ++segment, offset = 0) {
      if (batch->count + 1 > kMaxParts || batch->bytes >= budget) return;
      if (segment == 0) {
        batch->Add(frame.head.data() + offset, frame.head.size() - offset);
        if (frame.region != nullptr && offset == 0) batch->file = frame.region->file.get();
        continue;
      }
      const size_t index = (segment - 1) / 2;
      if (segment % 2 == 0) {
        if (summed) {
          batch->Add(reinterpret_cast<const char*>(&frame.sums[index].crc) + offset,
                     sizeof(uint32_t) - offset);
        }
        continue;
      }
      const ConstBytes rest = frame.written[index].bytes.subspan(offset);
      const ConstBytes piece = rest.first(std::min(rest.size(), summed ? kSummedPiece : kPiece));
      if (summed) frame.sums[index].Cover(frame.written[index].bytes.first(offset + piece.size()));
      if (!piece.empty()) batch->Add(piece.data(), piece.size());
      if (piece.size() < rest.size()) return;
    }
    if (frame.region != nullptr) return;
  }
}

void Outbox::Advance(size_t bytes) {
  while (!queue_.empty()) {
    Frame& frame = queue_.front();
    const size_t segments = 1 + 2 * frame.written.size();
    while (segment_ < segments) {
      size_t size = frame.head.size();
      if (segment_ > 0 && segment_ % 2 == 1) size = frame.written[(segment_ - 1) / 2].bytes.size();
      if (segment_ > 0 && segment_ % 2 == 0) size = frame.sums.empty() ? 0 : sizeof(uint32_t);
      const size_t step = std::min(bytes, size - offset_);
      offset_ += step;
      bytes -= step;
      if (offset_ < size) return;
      ++segment_;
      offset_ = 0;
    }
    segment_ = 0;
    for (Payload& payload : frame.written) done_.push_back(std::move(payload));
    if (!frame.kept.empty()) unreleased_[frame.number] = std::move(frame.kept);
    if (frame.head.capacity() > spare_.capacity() && frame.head.capacity() <= 2 * kJoinedBytes) {
      spare_ = std::move(frame.head);
      spare_.clear();
    }
    queue_.pop_front();
    if (bytes == 0) return;
  }
}

Outbox::Result Outbox::Write(int fd, size_t budget, bool may_copy, int* error) {
  while (!queue_.empty()) {
    if (budget == 0) return Result::kAgain;
    if (Frame& frame = queue_.front(); !frame.copies.empty()) {
      if (!may_copy || !CopySome(&frame, &budget)) return Result::kAgain;
    }
    Batch batch;
    Fill(&batch, budget);
    msghdr message = {};
    message.msg_iov = batch.parts.data();
    message.msg_iovlen = batch.count;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (batch.file >= 0) {
      message.msg_control = control;
      message.msg_controllen = sizeof(control);
      cmsghdr* header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof(int));
      std::memcpy(CMSG_DATA(header), &batch.file, sizeof(int));
    }
    const ssize_t count = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      *error = errno;
      // ETOOMANYREFS: too many files are on their way to peers that do not read.
      const bool later = errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS;
      return later ? Result::kFull : Result::kLost;
    }
    budget -= std::min(budget, static_cast<size_t>(count));
    Advance(static_cast<size_t>(count));
    if (static_cast<size_t>(count) < batch.bytes) return Result::kFull;
  }
  return Result::kDone;
}

}  // namespace tutti::net::link
