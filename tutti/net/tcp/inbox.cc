#include "tutti/net/tcp/inbox.h"

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/tcp/link.h"
#include "tutti/net/tcp/outbox.h"
#include "tutti/net/tcp/shared.h"
#include "tutti/net/wire.h"

namespace tutti::net::tcp {

std::byte* Bounce::Get() {
  if (lines_ == nullptr)
    lines_ = std::make_unique_for_overwrite<Line[]>(kMaxPayload / sizeof(Line));
  return lines_[0].bytes;
}

void Inbox::Get(MemoryKey source, Bytes destination, Request* request) {
  const message::OpenReceive* receive =
      engine_->receiver.Expect(destination.data(), destination.size(), request);
  out_->SendControl({.kind = FrameKind::kGet,
                     .index = source.region,
                     .operation = source.offset,
                     .id = receive->id,
                     .total = destination.size()});
}

absl::Status Inbox::BeginFrame(const FrameHeader& header, Landing* landing, std::byte** target) {
  switch (header.kind) {
    case FrameKind::kEager:
      return BeginEager(header, landing, target);
    case FrameKind::kData:
      return BeginData(header, landing, target);
    case FrameKind::kPut:
      return BeginPut(header, landing, target);
    case FrameKind::kShort:
    case FrameKind::kRefused:
      *target = landing->bounce.Get();
      return absl::OkStatus();
    default:
      return absl::OkStatus();
  }
}

absl::Status Inbox::EndFrame(const FrameHeader& header, Landing* landing, std::byte* payload) {
  switch (header.kind) {
    case FrameKind::kShort:
      return OnShort(header, payload);
    case FrameKind::kEager:
      return engine_->receiver.EndEager(header.tag(), header.total, &landing->eager, payload);
    case FrameKind::kAnnounce:
      return engine_->receiver.OnOffer(header.tag(), {.bytes = header.total});
    case FrameKind::kReady:
      return engine_->sender.OnInvitation(header.tag(),
                                          {.receive = header.id,
                                           .bytes = header.total,
                                           .in_order = (header.flags & kInOrder) != 0});
    case FrameKind::kDiffers:
      return engine_->receiver.OnDiffers(header.id, header.total);
    case FrameKind::kData:
      return EndData(header, payload);
    case FrameKind::kPut:
      EndPut(header, landing);
      return absl::OkStatus();
    case FrameKind::kPutDone:
      return out_->OnPutDone(header);
    case FrameKind::kGet:
      OnGet(header);
      return absl::OkStatus();
    case FrameKind::kRefused: {
      const std::string_view reason = AsText({payload, header.payload});
      return (header.flags & kToPut) != 0 ? out_->OnPutRefused(header, reason)
                                          : OnGetRefused(header, reason);
    }
    case FrameKind::kTaken:
      return engine_->sender.OnTaken(header.total);
  }
  return absl::OkStatus();
}

absl::Status Inbox::OnShort(const FrameHeader& header, const std::byte* payload) {
  TUTTI_RETURN_IF_ERROR(engine_->receiver.Keep(0));
  shared_->shorts.Add(link_->peer(), header.tag(), {payload, header.payload});
  return absl::OkStatus();
}

absl::Status Inbox::BeginEager(const FrameHeader& header, Landing* landing, std::byte** target) {
  TUTTI_RETURN_IF_ERROR(
      engine_->receiver.BeginEager(header.tag(), header.total, &landing->eager, target));
  if (*target == nullptr) *target = landing->bounce.Get();
  return absl::OkStatus();
}

absl::Status Inbox::BeginData(const FrameHeader& header, Landing* landing, std::byte** target) {
  message::OpenReceive* receive = engine_->receiver.Find(header.id);
  if (receive == nullptr) {
    return InvalidArgument("sent data for receive {}, which is not open", header.id);
  }
  // What goes to memory may come in any order.
  const bool any_order = receive->destination != nullptr;
  if (any_order && !receive->begun) {
    receive->parts.assign((receive->bytes + kMaxPayload - 1) / kMaxPayload, false);
  }
  const uint64_t rest = header.total - header.offset;
  const bool fits =
      header.total == receive->bytes && header.offset % kMaxPayload == 0 &&
      header.payload == std::min<uint64_t>(rest, kMaxPayload) &&
      (receive->bytes == 0 || (any_order ? !receive->parts[header.offset / kMaxPayload]
                                         : header.offset == receive->received));
  if (!fits) {
    return InvalidArgument(
        "sent bytes {} + {} of {} for receive {}, which has {} of {}, or those already",
        header.offset, header.payload, header.total, header.id, receive->received, receive->bytes);
  }
  receive->begun = true;
  if (any_order && receive->bytes > 0) receive->parts[header.offset / kMaxPayload] = true;
  *target = receive->destination != nullptr ? receive->destination + header.offset
                                            : landing->bounce.Get();
  return absl::OkStatus();
}

absl::Status Inbox::EndData(const FrameHeader& header, std::byte* payload) {
  message::OpenReceive* receive = engine_->receiver.Find(header.id);
  if (receive == nullptr) return InvalidArgument("sent data twice for receive {}", header.id);
  if (receive->destination == nullptr && header.payload > 0) {
    receive->request->Take(header.offset, {payload, header.payload});
  }
  receive->received += header.payload;
  if (receive->received < receive->bytes) return absl::OkStatus();
  return engine_->receiver.Complete(receive, (header.flags & kAnnounced) != 0);
}

absl::Status Inbox::BeginPut(const FrameHeader& header, Landing* landing, std::byte** target) {
  *target = landing->bounce.Get();
  absl::StatusOr<std::shared_ptr<message::Region>> region =
      shared_->regions->Find(header.key(), header.total);
  if (!region.ok()) {
    landing->refusal = MessageOf(region.status());
    return absl::OkStatus();
  }
  landing->region = *std::move(region);
  *target = landing->region->bytes.data() + header.operation + header.offset;
  return absl::OkStatus();
}

void Inbox::EndPut(const FrameHeader& header, Landing* landing) {
  landing->region = nullptr;
  if (header.offset + header.payload < header.total) return;
  const std::string refusal = std::exchange(landing->refusal, {});
  if (refusal.empty()) return out_->SendControl({.kind = FrameKind::kPutDone, .id = header.id});
  out_->SendControl({.kind = FrameKind::kRefused, .flags = kToPut, .id = header.id},
                    std::string_view(refusal).substr(0, kMaxRefusalBytes));
}

void Inbox::OnGet(const FrameHeader& header) {
  absl::StatusOr<std::shared_ptr<message::Region>> region =
      shared_->regions->Find(header.key(), header.total);
  if (!region.ok()) {
    return out_->SendControl({.kind = FrameKind::kRefused, .id = header.id},
                             MessageOf(region.status()).substr(0, kMaxRefusalBytes));
  }
  const ConstBytes bytes = (*region)->bytes.subspan(header.operation, header.total);
  out_->Answer(header.id, *std::move(region), bytes);
}

absl::Status Inbox::OnGetRefused(const FrameHeader& header, std::string_view reason) {
  message::OpenReceive* receive = engine_->receiver.Find(header.id);
  if (receive == nullptr || receive->tagged) {
    return InvalidArgument("refused get {}, which is not open", header.id);
  }
  return engine_->receiver.EndEarly(
      receive, InvalidArgument("{} refused a get: {}", link_->Describe(), Printable(reason)));
}

}  // namespace tutti::net::tcp
