#include "tutti/net/ucx/inbox.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/ucx/link.h"
#include "tutti/net/wire.h"

namespace tutti::net::ucx {
namespace {

constexpr size_t kMostBuffersKept = 64;
constexpr int kPiecesUnderWay = 2;  // of a message: one arrives while the other is handed over

ConstBytes BytesOf(const Payload& payload) {
  return {static_cast<const std::byte*>(payload.data), payload.bytes};
}

}  // namespace

std::unique_ptr<PieceBuffers::Buffer> PieceBuffers::Take() {
  if (free_.empty()) return std::unique_ptr<Buffer>(new Buffer);  // leaves the bytes as they are
  std::unique_ptr<Buffer> buffer = std::move(free_.back());
  free_.pop_back();
  return buffer;
}

void PieceBuffers::Release(std::unique_ptr<Buffer> buffer) {
  if (buffer != nullptr && free_.size() < kMostBuffersKept) free_.push_back(std::move(buffer));
}

absl::Status Inbox::OnFrame(const FrameHeader& header, const Payload& payload) {
  if (payload.remote && header.kind != FrameKind::kData && header.kind != FrameKind::kPut) {
    link_->worker().Drop(payload);
    return InvalidArgument("sent a small frame of kind {} by rendezvous",
                           static_cast<int>(header.kind));
  }
  switch (header.kind) {
    case FrameKind::kHello:
      return absl::OkStatus();
    case FrameKind::kShort:
      return OnShort(header, payload);
    case FrameKind::kEager:
      return engine_->receiver.OnEager(header.tag(), BytesOf(payload));
    case FrameKind::kOffer:
      return engine_->receiver.OnOffer(header.tag(), {.bytes = header.total});
    case FrameKind::kInvitation:
      return engine_->sender.OnInvitation(header.tag(),
                                          {.receive = header.id,
                                           .bytes = header.total,
                                           .in_order = (header.flags & kInOrder) != 0});
    case FrameKind::kDiffers:
      return engine_->receiver.OnDiffers(header.id, header.total);
    case FrameKind::kTaken:
      return engine_->sender.OnTaken(header.total);
    case FrameKind::kData:
      return OnData(header, payload);
    case FrameKind::kPut:
      OnPut(header, payload);
      return absl::OkStatus();
    case FrameKind::kPutDone:
      return link_->OnPutAnswered(header.id, absl::OkStatus());
    case FrameKind::kGet:
      OnGet(header);
      return absl::OkStatus();
    case FrameKind::kRefused:
      return OnRefused(header, AsText(BytesOf(payload)));
    case FrameKind::kBye:
      link_->OnBye(header.total);
      return absl::OkStatus();
  }
  return absl::OkStatus();
}

absl::Status Inbox::OnShort(const FrameHeader& header, const Payload& payload) {
  TUTTI_RETURN_IF_ERROR(engine_->receiver.Keep(0));
  shared_->shorts.Add(link_->peer(), header.tag(), BytesOf(payload));
  return absl::OkStatus();
}

// Bytes of messages ------------------------------------------------------------------------------

absl::Status Inbox::OnData(const FrameHeader& header, const Payload& payload) {
  message::OpenReceive* const receive = engine_->receiver.Find(header.id);
  absl::Status bad;
  if (receive == nullptr) {
    bad = InvalidArgument("sent data for receive {}, which is not open", header.id);
  } else {
    const bool in_pieces = receive->destination == nullptr;
    const uint64_t rest = header.total - header.offset;
    const uint64_t piece = in_pieces ? std::min<uint64_t>(rest, kPieceBytes) : header.total;
    const bool fits = header.total == receive->bytes && payload.bytes == piece &&
                      header.offset % kPieceBytes == 0 &&
                      (in_pieces || (header.offset == 0 && !receive->begun));
    if (!fits) {
      bad = InvalidArgument("sent {} bytes at {} of {} for receive {}, which expects {}",
                            payload.bytes, header.offset, header.total, header.id, receive->bytes);
    }
  }
  if (!bad.ok()) {
    link_->worker().Drop(payload);
    return bad;
  }
  const bool offered = (header.flags & kOffered) != 0;
  if (!payload.remote && payload.bytes == header.total && !receive->begun) {
    receive->begun = true;
    if (payload.bytes > 0 && receive->destination != nullptr) {
      std::memcpy(receive->destination, payload.data, payload.bytes);
    } else if (payload.bytes > 0) {
      receive->request->Take(0, BytesOf(payload));
    }
    return engine_->receiver.Complete(receive, offered);
  }
  if (receive->destination == nullptr) return OnPiece(receive, header, payload);
  receive->begun = true;
  link_->StartReceive(payload, receive->destination, nullptr,
                      [this, id = header.id, offered](const absl::Status& status) {
                        message::OpenReceive* const open = engine_->receiver.Find(id);
                        if (!status.ok() || open == nullptr) return;  // the link ends, and it too
                        const absl::Status done = engine_->receiver.Complete(open, offered);
                        if (!done.ok()) link_->Break(done);
                      });
  return absl::OkStatus();
}

absl::Status Inbox::OnPiece(message::OpenReceive* receive, const FrameHeader& header,
                            const Payload& payload) {
  Arriving& arriving = arriving_[header.id];
  // A message in several pieces comes by rendezvous, as long as its sender keeps to the rules.
  if (!payload.remote || header.offset < arriving.taken ||
      !arriving.pieces.try_emplace(header.offset, Piece{.payload = payload, .buffer = nullptr})
           .second) {
    link_->worker().Drop(payload);
    return InvalidArgument("sent the piece at {} of message {}.{} twice, or by another way",
                           header.offset, receive->tag.operation, receive->tag.index);
  }
  receive->begun = true;
  arriving.offered = (header.flags & kOffered) != 0;
  return HandOver(header.id);
}

// Asks for the next pieces, and hands over those that are here.
absl::Status Inbox::HandOver(uint64_t id) {
  const auto found = arriving_.find(id);
  message::OpenReceive* const receive = engine_->receiver.Find(id);
  if (found == arriving_.end() || receive == nullptr) return absl::OkStatus();
  Arriving& arriving = found->second;
  while (!arriving.pieces.empty()) {
    const auto first = arriving.pieces.begin();
    if (first->first != arriving.taken || !first->second.here) break;
    const size_t bytes = first->second.payload.bytes;
    receive->request->Take(arriving.taken, ConstBytes(first->second.buffer->bytes, bytes));
    arriving.taken += bytes;
    shared_->pieces.Release(std::move(first->second.buffer));
    arriving.pieces.erase(first);
  }
  if (arriving.taken == receive->bytes) {
    const bool offered = arriving.offered;
    arriving_.erase(found);
    return engine_->receiver.Complete(receive, offered);
  }
  std::vector<uint64_t> wanted;
  uint64_t next = arriving.taken;
  for (const auto& [offset, piece] : arriving.pieces) {
    if (offset != next || wanted.size() == kPiecesUnderWay) break;
    wanted.push_back(offset);
    next += piece.payload.bytes;
  }
  for (const uint64_t offset : wanted) {
    // To start one may complete it at once, and hand over all that there is.
    const auto still = arriving_.find(id);
    if (still == arriving_.end()) break;
    const auto at = still->second.pieces.find(offset);
    if (at == still->second.pieces.end() || at->second.buffer != nullptr) continue;
    at->second.buffer = shared_->pieces.Take();
    link_->StartReceive(at->second.payload, at->second.buffer->bytes, nullptr,
                        [this, id, offset](const absl::Status& status) {
                          const auto open = arriving_.find(id);
                          if (!status.ok() || open == arriving_.end()) return;
                          const auto piece = open->second.pieces.find(offset);
                          if (piece == open->second.pieces.end()) return;
                          piece->second.here = true;
                          const absl::Status done = HandOver(id);
                          if (!done.ok()) link_->Break(done);
                        });
  }
  return absl::OkStatus();
}

// Memory -----------------------------------------------------------------------------------------

void Inbox::RefusePut(uint64_t id, const absl::Status& why) {
  link_->SendControl({.kind = FrameKind::kRefused, .flags = kToPut, .id = id},
                     MessageOf(why).substr(0, kMaxRefusalBytes));
}

void Inbox::OnPut(const FrameHeader& header, const Payload& payload) {
  absl::StatusOr<std::shared_ptr<message::Region>> region =
      shared_->regions->Find(header.memory(), header.total);
  if (!region.ok()) {
    link_->worker().Drop(payload);
    return RefusePut(header.id, region.status());
  }
  std::byte* const destination = (*region)->bytes.data() + header.operation;
  if (!payload.remote) {
    if (payload.bytes > 0) std::memcpy(destination, payload.data, payload.bytes);
    return link_->SendControl({.kind = FrameKind::kPutDone, .id = header.id});
  }
  link_->StartReceive(payload, destination, *std::move(region),
                      [this, id = header.id](const absl::Status& status) {
                        if (!status.ok()) return;
                        link_->SendControl({.kind = FrameKind::kPutDone, .id = id});
                      });
}

void Inbox::OnGet(const FrameHeader& header) {
  absl::StatusOr<std::shared_ptr<message::Region>> region =
      shared_->regions->Find(header.memory(), header.total);
  if (!region.ok()) {
    return link_->SendControl({.kind = FrameKind::kRefused, .id = header.id},
                              MessageOf(region.status()).substr(0, kMaxRefusalBytes));
  }
  const ConstBytes bytes = (*region)->bytes.subspan(header.operation, header.total);
  link_->Answer(header.id, *std::move(region), bytes);
}

absl::Status Inbox::OnRefused(const FrameHeader& header, std::string_view reason) {
  const auto refused = [&](std::string_view what) {
    return InvalidArgument("{} refused a {}: {}", link_->Describe(), what, Printable(reason));
  };
  if ((header.flags & kToPut) != 0) return link_->OnPutAnswered(header.id, refused("put"));
  message::OpenReceive* const receive = engine_->receiver.Find(header.id);
  if (receive == nullptr || receive->tagged) {
    return InvalidArgument("refused get {}, which is not open", header.id);
  }
  return engine_->receiver.EndEarly(receive, refused("get"));
}

}  // namespace tutti::net::ucx
