#include "tutti/collective/engine/failure.h"

#include <algorithm>
#include <utility>

#include "tutti/base/clock.h"

namespace tutti::collective {
namespace {

// The control plane promises a verdict within half a second; this is for the case that it is lost
// as well.
constexpr int64_t kVerdictNanos = 2'000'000'000;
// How long what a rank sent before it left may take to come.
constexpr int64_t kUnderWayNanos = 1'000'000'000;

}  // namespace

bool Failure::SetVerdict(const absl::Status& status) {
  if (!verdict_.ok()) return false;
  verdict_ = status;
  failed_.store(true, std::memory_order_relaxed);
  return true;
}

void Failure::Find(int peer, const absl::Status& status) {
  if (!verdict_.ok() || !finding_.status.ok()) return;
  finding_ = {peer, status};
  deadline_ = NowNanos() + kVerdictNanos;
  due_ = true;
}

std::optional<Failure::Finding> Failure::TakeDue() {
  if (!std::exchange(due_, false)) return std::nullopt;
  return finding_;
}

std::vector<Failure::BrokenLink> Failure::TakeGone() { return std::exchange(gone_, {}); }

void Failure::AddLeaver(const BrokenLink& link, int64_t now) {
  leavers_.push_back({link, now + kUnderWayNanos});
}

// The links may be whole: memory that somebody still holds keeps them alive.
std::vector<Failure::BrokenLink> Failure::TakeMissedLeavers(int64_t now) {
  const auto missed = std::partition(leavers_.begin(), leavers_.end(),
                                     [&](const Leaver& one) { return now < one.missed_nanos; });
  std::vector<BrokenLink> links;
  for (auto one = missed; one != leavers_.end(); ++one) links.push_back(one->link);
  leavers_.erase(missed, leavers_.end());
  return links;
}

}  // namespace tutti::collective
