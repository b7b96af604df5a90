#include "tutti/net/link/inbox.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <new>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/wire.h"

namespace tutti::net::link {
namespace {

// Less than this of a payload is read together with what follows it.
constexpr size_t kStraight = 16 << 10;
constexpr size_t kMostFiles = 64;  // on their way before their frames
constexpr size_t kBodyStep = size_t{1} << 20;

}  // namespace

void Inbox::Reset() {
  stage_ = Stage::kHead;
  filled_ = 0;
  files_.clear();
}

absl::StatusOr<Inbox::Result> Inbox::Read(int fd, Bytes scratch, size_t budget) {
  while (budget > 0) {
    const bool straight = stage_ == Stage::kPayload && PayloadRest().size() >= kStraight;
    const Bytes into =
        straight ? PayloadRest().first(std::min(PayloadRest().size(), budget)) : scratch;
    size_t count = 0;
    TUTTI_ASSIGN_OR_RETURN(const Moved moved, Receive(fd, into, &count));
    if (moved == Moved::kNothing) return Result::kEmpty;
    if (moved == Moved::kEnd) return Result::kEnd;
    budget -= std::min(budget, count);
    if (!straight) {
      TUTTI_RETURN_IF_ERROR(Consume(scratch.first(count)));
    } else {
      const size_t from = std::exchange(filled_, filled_ + count);
      Sum(from);
      if (PayloadRest().empty()) TUTTI_RETURN_IF_ERROR(EndPayload());
    }
    // A socket that gave less than was asked for has no more at the moment.
    if (count < into.size()) return Result::kEmpty;
  }
  return Result::kMore;
}

absl::StatusOr<Inbox::Moved> Inbox::Receive(int fd, Bytes into, size_t* count) {
  iovec part = {into.data(), into.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(4 * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (joins_memory_) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
  }
  ssize_t got = 0;
  do {
    got = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return Moved::kNothing;
  if (got < 0) return Unavailable("connection lost: {}", ErrnoText(errno));
  if (joins_memory_) {
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t files = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < files; ++i) {
        int file;
        std::memcpy(&file, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        files_.emplace_back(file);
      }
    }
    if ((message.msg_flags & MSG_CTRUNC) != 0) {
      return ResourceExhausted(
          "a file of shared memory came, and this process has no descriptor left for it: raise its "
          "limit (ulimit -n)");
    }
    if (files_.size() > kMostFiles) return InvalidArgument("it sent files that belong to no frame");
  }
  *count = static_cast<size_t>(got);
  return got == 0 ? Moved::kEnd : Moved::kBytes;
}

absl::Status Inbox::Consume(ConstBytes bytes) {
  while (!bytes.empty()) {
    const auto take = [&bytes](size_t most) {
      const ConstBytes piece = bytes.first(std::min(most, bytes.size()));
      bytes = bytes.subspan(piece.size());
      return piece;
    };
    switch (stage_) {
      case Stage::kHead: {
        const ConstBytes piece = take(kHeadBytes - filled_);
        std::memcpy(head_bytes_.data() + filled_, piece.data(), piece.size());
        filled_ += piece.size();
        if (filled_ == kHeadBytes) TUTTI_RETURN_IF_ERROR(OnHead());
        break;
      }
      case Stage::kBody: {
        const size_t wanted = head_.body_bytes();
        const ConstBytes piece = take(wanted - filled_);
        filled_ += piece.size();
        if (piece.size() == wanted) {  // whole: no copy
          TUTTI_RETURN_IF_ERROR(OnBody(AsText(piece)));
          break;
        }
        if (body_.empty()) body_.reserve(std::min(wanted, kBodyStep));
        body_.append(AsText(piece));
        if (filled_ == wanted) TUTTI_RETURN_IF_ERROR(OnBody(body_));
        break;
      }
      case Stage::kPayload: {
        const ConstBytes piece = take(PayloadRest().size());
        std::memcpy(PayloadRest().data(), piece.data(), piece.size());
        const size_t from = std::exchange(filled_, filled_ + piece.size());
        Sum(from);
        if (PayloadRest().empty()) TUTTI_RETURN_IF_ERROR(EndPayload());
        break;
      }
      case Stage::kChecksum: {
        const ConstBytes piece = take(crc_bytes_.size() - filled_);
        std::memcpy(crc_bytes_.data() + filled_, piece.data(), piece.size());
        filled_ += piece.size();
        if (filled_ < crc_bytes_.size()) break;
        const uint32_t crc = WireReader(AsText(crc_bytes_)).U32();
        if (crc != crc_) {
          return DataLoss(
              "payload {} of a message is damaged: its CRC32C is {:08x}, the bytes give {:08x}",
              index_, crc, crc_);
        }
        ++index_;
        TUTTI_RETURN_IF_ERROR(NextPayload());
        break;
      }
    }
  }
  return absl::OkStatus();
}

void Inbox::Sum(size_t from) {
  if ((head_.flags & kPayloadCrc) == 0) return;
  crc_ = tcp::Crc32c(places_[index_].subspan(from, filled_ - from), crc_);
}

absl::Status Inbox::OnHead() {
  TUTTI_ASSIGN_OR_RETURN(head_, ParseHead(head_bytes_));
  const bool first = head_.kind == FrameKind::kHello || head_.kind == FrameKind::kOpen ||
                     head_.kind == FrameKind::kClose;
  if (!open_ && !first) {
    return InvalidArgument("a frame of kind {} before the link was open",
                           static_cast<int>(head_.kind));
  }
  stage_ = Stage::kBody;
  filled_ = 0;
  body_.clear();
  if (head_.body_bytes() == 0) return OnBody({});
  return absl::OkStatus();
}

absl::Status Inbox::OnBody(std::string_view body) {
  stage_ = Stage::kHead;
  filled_ = 0;
  if (head_.kind == FrameKind::kMessage) return BeginMessage(body);
  if (head_.kind == FrameKind::kMessages) return OnMessages(body);
  TUTTI_RETURN_IF_ERROR(ParseBody(head_, body, &parsed_));
  if (head_.kind == FrameKind::kRegion) return OnRegion(parsed_.text);
  if (head_.kind == FrameKind::kForgotten) {
    regions_.erase(static_cast<uint32_t>(head_.number));
    return absl::OkStatus();
  }
  return reader_->OnControl(head_, parsed_.text);
}

absl::Status Inbox::OnRegion(std::string_view text) {
  WireReader reader(text);
  const uint64_t bytes = reader.U64();
  if (!reader.Complete() || files_.empty() || head_.number == 0 ||
      head_.number > std::numeric_limits<uint32_t>::max()) {
    return InvalidArgument("region {} of shared memory came without its size or its file",
                           head_.number);
  }
  if (regions_.size() >= kMostRegions) {
    return ResourceExhausted("it shows more than {} regions of shared memory", kMostRegions);
  }
  const shm::FileDescriptor file = std::move(files_.front());
  files_.pop_front();
  TUTTI_ASSIGN_OR_RETURN(shm::SharedPages pages, shm::SharedPages::Open(file, bytes));
  auto& region = regions_[static_cast<uint32_t>(head_.number)];
  if (region != nullptr) {
    return InvalidArgument("region {} of shared memory came twice", head_.number);
  }
  region = std::make_shared<const shm::SharedPages>(std::move(pages));
  return absl::OkStatus();
}

// Messages ---------------------------------------------------------------------------------------

absl::Status Inbox::CheckNumber() const {
  if (head_.number == last_number_ + 1) return absl::OkStatus();
  return InvalidArgument("message {} came after message {}", head_.number, last_number_);
}

absl::Status Inbox::OnMessages(std::string_view body) {
  TUTTI_RETURN_IF_ERROR(CheckNumber());
  TUTTI_RETURN_IF_ERROR(ParseBody(head_, body, &parsed_));
  if (parsed_.text.empty()) return InvalidArgument("a frame of messages without any");
  bytes_ += kHeadBytes + body.size();
  for (std::string_view rest = parsed_.text; !rest.empty();) {
    TUTTI_ASSIGN_OR_RETURN(const std::string_view message, NextMessage(&rest));
    ++last_number_;
    ++messages_;
    TUTTI_RETURN_IF_ERROR(reader_->OnMessage(message, {}));
  }
  return absl::OkStatus();
}

absl::Status Inbox::BeginMessage(std::string_view body) {
  TUTTI_RETURN_IF_ERROR(CheckNumber());
  if (head_.payloads == 0) return InvalidArgument("message {} has no payloads", head_.number);
  last_number_ = head_.number;
  TUTTI_RETURN_IF_ERROR(ParseBody(head_, body, &parsed_));
  bytes_ += kHeadBytes + body.size();
  index_ = 0;
  payloads_.clear();
  places_.assign(head_.payloads, {});
  const bool in_place = std::any_of(parsed_.payloads.begin(), parsed_.payloads.end(),
                                    [](const PayloadPlace& place) { return place.region != 0; });
  if (in_place) {
    TUTTI_RETURN_IF_ERROR(ShowInPlace());
  } else {
    std::vector<uint64_t> sizes;
    for (const PayloadPlace& place : parsed_.payloads) sizes.push_back(place.bytes);
    TUTTI_RETURN_IF_ERROR(reader_->Place(parsed_.text, sizes, places_));
    payloads_.resize(head_.payloads);
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (places_[i].size() != sizes[i]) {
        return Internal("a place of {} bytes was given to a payload of {}", places_[i].size(),
                        sizes[i]);
      }
      payloads_[i].bytes = places_[i];
    }
  }
  // The text must outlive the scratch memory that it may lie in.
  if (body.data() != body_.data()) {
    body_.assign(body);
    parsed_.text = std::string_view(body_).substr(0, head_.text_bytes);
  }
  return NextPayload();
}

absl::Status Inbox::ShowInPlace() {
  std::vector<std::shared_ptr<const shm::SharedPages>> pages;
  for (const PayloadPlace& place : parsed_.payloads) {
    Payload& payload = payloads_.emplace_back();
    Bytes& to = places_[payloads_.size() - 1];
    if (place.region == 0) {
      std::shared_ptr<std::byte[]> memory(new (std::nothrow) std::byte[place.bytes]);
      if (memory == nullptr) return ResourceExhausted("no memory for {} bytes", place.bytes);
      to = Bytes(memory.get(), place.bytes);
      payload = {to, std::move(memory)};
      continue;
    }
    const auto found = regions_.find(place.region);
    if (found == regions_.end()) {
      return InvalidArgument("a payload lies in region {} of shared memory, which is not known",
                             place.region);
    }
    const Bytes region = found->second->bytes();
    if (place.offset > region.size() || place.bytes > region.size() - place.offset) {
      return InvalidArgument("a payload of {} bytes at {} lies outside of region {} of {} bytes",
                             place.bytes, place.offset, place.region, region.size());
    }
    payload.bytes = region.subspan(place.offset, place.bytes);
    pages.push_back(found->second);
  }
  const std::shared_ptr<const void> lease = reader_->Lease(head_.number, std::move(pages));
  for (size_t i = 0; i < payloads_.size(); ++i) {
    if (parsed_.payloads[i].region != 0) payloads_[i].owner = lease;
  }
  return absl::OkStatus();
}

// Goes to the next payload that comes behind the frame, or ends the message.
absl::Status Inbox::NextPayload() {
  const bool summed = (head_.flags & kPayloadCrc) != 0;
  while (index_ < head_.payloads &&
         (parsed_.payloads[index_].region != 0 || (places_[index_].empty() && !summed))) {
    ++index_;
  }
  filled_ = 0;
  crc_ = 0;
  if (index_ == head_.payloads) return EndMessage();
  stage_ = places_[index_].empty() ? Stage::kChecksum : Stage::kPayload;
  return absl::OkStatus();
}

absl::Status Inbox::EndPayload() {
  filled_ = 0;
  if ((head_.flags & kPayloadCrc) != 0) {
    stage_ = Stage::kChecksum;
    return absl::OkStatus();
  }
  ++index_;
  return NextPayload();
}

absl::Status Inbox::EndMessage() {
  stage_ = Stage::kHead;
  filled_ = 0;
  ++messages_;
  for (const Payload& payload : payloads_) bytes_ += payload.bytes.size();
  return reader_->OnMessage(parsed_.text, std::exchange(payloads_, {}));
}

}  // namespace tutti::net::link
