// The keys of a job, behind its root:
//
//   lease                        the job's lease, which all members keep alive
//   cluster                      the fingerprint of whoever came first
//   members/job:worker/task:1    "INCARNATION PLACE", under the member's own lease
//   left/job:worker/task:1       "INCARNATION", of one that left in good order
//   failed/job:worker/task:1     why
//   gather/...                   see gathering.cc
//
// All but members go with the job's lease: some time after the last member nothing is left. A key
// that stands for a member goes with the member's lease, so that a task that dies or is stopped
// loses its place without anybody's doing; the version of the key is the revision at which the task
// came. A task that was stopped for longer finds its lease over when it goes on. Between these two
// moments it may believe that it has its place: therefore its writes are guarded by the version of
// its member key, and receivers of anything else compare revisions (CheckFence).
#include "tutti/net/coordination/membership.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/wire.h"

namespace tutti::net {
namespace {

constexpr const char* kLease = "lease";
constexpr const char* kCluster = "cluster";
constexpr std::string_view kMembers = "members";
constexpr std::string_view kLeft = "left";
constexpr std::string_view kFailed = "failed";
constexpr double kShortestJobLease = 30;  // seconds
constexpr int64_t kLook = 50'000'000;     // between looks for a place that becomes free
// A place that the lease should have freed may be so a little late.
constexpr double kLeaseSlack = 3;
constexpr int kTries = 20;

std::string NameOf(std::string_view kind, std::string_view task) {
  return fmt::format("{}{}", kind, task);
}

struct Holder {
  uint64_t incarnation = 0;
  std::string place;
};

Holder ParseHolder(std::string_view value) {
  Holder holder;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), holder.incarnation);
  if (error != std::errc()) return {0, Printable(value)};
  const size_t used = size_t(end - value.data());
  holder.place = Printable(value.substr(std::min(value.size(), used + 1)));
  return holder;
}

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
    return made->StartWatching();
  }();
  if (!joined.ok()) {
    if (made->lease_ != 0) (void)made->options_.store->Revoke(made->lease_);
    made->failed_ = true;  // it leaves nothing behind
    return WithPrefix(joined, fmt::format("{} cannot join the job: ", made->options_.task));
  }
  made->thread_ = std::thread([membership = made.get()] { membership->KeepAlive(); });
  return made;
}

Membership::~Membership() {
  bool leave = false;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    leave = !failed_ && lost_.ok();
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  watch_.reset();
  if (leave && revision_ != 0) {
    (void)Put(NameOf(kLeft, options_.task), fmt::format("{}", options_.incarnation));
  }
  if (lost_.ok() && lease_ != 0 && revision_ != 0) (void)options_.store->Revoke(lease_);
}

void Membership::Abandon() {
  const std::lock_guard lock(mutex_);
  if (lost_.ok()) lost_ = Unavailable("the coordinator is gone");
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
  const auto put =
      options_.store->Put(KeyOf(kCluster), own, {.lease = job_lease_, .if_version = 0});
  if (put.ok() || !absl::IsFailedPrecondition(put.status())) return put.status();
  TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(KeyOf(kCluster)));
  const std::string difference = found ? FirstDifference(own, found->value) : "";
  if (difference.empty()) return absl::OkStatus();
  return FailedPrecondition(
      "its members have another cluster: {}; all tasks must be given the same one, and jobs that "
      "share a store need names of their own",
      difference);
}

absl::Status Membership::TakePlace() {
  const std::string key = KeyOf(NameOf(kMembers, options_.task));
  const int64_t deadline = NowNanos() + int64_t((options_.lease_seconds + kLeaseSlack) * 1e9);
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
    TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(key));
    if (options_.stopped != nullptr && options_.stopped()) return Cancelled("it was stopped");
    if (found && NowNanos() >= deadline) {
      const Holder holder = ParseHolder(found->value);
      return AlreadyExists("{} is taken by another process, {} (incarnation {})", options_.task,
                           holder.place, holder.incarnation);
    }
    std::this_thread::sleep_for(std::chrono::nanoseconds(kLook));
  }
  // What an earlier incarnation said of itself.
  for (const std::string_view kind : {kLeft, kFailed}) Delete(NameOf(kind, options_.task));
  return absl::OkStatus();
}

absl::Status Membership::StartWatching() {
  TUTTI_ASSIGN_OR_RETURN(const Store::Range range, List(""));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Member> members, MembersOf(range));
  {
    const std::lock_guard lock(mutex_);
    for (const Member& member : members) known_[member.task] = {member.place};
    ++changes_;
    watch_ended_ = false;
    changed_.notify_all();
  }
  TUTTI_ASSIGN_OR_RETURN(watch_,
                         options_.store->StartWatch(
                             options_.root, range.revision + 1,
                             [this](std::span<const StoreEvent> events) { OnEvents(events); },
                             [this](const absl::Status&) {
                               // The thread that keeps the lease alive starts another.
                               const std::lock_guard lock(mutex_);
                               watch_ended_ = true;
                               changed_.notify_all();
                             }));
  return absl::OkStatus();
}

// Staying ----------------------------------------------------------------------------------------

