#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/coordination/store/store.h"

namespace tutti::net {

// A process that is a member of a job.
struct Member {
  std::string task;  // "/job:worker/task:1"
  uint64_t incarnation = 0;
  std::string place;     // "host 10.0.0.7, pid 4711"
  int64_t revision = 0;  // at which it came: the fencing token of what it does
};

struct MembershipOptions {
  std::shared_ptr<Store> store;
  std::string root = "tutti/";  // begins all keys of the job
  std::string task;
  uint64_t incarnation = 0;
  std::string place = {};
  std::vector<std::string> tasks = {};  // of the job, this one included
  // Lines "name=value" that all members must have alike; the first difference is told.
  std::vector<std::string> fingerprint = {};
  // A member that gives no sign of life for so long is lost.
  double lease_seconds = 5;
  // Looked at while Join waits for the place to become free: true ends it with CANCELLED.
  std::function<bool()> stopped = nullptr;

  // The calls below come on a thread of the store or of the membership, which must not be blocked.

  // At most once: this task is no member any more. ABORTED: its lease ended, because it gave no
  // sign of life for too long, and what it did since may be refused. UNAVAILABLE: the store is out
  // of reach.
  std::function<void(const absl::Status& why)> lost = nullptr;
  // Another task left in good order, or is lost.
  std::function<void(const std::string& task, bool in_good_order)> gone = nullptr;
};

// The members of a job, over a Store alone: who is there, by (task, incarnation) under a lease, who
// is missing and why, and who failed first. The revision at which a task came is its fencing token:
// the next incarnation has a greater one, and what a task writes through Put is refused once its
// place is gone. Has a thread that keeps the lease alive. Thread-safe.
//
//   auto membership = *Membership::Join({.store = store, .task = "/job:ps/task:0", ...});
//   status = membership->AwaitAll(60);     // everybody is there, or who is missing and why
class Membership {
 public:
  // Takes the place of the task. A place that another incarnation has is waited for as long as that
  // one's lease can last: ALREADY_EXISTS, naming it, where it is still there then.
  // FAILED_PRECONDITION where the fingerprint differs.
  static absl::StatusOr<std::unique_ptr<Membership>> Join(MembershipOptions options);
  // Leaves in good order, unless it failed or was lost.
  ~Membership();

  const std::string& task() const { return options_.task; }
  const std::vector<std::string>& tasks() const { return options_.tasks; }
  int64_t revision() const { return revision_; }  // of this task

  absl::StatusOr<std::vector<Member>> Members() const;
  // OK if that revision is the task's; FAILED_PRECONDITION where it is of an older incarnation.
  absl::Status CheckFence(const std::string& task, int64_t revision) const;

  // Waits until all tasks are there. DEADLINE_EXCEEDED lists who is missing, and why.
  absl::Status AwaitAll(double seconds);
  // "is lost: it was at host h1, pid 7", of tasks that are not there.
  std::map<std::string, std::string> Missing(const std::vector<Member>& members) const;

  // Tells everybody that this task failed. The first to do so is the cause.
  void Fail(const std::string& why);
  struct Failure {
    std::string task, why;
  };
  absl::StatusOr<std::optional<Failure>> FirstFailure() const;

  // The end of this object tells nobody: the store is gone.
  void Abandon();

  // For what is built on it (gathering.h) -----------------------------------------------------

  // Puts a key of the job, which stays as long as a member does. FAILED_PRECONDITION where the key
  // is there already, ABORTED where this task has lost its place.
  absl::Status Put(const std::string& name, std::string value);
  void Delete(const std::string& name);
  absl::StatusOr<Store::Range> List(const std::string& prefix) const;  // keys without the root
  // Looks again and again, whenever something of the job changes, until `look` gives an answer; the
  // reason if this task is lost, and nothing after the deadline (NowNanos).
  absl::StatusOr<bool> AwaitChange(int64_t deadline,
                                   const std::function<absl::StatusOr<bool>()>& look);
  uint64_t NextRound(const std::string& name);

 private:
  struct Known {
    std::string place;
    std::string gone = {};  // how; empty: it is there
  };

  explicit Membership(MembershipOptions options);
  std::string KeyOf(const std::string& name) const { return options_.root + name; }
  absl::Status TakeJobLease();
  absl::Status CompareFingerprint();
  absl::Status TakePlace();
  absl::Status StartWatching();
  void OnEvents(std::span<const StoreEvent> events);
  void KeepAlive();
  void Lose(const absl::Status& why);
  absl::StatusOr<std::vector<Member>> MembersOf(const Store::Range& range) const;

  const MembershipOptions options_;
  LeaseId lease_ = 0, job_lease_ = 0;
  int64_t revision_ = 0;
  std::unique_ptr<Store::Watch> watch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  uint64_t changes_ = 0;  // that the watch told
  bool stopping_ = false, failed_ = false, watch_ended_ = false;
  absl::Status lost_;
  std::map<std::string, Known> known_;  // tasks that were there once
  std::map<std::string, uint64_t> rounds_;
  std::thread thread_;
};

}  // namespace tutti::net
