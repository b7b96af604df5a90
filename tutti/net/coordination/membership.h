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

// How a member went.
struct Departure {
  enum class How : uint8_t { kLeft, kFailed, kLost };  // in good order, as it said, without a word
  std::string task;
  uint64_t incarnation = 0;
  How how = How::kLost;
  absl::Status why;  // "is lost: it was at host h1, pid 7", or what it said of its failure
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
  // Another process is gone: once for each incarnation that was there.
  std::function<void(const Departure&)> gone = nullptr;
};

// The members of a job, built on a Store alone: which tasks are present, by (task, incarnation)
// under a lease; which are missing and why; and which failed first. The revision at which a task
// joined is its fencing token: the next incarnation has a greater one, and what a task writes
// through Put is refused once its membership has ended. Has a thread that keeps the lease alive.
// Thread-safe.
//
//   auto membership = *Membership::Join({.store = store, .task = "/job:ps/task:0", ...});
//   status = membership->AwaitAll(60);     // everybody is there, or who is missing and why
class Membership {
 public:
  // Joins the job as `options.task`. A member that is another process of the task is asked whether
  // it lives: ALREADY_EXISTS, naming it, as soon as it answers. If it does not answer, waits for as
  // long as its lease can last. FAILED_PRECONDITION if the fingerprint differs from that of the
  // members; a job without members accepts any.
  static absl::StatusOr<std::unique_ptr<Membership>> Join(MembershipOptions options);
  ~Membership();  // leaves
  // Leaves in good order, unless it failed or was lost. Calls after that fail with CANCELLED.
  void Leave();

  const std::string& task() const { return options_.task; }
  const std::vector<std::string>& tasks() const { return options_.tasks; }
  int64_t revision() const { return revision_; }  // of this task

  absl::StatusOr<std::vector<Member>> Members() const;
  // OK if that revision is the task's; FAILED_PRECONDITION where it is of an older incarnation.
  absl::Status CheckFence(const std::string& task, int64_t revision) const;

  // What the store has told of a task so far, without asking it.
  struct View {
    uint64_t incarnation = 0;  // 0: it has not come
    int64_t revision = 0;      // of that incarnation
    absl::Status gone;         // "failed: no memory"; OK: it is there
  };
  View ViewOf(const std::string& task) const;
  // OK while this task is a member; else why it is none, as `lost` was told.
  absl::Status Standing() const;
  // The same, asking the store, and keeping the lease alive: ABORTED where the place is lost.
  absl::Status CheckPlace();
  // Reports that the connection to a task was lost: the store ends the lease of that incarnation at
  // once, and all members are notified. Does nothing if the task has another incarnation by then,
  // or this task is no longer a member. Does not wait.
  void ReportLost(const std::string& task, uint64_t incarnation);

  // Waits until all tasks are there. DEADLINE_EXCEEDED lists who is missing, and why.
  absl::Status AwaitAll(double seconds);
  // "is lost: it was at host h1, pid 7", of tasks that are not there.
  std::map<std::string, std::string> Missing(const std::vector<Member>& members) const;

  // Reports the failure of this task to all members. The first reported failure is the cause.
  void Fail(const absl::Status& why);
  struct Failure {
    std::string task;
    absl::Status why;
  };
  absl::StatusOr<std::optional<Failure>> FirstFailure() const;
  // The first that was told since this task came, without asking the store.
  std::optional<Failure> KnownFailure() const;

  // Asks the members to end the job normally, because this process got a signal to end. Each member
  // decides how to react. Does nothing if this task is no longer a member.
  void AskToStop(int signal);
  struct StopRequest {
    std::string task;  // that asks
    int signal = 0;
  };
  // The first that was made since this task came, without asking the store.
  std::optional<StopRequest> KnownStopRequest() const;

  // The store is gone: nothing is written any more, and all calls end with `why`.
  void Abandon(const absl::Status& why);

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
    uint64_t incarnation = 0;
    int64_t revision = 0;
    std::string place;
    absl::Status gone = {};  // how; OK: it is there
  };
  struct Suspect {
    std::string task;
    uint64_t incarnation = 0;
  };

  explicit Membership(MembershipOptions options);
  std::string KeyOf(const std::string& name) const { return options_.root + name; }
  absl::Status TakeJobLease();
  absl::Status CompareFingerprint();
  absl::Status TakePlace();
  absl::StatusOr<bool> HolderLives(int64_t* asked);
  absl::Status StartWatching();
  std::vector<StoreEvent> Differences(const Store::Range& range) const;
  void OnEvents(std::span<const StoreEvent> events);
  void OnMember(std::string_view task, const StoreEvent& event, std::vector<Departure>* gone);
  void Depart(std::string_view task, Departure::How how, const absl::Status& why,
              std::vector<Departure>* gone);
  void KeepAlive();
  void AnswerQuestion();
  void EndLease(const Suspect& suspect);
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
  bool asked_ = false;     // whether it lives
  bool unseated_ = false;  // its key is gone, or of another process
  std::vector<Suspect> suspects_;
  std::optional<Failure> failure_;
  std::optional<StopRequest> stop_request_;
  absl::Status lost_;
  std::map<std::string, Known> known_;  // tasks that were there once
  std::map<std::string, uint64_t> rounds_;
  std::thread thread_;
};

}  // namespace tutti::net
