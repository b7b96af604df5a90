#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/collective/engine.h"

namespace tutti::collective {
namespace {

// The control plane promises a verdict within half a second; this is for the case that it is lost
// as well.
constexpr int64_t kVerdictNanos = 2'000'000'000;
// How long what a rank sent before it left may take to come.
constexpr int64_t kUnderWayNanos = 1'000'000'000;

}  // namespace

absl::Status Engine::status() const {
  const Lock lock(links_->mutex);
  return failure_;
}

void Engine::Abort(const absl::Status& status) {
  Lock lock(links_->mutex);
  Lost(-1, status.ok() ? InvalidArgument("rank {} aborted with an OK status", rank_) : status);
  Unlock(lock);
}

void Engine::OnBroken(const net::Transport::BrokenLink& broken) {
  if (broken.peer < 0 || broken.peer >= size_) return;
  broken_[broken.peer] = broken.status;
  // A rank that nobody needs any more may go.
  const bool needed = std::any_of(open_.begin(), open_.end(), [&](const auto& entry) {
    return entry.second->Needs(broken.peer);
  });
  // A link that this rank itself gave up, for what came over it, is the cause of what the other end
  // will report.
  const bool given_up = absl::IsResourceExhausted(broken.status) ||
                        absl::IsInvalidArgument(broken.status) || absl::IsDataLoss(broken.status);
  if (needed || given_up) Lost(broken.peer, broken.status);
}

void Engine::Left(int peer, const absl::Status& status) {
  {
    const Lock lock(links_->mutex);
    gone_.push_back({peer, status});
  }
  transport_->Wake();
}

void Engine::Leaves(int peer, const absl::Status& status) {
  const Lock lock(links_->mutex);
  leavers_.push_back({{peer, status}, NowNanos() + kUnderWayNanos});
}

// The links may be whole: memory that somebody still holds keeps them alive.
void Engine::MissLeavers(int64_t now) {
  const auto missed = std::partition(leavers_.begin(), leavers_.end(),
                                     [&](const Leaver& one) { return now < one.missed_nanos; });
  for (auto one = missed; one != leavers_.end(); ++one) OnBroken(one->link);
  leavers_.erase(missed, leavers_.end());
}

void Engine::OnError(OpenOperation* operation) {
  operation->set_error_told();
  const absl::Status status = WithPrefix(operation->error(), operation->Name() + ": ");
  // A message of another length and the like: the link is whole, but the ranks do not fit.
  const bool link_broke = !absl::IsInvalidArgument(status) && !absl::IsOutOfRange(status);
  Lost(link_broke ? operation->error_peer() : -1, status);
}

void Engine::Lost(int peer, const absl::Status& status) {
  if (!failure_.ok() || !expected_.ok()) return;
  expected_ = status;
  expected_peer_ = peer;
  verdict_deadline_ = NowNanos() + kVerdictNanos;
  report_due_ = true;
}

// With no lock held.
void Engine::Report(int peer, const absl::Status& status) {
  bool overdue = false;
  {
    const Lock lock(links_->mutex);
    overdue = NowNanos() > verdict_deadline_;
  }
  if (control_ == nullptr || overdue) {
    Fail(status);
  } else if (peer >= 0) {
    control_->ReportLost(peer, status);
  } else {
    control_->ReportFailure(status);
  }
}

void Engine::Fail(const absl::Status& status) {
  Lock lock(links_->mutex);
  if (!failure_.ok()) return;
  failure_ = status;
  failed_.store(true, std::memory_order_relaxed);
  if (!open_.empty()) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) transport_->Fail(peer, status);
    }
  }
  while (!open_.empty()) Finish(open_.begin()->second, status);
  runnable_.clear();
  changed_.notify_all();
  Unlock(lock);
  transport_->Wake();
}

void Engine::WarnIfLate(OpenOperation* operation, int64_t now) {
  if (!operation->started() || late_nanos_ <= 0) return;
  if (operation->seen_nanos == 0) operation->seen_nanos = operation->late_nanos = now;
  if (now - operation->late_nanos < late_nanos_) return;
  operation->late_nanos = now;
  // Ranks that have not come this far; else those whose messages are missing.
  std::vector<int> ranks;
  const uint64_t sequence = operation->identity().world_sequence;
  if (control_ != nullptr && sequence > 0) {
    const std::vector<uint64_t> progress = control_->Progress();
    for (size_t r = 0; r < progress.size(); ++r) {
      if (progress[r] < sequence) ranks.push_back(static_cast<int>(r));
    }
  }
  if (ranks.empty()) ranks = operation->WaitsFor();
  std::string names;
  for (int rank : ranks) {
    names += (names.empty() ? "" : ", ") + transport_->Describe(rank);
  }
  // With a control plane, who died or left is known before anybody is late.
  const std::string_view alive = control_ == nullptr ? ""
                                 : ranks.size() == 1 ? "; it is alive"
                                                     : "; they are alive";
  Log(LogLevel::kWarning, "{} has waited {:.0f} s for {}{}", operation->Name(),
      static_cast<double>(now - operation->seen_nanos) / 1e9,
      names.empty() ? "its own work" : names, alive);
}

}  // namespace tutti::collective
