// The keys of a job, behind its root:
//
//   lease                        the job's lease, which all members keep alive
//   cluster                      the fingerprint of whoever came first, when nobody was there
//   members/job:worker/task:1    "INCARNATION PLACE", under the member's own lease
//   question/job:worker/task:1   does the member live? asked by another process of the same task
//   left/job:worker/task:1       "INCARNATION", of one that left in good order
//   failed/job:worker/task:1     "CODE WHY"
//   stop/job:ps/task:1           "SIGNAL", of a member that asks all to end the job in good order
//   gather/...                   see gathering.cc
//
// All but members, questions and stops go with the job's lease: some time after the last member
// nothing is left. A key that stands for a member goes with the member's lease, so that a task that
// dies or is stopped loses its place without anybody's doing; the version of the key is the
// revision at which the task came. A task that was stopped for longer finds its lease over when it
// goes on. Between these two moments it may believe that it has its place: therefore its writes are
// guarded by the version of its member key, and receivers of anything else compare revisions
// (CheckFence), or are told who is gone (membership_watch.cc) and refuse it.
//
// A process that finds its place taken cannot know whether the other one lives, or has died and its
// lease is not over yet. It asks, by a key that the other one watches; one that lives answers
// within a round trip, and is the reason for the refusal.
#include "tutti/net/coordination/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/net/coordination/membership_keys.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr double kShortestJobLease = 30;  // seconds
constexpr int64_t kLook = 50'000'000;     // between looks for a place that becomes free
// A place that the lease should have freed may be so a little late.
constexpr double kLeaseSlack = 3;
constexpr int kTries = 20;

// The first line in which the two texts differ.
std::string FirstDifference(std::string_view own, std::string_view other) {
  while (!own.empty() || !other.empty()) {
    const std::string_view here = own.substr(0, own.find('\n'));
    const std::string_view there = other.substr(0, other.find('\n'));
    if (here != there) {
      return fmt::format("{} here, {} there", here.empty() ? "nothing" : Printable(here),
                         there.empty() ? "nothing" : Printable(there));
    }
    own.remove_prefix(std::min(own.size(), here.size() + 1));
    other.remove_prefix(std::min(other.size(), there.size() + 1));
  }
  return {};
}

}  // namespace

Membership::Membership(MembershipOptions options) : options_(std::move(options)) {}

absl::StatusOr<std::unique_ptr<Membership>> Membership::Join(MembershipOptions options) {
  std::unique_ptr<Membership> made(new Membership(std::move(options)));
  const absl::Status joined = [&]() -> absl::Status {
    TUTTI_RETURN_IF_ERROR(made->TakeJobLease());
    TUTTI_RETURN_IF_ERROR(made->CompareFingerprint());
    TUTTI_RETURN_IF_ERROR(made->TakePlace());
    // Another task, with another cluster, may have come while this one had no place yet.
    TUTTI_RETURN_IF_ERROR(made->CompareFingerprint());
    TUTTI_RETURN_IF_ERROR(made->StartWatching());
    TUTTI_ASSIGN_OR_RETURN(made->thread_,
                           StartThread("the thread that keeps a task's place in its job",
                                       [membership = made.get()] { membership->KeepAlive(); }));
    return absl::OkStatus();
  }();
  if (!joined.ok()) {
    if (made->lease_ != 0) (void)made->options_.store->Revoke(made->lease_);
    made->lost_ = joined;  // it leaves nothing behind
    return WithPrefix(joined, fmt::format("{} cannot join the job: ", made->options_.task));
  }
  return made;
}

Membership::~Membership() { Leave(); }

void Membership::Leave() {
  bool failed = false;
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(stopping_, true)) return;
    failed = failed_;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  watch_.reset();
  {
    const std::lock_guard lock(mutex_);
    if (!lost_.ok()) return;
  }
  if (!failed) (void)Put(NameOf(kLeft, options_.task), fmt::format("{}", options_.incarnation));
  (void)options_.store->Revoke(lease_);
  const std::lock_guard lock(mutex_);
  lost_ = Cancelled("{} has left the job", options_.task);
  changed_.notify_all();
}

void Membership::Abandon(const absl::Status& why) {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = why;
  changed_.notify_all();
}

// Joining ----------------------------------------------------------------------------------------

