#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/transport.h"

namespace tutti::collective {

// What this rank knows about the failure of the job: the verdict, its own finding that waits for a
// verdict, and which ranks are gone. Guarded by the engine's lock, except failed().
class Failure {
 public:
  using BrokenLink = net::Transport::BrokenLink;
  // What this rank found out: a lost rank, or a failure (net::kNoRank).
  struct Finding {
    int peer = -1;
    absl::Status status;
  };

  explicit Failure(int world) : broken_(world) {}

  // The verdict; OK while the job runs. The first one counts: false for others.
  const absl::Status& verdict() const { return verdict_; }
  bool SetVerdict(const absl::Status& status);
  bool failed() const { return failed_.load(std::memory_order_relaxed); }  // from any thread

  // The first finding counts. It is due to be reported at once, and again if no verdict comes.
  void Find(int peer, const absl::Status& status);
  bool waits_for_verdict() const { return deadline_ != 0; }
  bool overdue(int64_t now) const { return deadline_ != 0 && now > deadline_; }
  void ReportAgain() { due_ = true; }
  bool report_due() const { return due_; }
  std::optional<Finding> TakeDue();

  // Ranks that cannot be reached any more, and why.
  const absl::Status& broken(int peer) const { return broken_[peer]; }
  void SetBroken(int peer, const absl::Status& status) { broken_[peer] = status; }
  // Links that broke and have not been looked at.
  void AddGone(const BrokenLink& link) { gone_.push_back(link); }
  bool has_gone() const { return !gone_.empty(); }
  std::vector<BrokenLink> TakeGone();
  // A rank that left on purpose counts as gone after a grace period, in which its last messages may
  // arrive.
  void AddLeaver(const BrokenLink& link, int64_t now);
  std::vector<BrokenLink> TakeMissedLeavers(int64_t now);

 private:
  struct Leaver {
    BrokenLink link;
    int64_t missed_nanos = 0;  // from when on it counts as gone
  };

  absl::Status verdict_;
  std::atomic<bool> failed_{false};
  Finding finding_;
  int64_t deadline_ = 0;  // of the verdict on it
  bool due_ = false;
  std::vector<absl::Status> broken_;  // by rank
  std::vector<BrokenLink> gone_;
  std::vector<Leaver> leavers_;
};

}  // namespace tutti::collective
