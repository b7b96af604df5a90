// How messages and receives meet.
//
// A message of up to kEagerBytes comes in one kEager frame. If its Receive is posted, the payload
// is read to where it belongs; if not, it is kept. A sender that is too far ahead announces such
// messages instead, and sends them when they are asked for; kTaken tells it how far this side is
// (tutti/net/eager_window.h). A larger one comes in kData frames, after this
// side has said kReady, which it does as soon as the Receive is posted: so whoever receives before
// the other sends pays no round trip. A kReady carries an id that the kData frames bring back, and
// from the id their memory follows.
//
// Two ends may disagree about a length. Where the receiver expects a large message, its kReady
// tells the sender. Where it expects a small one there is no kReady, and so that nobody waits for
// ever, a sender that finds no kReady sends a kAnnounce. The kData frames travel on other streams
// and may overtake it; they say so (kAnnounced), and an announcement whose message has ended
// already is expected and dropped.
#include "tutti/net/tcp/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/tcp/link.h"
#include "tutti/net/tcp/outbox.h"
#include "tutti/net/tcp/shared.h"
#include "tutti/net/wire.h"

namespace tutti::net::tcp {
namespace {

// Hands over a whole message that lies somewhere else.
void Deliver(const OpenReceive& receive, const std::byte* payload) {
  if (receive.bytes > 0 && payload != receive.destination) {
    if (receive.destination != nullptr) {
      std::memcpy(receive.destination, payload, receive.bytes);
    } else {
      receive.request->Take(0, {payload, receive.bytes});
    }
  }
  receive.request->Done(absl::OkStatus());
}

}  // namespace

std::byte* Bounce::Get() {
  if (lines_ == nullptr)
    lines_ = std::make_unique_for_overwrite<Line[]>(kMaxPayload / sizeof(Line));
  return lines_[0].bytes;
}

Inbox::Inbox(Shared* shared, Link* link, Outbox* out)
    : shared_(shared), link_(link), out_(out), taken_(EagerWindow(shared->options)) {}

// Requests
// ------------------------------------------------------------------------------------------------

void Inbox::Receive(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  OpenReceive receive = {
      .tag = tag, .destination = destination, .bytes = bytes, .request = request};
  if (Arrived* found = arrived_.Front(tag); found != nullptr) {
    const Arrived arrived = arrived_.Take(tag, found);
    const bool announced = arrived.bytes == nullptr;
    Release(announced ? 0 : arrived.total);
    if (!announced) NoteTaken(arrived.total);
    if (arrived.total != bytes) {
      if (announced) SendReady(receive);
      return request->Done(DifferingLengths(tag, bytes, arrived.total));
    }
    if (!announced) return Deliver(receive, arrived.bytes.get());
    receive.announce_seen = true;
  }
  // Even where nothing is to be said to the peer: its end shows on the connection.
  out_->Open();
  const OpenReceive* posted = Post(std::move(receive));
  if (bytes > kEagerBytes || posted->announce_seen) SendReady(*posted);
}

void Inbox::Get(MemoryKey source, Bytes destination, Request* request) {
  const OpenReceive* receive = Post({.tagged = false,
                                     .destination = destination.data(),
                                     .bytes = destination.size(),
                                     .request = request});
  out_->SendControl({.kind = FrameKind::kGet,
                     .index = source.region,
                     .operation = source.offset,
                     .id = receive->id,
                     .total = destination.size()});
}

OpenReceive* Inbox::Post(OpenReceive receive) {
  receive.id = ++last_id_;
  const bool any_order = receive.destination != nullptr && receive.bytes > kEagerBytes;
  if (any_order || !receive.tagged)
    receive.pieces.resize((receive.bytes + kMaxPayload - 1) / kMaxPayload);
  auto owned = std::make_unique<OpenReceive>(std::move(receive));
  OpenReceive* posted = owned.get();
  open_.emplace(posted->id, std::move(owned));
  if (posted->tagged) posted_.Add(posted->tag, posted);
  return posted;
}

// With id 0 for a receive that has ended: the sender learns the length that was expected.
void Inbox::SendReady(const OpenReceive& receive) {
  out_->SendControl({.kind = FrameKind::kReady,
                     .flags = receive.destination == nullptr ? kInOrder : FrameFlags{0},
                     .index = receive.tag.index,
                     .operation = receive.tag.operation,
                     .id = receive.id,
                     .total = receive.bytes});
}

std::unique_ptr<OpenReceive> Inbox::Remove(OpenReceive* receive) {
  if (receive->tagged) {
    OpenReceive** entry =
        posted_.FindIf(receive->tag, [&](const OpenReceive* other) { return other == receive; });
    posted_.Take(receive->tag, entry);
  }
  return std::move(open_.extract(receive->id).mapped());
}

// Ends a receive that will get no data. If some has come, the peer contradicts itself: then the
// link is to be broken, because a stream may be writing to the memory.
absl::Status Inbox::EndEarly(OpenReceive* receive, const absl::Status& status) {
  if (receive->begun) {
    return InvalidArgument("sent another length in the middle of message {}.{}",
                           receive->tag.operation, receive->tag.index);
  }
  Remove(receive)->request->Done(status);
  return absl::OkStatus();
}

absl::Status Inbox::DifferingLengths(Tag tag, uint64_t expected, uint64_t got) const {
  return InvalidArgument("{}: message {}.{} has {} bytes, expected {}", link_->Describe(),
                         tag.operation, tag.index, got, expected);
}

// An announced one waits for its own data: what comes at once is a later message of that tag.
OpenReceive* Inbox::PostedFor(Tag tag) {
  OpenReceive** posted =
      posted_.FindIf(tag, [](const OpenReceive* receive) { return !receive->announce_seen; });
  return posted == nullptr ? nullptr : *posted;
}

void Inbox::NoteTaken(size_t bytes) {
  if (taken_.OnTaken(bytes)) {
    out_->SendControl({.kind = FrameKind::kTaken, .total = taken_.taken()});
  }
}

absl::Status Inbox::Keep(size_t bytes) {
  const size_t more = bytes + kKeptOverhead;
  const size_t limit = shared_->options.max_kept_bytes;
  if (more > limit - std::min(limit, kept_bytes_)) {
    return ResourceExhausted(
        "sent more than {} bytes that nobody receives: it is too far ahead of rank {}; let it wait "
        "for its operations before it starts more",
        limit, shared_->options.rank);
  }
  kept_bytes_ += more;
  return absl::OkStatus();
}

// Frames
// ------------------------------------------------------------------------------------------------

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
      return EndEager(header, landing, payload);
    case FrameKind::kAnnounce:
      return OnAnnounce(header);
    case FrameKind::kReady:
      return out_->OnReady(header);
    case FrameKind::kDiffers:
      return OnDiffers(header);
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
      return out_->OnTaken(header);
  }
  return absl::OkStatus();
}