absl::Status Membership::TakeJobLease() {
  const double seconds = std::max(kShortestJobLease, 4 * options_.lease_seconds);
  for (int i = 0; i < kTries; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(KeyOf(kLease)));
    if (found) {
      job_lease_ = found->lease;
      const absl::Status kept = options_.store->KeepAlive(job_lease_);
      if (!absl::IsNotFound(kept)) return kept;
      continue;  // it ended since, and so did its key
    }
    TUTTI_ASSIGN_OR_RETURN(job_lease_, options_.store->Grant(seconds));
    const auto put =
        options_.store->Put(KeyOf(kLease), options_.task, {.lease = job_lease_, .if_version = 0});
    if (put.ok()) return absl::OkStatus();
    (void)options_.store->Revoke(job_lease_);
    if (!absl::IsFailedPrecondition(put.status())) return put.status();
  }
  return Unavailable("the job's lease at {} ended {} times while it was taken", KeyOf(kLease),
                     kTries);
}

absl::Status Membership::CompareFingerprint() {
  std::string own;
  for (const std::string& line : options_.fingerprint) own += line + "\n";
  int64_t version = 0;
  std::string difference;
  for (int i = 0; i < kTries; ++i) {
    const auto put =
        options_.store->Put(KeyOf(kCluster), own, {.lease = job_lease_, .if_version = version});
    if (put.ok() || !absl::IsFailedPrecondition(put.status())) return put.status();
    TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(KeyOf(kCluster)));
    difference = found ? FirstDifference(own, found->value) : "";
    if (difference.empty()) return absl::OkStatus();
    // Of an earlier life of the job, whose tasks were elsewhere, only this key is left.
    TUTTI_ASSIGN_OR_RETURN(const Store::Range members, List(std::string(kMembers)));
    if (!members.entries.empty()) break;
    version = found->version;
  }
  return FailedPrecondition(
      "its members have another cluster: {}; all tasks must be given the same one, and jobs that "
      "share a store need names of their own",
      difference);
}

absl::Status Membership::TakePlace() {
  const std::string key = KeyOf(NameOf(kMembers, options_.task));
  const int64_t deadline = NowNanos() + int64_t((options_.lease_seconds + kLeaseSlack) * 1e9);
  int64_t asked = 0;
  while (true) {
    // The place may be waited for: the own lease lasts meanwhile, or is taken anew.
    if (lease_ == 0 || absl::IsNotFound(options_.store->KeepAlive(lease_))) {
      TUTTI_ASSIGN_OR_RETURN(lease_, options_.store->Grant(options_.lease_seconds));
    }
    const auto put =
        options_.store->Put(key, fmt::format("{} {}", options_.incarnation, options_.place),
                            {.lease = lease_, .if_version = 0});
    if (put.ok()) {
      revision_ = *put;
      break;
    }
    if (absl::IsNotFound(put.status())) continue;
    if (!absl::IsFailedPrecondition(put.status())) return put.status();
    if (options_.stopped != nullptr && options_.stopped()) return Cancelled("it was stopped");
    TUTTI_ASSIGN_OR_RETURN(const bool lives, HolderLives(&asked));
    TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(key));
    if (found && (lives || NowNanos() >= deadline)) {
      const Holder holder = ParseHolder(found->value);
      return AlreadyExists("{} is taken by another process, {} (incarnation {})", options_.task,
                           holder.place, holder.incarnation);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLook));
  }
  // What an earlier incarnation said of itself.
  for (const std::string_view kind : {kLeft, kFailed}) Delete(NameOf(kind, options_.task));
  if (asked != 0) Delete(NameOf(kQuestion, options_.task));
  return absl::OkStatus();
}

// Asks whoever has the place, the first time, and looks for the answer. `asked` is the revision of
// the question.
absl::StatusOr<bool> Membership::HolderLives(int64_t* asked) {
  const std::string key = KeyOf(NameOf(kQuestion, options_.task));
  if (*asked == 0) {
    TUTTI_ASSIGN_OR_RETURN(
        *asked,
        options_.store->Put(key, fmt::format("{} asks", options_.incarnation), {.lease = lease_}));
    return false;
  }
  TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(key));
  return found && found->version > *asked && found->value == kAnswered;
}

// Staying ----------------------------------------------------------------------------------------