void Membership::OnEvents(std::span<const StoreEvent> events) {
  std::vector<std::pair<std::string, bool>> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const StoreEvent& event : events) {
      std::string_view name = std::string_view(event.entry.key).substr(options_.root.size());
      const bool put = event.kind == StoreEvent::Kind::kPut;
      if (name.starts_with(kMembers)) {
        name.remove_prefix(kMembers.size());
        Known& known = known_[std::string(name)];
        if (put) {
          known = {ParseHolder(event.entry.value).place};
        } else if (known.gone.empty()) {
          known.gone = fmt::format("is lost: it was at {}", known.place);
          gone.emplace_back(name, false);
        }
      } else if (put && name.starts_with(kLeft)) {
        name.remove_prefix(kLeft.size());
        known_[std::string(name)].gone = "left in good order";
        gone.emplace_back(name, true);
      } else if (put && name.starts_with(kFailed)) {
        name.remove_prefix(kFailed.size());
        known_[std::string(name)].gone = "failed: " + Printable(event.entry.value, 1024);
        gone.emplace_back(name, false);
      }
    }
    ++changes_;
    changed_.notify_all();
  }
  if (options_.gone == nullptr) return;
  for (const auto& [task, in_good_order] : gone) {
    if (task != options_.task) options_.gone(task, in_good_order);
  }
}

void Membership::KeepAlive() {
  const auto pause = std::chrono::duration<double>(options_.lease_seconds / 4);
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    changed_.wait_for(lock, pause, [this] { return stopping_ || watch_ended_ || !lost_.ok(); });
    if (stopping_ || !lost_.ok()) return;
    const bool watch_again = std::exchange(watch_ended_, false);
    lock.unlock();
    absl::Status kept = options_.store->KeepAlive(lease_);
    if (kept.ok()) kept = options_.store->KeepAlive(job_lease_);
    if (kept.ok() && watch_again) {
      watch_.reset();
      kept = StartWatching();
    }
    if (absl::IsNotFound(kept)) {
      kept = Aborted(
          "{} (incarnation {}) has lost its place: it gave no sign of life for {} s, because it "
          "was stopped or cut off; what it does from here on is refused",
          options_.task, options_.incarnation, options_.lease_seconds);
    }
    if (!kept.ok()) Lose(kept);
    lock.lock();
  }
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

// Looking ----------------------------------------------------------------------------------------

absl::StatusOr<std::vector<Member>> Membership::MembersOf(const Store::Range& range) const {
  std::vector<Member> members;
  for (const StoreEntry& entry : range.entries) {
    std::string_view name = entry.key;
    if (!name.starts_with(kMembers)) continue;
    name.remove_prefix(kMembers.size());
    Holder holder = ParseHolder(entry.value);
    members.push_back(
        {std::string(name), holder.incarnation, std::move(holder.place), entry.version});
  }
  return members;
}

absl::StatusOr<std::vector<Member>> Membership::Members() const {
  TUTTI_ASSIGN_OR_RETURN(const Store::Range range, List(std::string(kMembers)));
  return MembersOf(range);
}

absl::Status Membership::CheckFence(const std::string& task, int64_t revision) const {
  TUTTI_ASSIGN_OR_RETURN(const auto found, options_.store->Get(KeyOf(NameOf(kMembers, task))));
  if (found && found->version == revision) return absl::OkStatus();
  if (!found) return FailedPrecondition("{} has no place in the job any more", task);
  return FailedPrecondition("{} came anew at revision {}; what came at {} is fenced off", task,
                            found->version, revision);
}

std::map<std::string, std::string> Membership::Missing(const std::vector<Member>& members) const {
  std::map<std::string, std::string> missing;
  const std::lock_guard lock(mutex_);
  for (const std::string& task : options_.tasks) {
    const auto is_it = [&](const Member& member) { return member.task == task; };
    if (std::any_of(members.begin(), members.end(), is_it)) continue;
    const auto known = known_.find(task);
    missing[task] = known == known_.end()        ? "has not come"
                    : known->second.gone.empty() ? "is lost: it was at " + known->second.place
                                                 : known->second.gone;
  }
  return missing;
}

absl::StatusOr<bool> Membership::AwaitChange(int64_t deadline,
                                             const std::function<absl::StatusOr<bool>()>& look) {
  while (true) {
    uint64_t seen = 0;
    {
      const std::lock_guard lock(mutex_);
      if (!lost_.ok()) return lost_;
      seen = changes_;
    }
    TUTTI_ASSIGN_OR_RETURN(const bool done, look());
    if (done) return true;
    std::unique_lock lock(mutex_);
    const int64_t now = NowNanos();
    if (now >= deadline) return false;
    changed_.wait_for(lock, std::chrono::nanoseconds(deadline - now),
                      [&] { return changes_ != seen || !lost_.ok(); });
  }
}

absl::Status Membership::AwaitAll(double seconds) {
  std::map<std::string, std::string> missing;
  TUTTI_ASSIGN_OR_RETURN(
      const bool all,
      AwaitChange(NowNanos() + int64_t(seconds * 1e9), [&]() -> absl::StatusOr<bool> {
        TUTTI_ASSIGN_OR_RETURN(const auto members, Members());
        missing = Missing(members);
        return missing.empty();
      }));
  if (all) return absl::OkStatus();
  std::string list;
  for (const auto& [task, why] : missing) list += fmt::format("; {} {}", task, why);
  return DeadlineExceeded("{} of {} tasks are missing after {} s{}", missing.size(),
                          options_.tasks.size(), seconds, list);
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

void Membership::Fail(const std::string& why) {
  {
    const std::lock_guard lock(mutex_);
    failed_ = true;
  }
  (void)Put(NameOf(kFailed, options_.task), why);
}

absl::StatusOr<std::optional<Membership::Failure>> Membership::FirstFailure() const {
  TUTTI_ASSIGN_OR_RETURN(const Store::Range range, List(std::string(kFailed)));
  const auto first = std::min_element(
      range.entries.begin(), range.entries.end(),
      [](const StoreEntry& a, const StoreEntry& b) { return a.created < b.created; });
  if (first == range.entries.end()) return std::nullopt;
  return Failure{first->key.substr(kFailed.size()), Printable(first->value, 1024)};
}

uint64_t Membership::NextRound(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return rounds_[name]++;
}

}  // namespace tutti::net