absl::Status Inbox::OnShort(const FrameHeader& header, const std::byte* payload) {
  TUTTI_RETURN_IF_ERROR(Keep(0));
  Transport::ShortMessage& message = shared_->shorts.emplace_back();
  message.peer = link_->peer();
  message.tag = header.tag();
  message.bytes = header.payload;
  if (header.payload > 0) std::memcpy(message.data, payload, header.payload);
  return absl::OkStatus();
}

absl::Status Inbox::BeginEager(const FrameHeader& header, Landing* landing, std::byte** target) {
  *target = landing->bounce.Get();
  OpenReceive* receive = PostedFor(header.tag());
  if (receive == nullptr) {
    TUTTI_RETURN_IF_ERROR(Keep(header.total));
    landing->kept = std::make_unique_for_overwrite<std::byte[]>(header.total);
    *target = landing->kept.get();
    return absl::OkStatus();
  }
  if (receive->bytes != header.total) {
    return EndEarly(receive, DifferingLengths(header.tag(), receive->bytes, header.total));
  }
  if (receive->begun) return EndEarly(receive, absl::OkStatus());
  landing->receive = Remove(receive);
  if (receive->destination != nullptr) *target = receive->destination;
  return absl::OkStatus();
}

absl::Status Inbox::EndEager(const FrameHeader& header, Landing* landing, std::byte* payload) {
  if (const auto receive = std::move(landing->receive); receive != nullptr) {
    NoteTaken(header.total);
    Deliver(*receive, payload);
    return absl::OkStatus();
  }
  auto kept = std::move(landing->kept);
  OpenReceive* receive = PostedFor(header.tag());
  if (kept != nullptr && receive == nullptr) {
    arrived_.Add(header.tag(), {header.total, std::move(kept)});
    return absl::OkStatus();
  }
  NoteTaken(header.total);
  if (kept == nullptr) return absl::OkStatus();  // its Receive expected another length
  // Its Receive was posted while the payload was on its way.
  Release(header.total);
  if (receive->bytes != header.total || receive->begun) {
    return EndEarly(receive, DifferingLengths(header.tag(), receive->bytes, header.total));
  }
  Deliver(*Remove(receive), kept.get());
  return absl::OkStatus();
}

absl::Status Inbox::OnAnnounce(const FrameHeader& header) {
  const Tag tag = header.tag();
  if (uint64_t* late = late_announces_.Front(tag); late != nullptr) {
    late_announces_.Take(tag, late);
    Release(0);
    return absl::OkStatus();
  }
  OpenReceive* receive = PostedFor(tag);
  if (receive == nullptr) {
    TUTTI_RETURN_IF_ERROR(Keep(0));
    arrived_.Add(tag, {header.total, nullptr});
    return absl::OkStatus();
  }
  if (receive->bytes == header.total) {
    receive->announce_seen = true;
    // A large receive has said so when it was posted.
    if (receive->bytes <= kEagerBytes) SendReady(*receive);
    return absl::OkStatus();
  }
  // The kReady of a large receive has told the sender already.
  if (receive->bytes <= kEagerBytes) {
    SendReady({.tag = tag, .destination = receive->destination, .bytes = receive->bytes});
  }
  return EndEarly(receive, DifferingLengths(tag, receive->bytes, header.total));
}