void Membership::KeepAlive() {
  const auto pause = std::chrono::duration<double>(options_.lease_seconds / 4);
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait_for(lock, pause, [this] {
      return stopping_ || watch_ended_ || !lost_.ok() || asked_ || unseated_ || !suspects_.empty();
    });
    if (stopping_ || !lost_.ok()) return;
    const bool watch_again = std::exchange(watch_ended_, false);
    const bool asked = std::exchange(asked_, false);
    const std::vector<Suspect> suspects = std::exchange(suspects_, {});
    lock.unlock();
    absl::Status kept = CheckPlace();
    if (kept.ok() && asked) AnswerQuestion();
    for (const Suspect& suspect : suspects) EndLease(suspect);
    if (kept.ok() && watch_again) {
      watch_.reset();
      kept = StartWatching();
    }
    if (!kept.ok()) Lose(kept);
    lock.lock();
  }
}

absl::Status Membership::CheckPlace() {
  absl::Status kept = options_.store->KeepAlive(lease_);
  if (kept.ok()) kept = options_.store->KeepAlive(job_lease_);
  bool unseated = false;
  {
    const std::lock_guard lock(mutex_);
    unseated = unseated_;
  }
  if (!absl::IsNotFound(kept) && !(kept.ok() && unseated)) return kept;
  std::string_view how =
      "it gave no sign of life for {} s, or tasks that it was connected to have lost it, because "
      "it "
      "was stopped or cut off";
  const auto job = options_.store->Get(KeyOf(kLease));
  if (kept.ok()) {
    how = "its key is gone from the store, which was emptied or put back to an older state";
  } else if (job.ok() && !job->has_value()) {
    how =
        "it gave no sign of life for {} s, and neither did anybody else, or the store was emptied";
  }
  return Aborted("{} (incarnation {}) has lost its place: {}; what it does from here on is refused",
                 options_.task, options_.incarnation,
                 fmt::format(fmt::runtime(how), options_.lease_seconds));
}

void Membership::AnswerQuestion() {
  const std::string member = KeyOf(NameOf(kMembers, options_.task));
  (void)options_.store->Put(KeyOf(NameOf(kQuestion, options_.task)), std::string(kAnswered),
                            {.lease = lease_, .guard = {{member, revision_}}});
}

void Membership::ReportLost(const std::string& task, uint64_t incarnation) {
  const std::lock_guard lock(mutex_);
  suspects_.push_back({task, incarnation});
  changed_.notify_all();
}

// A lease belongs to one incarnation, so that nobody else can be hit.
void Membership::EndLease(const Suspect& suspect) {
  const auto found = options_.store->Get(KeyOf(NameOf(kMembers, suspect.task)));
  if (!found.ok() || !*found || ParseHolder((*found)->value).incarnation != suspect.incarnation) {
    return;
  }
  // One that was stopped finds all its connections broken, and itself the cause.
  if (!CheckFence(options_.task, revision_).ok()) return;
  (void)options_.store->Revoke((*found)->lease);
}

void Membership::Lose(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || !lost_.ok()) return;
    lost_ = why;
    changed_.notify_all();
  }
  if (options_.lost != nullptr) options_.lost(why);
}

absl::Status Membership::Standing() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// Writing ----------------------------------------------------------------------------------------

absl::Status Membership::Put(const std::string& name, std::string value) {
  const std::string member = KeyOf(NameOf(kMembers, options_.task));
  const auto put =
      options_.store->Put(KeyOf(name), std::move(value),
                          {.lease = job_lease_, .if_version = 0, .guard = {{member, revision_}}});
  if (!absl::IsFailedPrecondition(put.status())) return put.status();
  const absl::Status fenced = CheckFence(options_.task, revision_);
  return absl::IsFailedPrecondition(fenced) ? Aborted("{}", MessageOf(fenced)) : put.status();
}

void Membership::Delete(const std::string& name) { (void)options_.store->Delete(KeyOf(name)); }

absl::StatusOr<Store::Range> Membership::List(const std::string& prefix) const {
  TUTTI_ASSIGN_OR_RETURN(Store::Range range, options_.store->List(KeyOf(prefix)));
  for (StoreEntry& entry : range.entries) entry.key.erase(0, options_.root.size());
  return range;
}

void Membership::Fail(const absl::Status& why) {
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
    if (!failure_) failure_ = {options_.task, why};
  }
  (void)Put(NameOf(kFailed, options_.task), fmt::format("{} {}", why.raw_code(), MessageOf(why)));
}

void Membership::AskToStop(int signal) {
  const std::string member = KeyOf(NameOf(kMembers, options_.task));
  (void)options_.store->Put(KeyOf(NameOf(kStop, options_.task)), fmt::format("{}", signal),
                            {.lease = lease_, .guard = {{member, revision_}}});
}

uint64_t Membership::NextRound(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return rounds_[name]++;
}

}  // namespace tutti::net
