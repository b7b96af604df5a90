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

}  // namespace

Link::Link(int peer, const Mailbox& theirs, int writer, const RingView& from_peer, uint64_t window)
    : in(from_peer),
      ahead(window),
      taken(window),
      peer_(peer),
      out_(theirs.ring(writer)),
      bell_(&theirs.doorbell()),
      fence_(!JoinBarriers() || !theirs.joined_barriers()),
      eager_bytes_(std::min(kMostEagerBytes, out_.max_payload())) {}

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