absl::Status Inbox::OnDiffers(const FrameHeader& header) {
  const auto found = open_.find(header.id);
  if (found == open_.end()) return absl::OkStatus();  // it knows from the kAnnounce
  OpenReceive* receive = found->second.get();
  return EndEarly(receive, DifferingLengths(receive->tag, receive->bytes, header.total));
}

absl::Status Inbox::BeginData(const FrameHeader& header, Landing* landing, std::byte** target) {
  const auto found = open_.find(header.id);
  if (found == open_.end()) {
    return InvalidArgument("sent data for receive {}, which is not open", header.id);
  }
  OpenReceive* receive = found->second.get();
  const bool any_order = !receive->pieces.empty();
  const uint64_t rest = header.total - header.offset;
  const bool fits =
      header.total == receive->bytes && header.offset % kMaxPayload == 0 &&
      header.payload == std::min<uint64_t>(rest, kMaxPayload) &&
      (receive->bytes == 0 || (any_order ? !receive->pieces[header.offset / kMaxPayload]
                                         : header.offset == receive->received));
  if (!fits) {
    return InvalidArgument(
        "sent bytes {} + {} of {} for receive {}, which has {} of {}, or those already",
        header.offset, header.payload, header.total, header.id, receive->received, receive->bytes);
  }
  receive->begun = true;
  if (any_order) receive->pieces[header.offset / kMaxPayload] = true;
  *target = receive->destination != nullptr ? receive->destination + header.offset
                                            : landing->bounce.Get();
  return absl::OkStatus();
}

absl::Status Inbox::EndData(const FrameHeader& header, std::byte* payload) {
  const auto found = open_.find(header.id);
  if (found == open_.end()) {
    return InvalidArgument("sent data twice for receive {}", header.id);
  }
  OpenReceive* receive = found->second.get();
  if (receive->destination == nullptr && header.payload > 0) {
    receive->request->Take(header.offset, {payload, header.payload});
  }
  receive->received += header.payload;
  if (receive->received < receive->bytes) return absl::OkStatus();
  if ((header.flags & kAnnounced) != 0 && !receive->announce_seen) {
    TUTTI_RETURN_IF_ERROR(Keep(0));
    late_announces_.Add(receive->tag, receive->id);
  }
  Remove(receive)->request->Done(absl::OkStatus());
  return absl::OkStatus();
}

absl::Status Inbox::BeginPut(const FrameHeader& header, Landing* landing, std::byte** target) {
  *target = landing->bounce.Get();
  absl::StatusOr<std::shared_ptr<Region>> region =
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
  absl::StatusOr<std::shared_ptr<Region>> region =
      shared_->regions->Find(header.key(), header.total);
  if (!region.ok()) {
    return out_->SendControl({.kind = FrameKind::kRefused, .id = header.id},
                             MessageOf(region.status()).substr(0, kMaxRefusalBytes));
  }
  const ConstBytes bytes = (*region)->bytes.subspan(header.operation, header.total);
  out_->Answer(header.id, *std::move(region), bytes);
}

absl::Status Inbox::OnGetRefused(const FrameHeader& header, std::string_view reason) {
  const auto found = open_.find(header.id);
  if (found == open_.end() || found->second->tagged) {
    return InvalidArgument("refused get {}, which is not open", header.id);
  }
  return EndEarly(found->second.get(),
                  InvalidArgument("{} refused a get: {}", link_->Describe(), Printable(reason)));
}

void Inbox::Close(const absl::Status& status) {
  posted_.TakeAll([](OpenReceive*) {});
  for (const auto& [id, receive] : std::exchange(open_, {})) receive->request->Done(status);
}

bool Inbox::TakeKept(Tag tag, std::byte* destination, size_t bytes, Request* request) {
  Arrived* const found = arrived_.Front(tag);
  if (found == nullptr || found->bytes == nullptr) return false;  // only announced
  const Arrived arrived = arrived_.Take(tag, found);
  Release(arrived.total);
  if (arrived.total != bytes) {
    request->Done(DifferingLengths(tag, bytes, arrived.total));
  } else {
    Deliver({.tag = tag, .destination = destination, .bytes = bytes, .request = request},
            arrived.bytes.get());
  }
  return true;
}

void Inbox::DropKept() {
  arrived_.TakeAll([](Arrived&) {});
}

}  // namespace tutti::net::tcp
