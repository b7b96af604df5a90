#include "tutti/net/memory/link.h"

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"

namespace tutti::net::memory {
namespace {

// Short messages that nobody reads, up to 1 KB each: the peer is stuck, or the caller does not wait
// for it. Of the others there are no more than there are requests, here or at the peer.
constexpr size_t kMostShortsQueued = 1 << 17;

// Beyond this the second copy costs more than the round trip that a direct one needs.
constexpr size_t kMostEagerBytes = 8 << 10;

// Of all links of a rank together: how far peers may be ahead, and what may be kept of those that
// do not keep to that. A peer's offers count as kept, too, so a link has room for many of them.
constexpr uint64_t kWindowBytes = 32 << 20;
constexpr size_t kKeptBytes = 64 << 20;
constexpr size_t kLeastKeptBytes = 16 << 20;

}  // namespace

Link::Link(const Shared& shared, int peer, const Mailbox& theirs, int writer,
           const RingView& from_peer)
    : in(from_peer),
      staging(shared.space),
      shared_(shared),
      peer_(peer),
      out_(theirs.ring(writer)),
      bell_(&theirs.doorbell()),
      fence_(!JoinBarriers() || !theirs.joined_barriers()),
      engine_(this, shared.stash,
              {.rank = shared.rank,
               .eager_bytes = std::min(kMostEagerBytes, out_.max_payload()),
               .window = kWindowBytes / shared.links,
               .kept_bytes = std::max(kKeptBytes / shared.links, kLeastKeptBytes)}) {}

void Link::SendOffer(Tag tag, const message::Offer& offer) {
  SendStruct(CellKind::kOffer,
             Offer{.bytes = offer.bytes,
                   .send = offer.send,
                   .offset = offer.key.offset,
                   .region = offer.key.region},
             tag);
}

void Link::SendInvitation(Tag tag, const message::Invitation& invitation) {
  if (invitation.receive == 0) {
    SendStruct(CellKind::kAck,
               Ack{.send = invitation.send, .refused = 1, .expected = invitation.bytes}, tag);
    return;
  }
  SendStruct(
      CellKind::kGrant,
      Grant{.send = invitation.send, .receive = invitation.receive, .bytes = invitation.bytes},
      tag);
}

absl::Status Link::SendBytes(const message::Invitation& invitation, ConstBytes data,
                             bool /*offered*/, Request* request) {
  return staging.Add(invitation.receive, data, request);
}

MemoryKey Link::KeyFor(ConstBytes data) {
  if (data.empty()) return {};
  const MemoryKey key = shared_.space->KeyOf(data.data(), data.size());
  return key.region != 0 ? key : shared_.space->Expose(data.data());
}

absl::Status Link::Fetch(Tag tag, const message::Offer& offer, std::byte* destination,
                         Request* request) {
  const absl::StatusOr<std::byte*> from = shared_.space->Map(peer_, offer.key, offer.bytes);
  if (!from.ok()) {
    request->Done(from.status());
    return from.status();
  }
  shared_.copies->Add({.link = this,
                       .from = *from,
                       .to = destination,
                       .bytes = offer.bytes,
                       .request = request,
                       .tag = tag,
                       .ack = offer.send});
  return absl::OkStatus();
}

void Link::Queue(CellKind kind, Tag tag, ConstBytes payload, Request* request) {
  queue_.push_back({.kind = kind, .tag = tag, .payload = payload, .request = request, .copy = {}});
  stalled_.store(true, std::memory_order_relaxed);
}

bool Link::QueueCopy(CellKind kind, Tag tag, ConstBytes payload) {
  if (kind == CellKind::kShort && ++shorts_queued_ > kMostShortsQueued) {
    overflown_ = true;
    return false;
  }
  Queue(kind, tag, {}, nullptr);
  queue_.back().copy.assign(payload.begin(), payload.end());
  return true;
}

bool Link::Flush() {
  bool moved = false;
  while (!queue_.empty()) {
    Queued& next = queue_.front();
    const ConstBytes payload = next.request ? next.payload : ConstBytes(next.copy);
    if (!Push(next.kind, next.tag, payload)) return moved;
    moved = true;
    Request* request = next.request;
    if (next.kind == CellKind::kShort) --shorts_queued_;
    queue_.pop_front();
    if (request) request->Done(absl::OkStatus());
  }
  if (moved) stalled_.store(false, std::memory_order_relaxed);
  return moved;
}

absl::Status Link::Health() const {
  if (out_.corrupt()) {
    return DataLoss("the count of cells that it read from this rank makes no sense");
  }
  if (overflown_) {
    return ResourceExhausted("{} short messages wait for room in its ring; it does not read them",
                             kMostShortsQueued);
  }
  return absl::OkStatus();
}

void Link::End(const absl::Status& status) {
  status_ = status;
  over_.store(true, std::memory_order_relaxed);
  std::deque<Queued> queue = std::exchange(queue_, {});
  stalled_.store(false, std::memory_order_relaxed);
  for (const Queued& queued : queue) {
    if (queued.request) queued.request->Done(status);
  }
}

}  // namespace tutti::net::memory
