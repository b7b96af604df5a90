// How a member learns about the other members. The store reports every change of the job's keys, in
// order, so all members see the same departures in the same order. If a watch fails, a new one
// starts from a list of all keys; differences from the known state are handled like watched
// changes.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/membership.h"
#include "tutti/net/coordination/membership_keys.h"
#include "tutti/net/wire.h"

namespace tutti::net {

absl::Status Membership::StartWatching() {
  TUTTI_ASSIGN_OR_RETURN(const Store::Range range, options_.store->List(options_.root));
  OnEvents(Differences(range));
  {
    const std::lock_guard lock(mutex_);
    watch_ended_ = false;
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

// The changes between the known state and `range`. Departures from before this task joined are left
// out: they belong to an earlier run of the job.
std::vector<StoreEvent> Membership::Differences(const Store::Range& range) const {
  std::vector<StoreEvent> ends, departures, arrivals;
  std::set<std::string, std::less<>> there;
  for (const StoreEntry& entry : range.entries) {
    std::string_view name = std::string_view(entry.key).substr(options_.root.size());
    if (name.starts_with(kMembers)) {
      arrivals.push_back({StoreEvent::Kind::kPut, entry});
      there.emplace(name.substr(kMembers.size()));
    } else if ((name.starts_with(kLeft) || name.starts_with(kFailed) || name.starts_with(kStop)) &&
               entry.version > revision_) {
      ends.push_back({StoreEvent::Kind::kPut, entry});
    }
  }
  const std::lock_guard lock(mutex_);
  for (const auto& [task, known] : known_) {
    if (!known.gone.ok() || there.contains(task)) continue;
    departures.push_back(
        {StoreEvent::Kind::kDelete, {.key = KeyOf(NameOf(kMembers, task)), .value = {}}});
  }
  ends.insert(ends.end(), departures.begin(), departures.end());
  ends.insert(ends.end(), arrivals.begin(), arrivals.end());
  return ends;
}

void Membership::OnEvents(std::span<const StoreEvent> events) {
  std::vector<Departure> gone;
  {
    const std::lock_guard lock(mutex_);
    for (const StoreEvent& event : events) {
      std::string_view name = std::string_view(event.entry.key).substr(options_.root.size());
      const bool put = event.kind == StoreEvent::Kind::kPut;
      if (name.starts_with(kMembers)) {
        OnMember(name.substr(kMembers.size()), event, &gone);
      } else if (put && name.starts_with(kLeft)) {
        Depart(name.substr(kLeft.size()), Departure::How::kLeft, Cancelled("left in good order"),
               &gone);
      } else if (put && name.starts_with(kFailed)) {
        const std::string_view task = name.substr(kFailed.size());
        const absl::Status why = ParseFailure(event.entry.value);
        if (!failure_ && event.entry.version > revision_) failure_ = {std::string(task), why};
        Depart(task, Departure::How::kFailed, why, &gone);
      } else if (put && name.starts_with(kStop)) {
        const int signal = ParseSignal(event.entry.value);
        if (!stop_request_ && signal != 0) {
          stop_request_ = {std::string(name.substr(kStop.size())), signal};
        }
      } else if (put && name == NameOf(kQuestion, options_.task)) {
        asked_ = asked_ || event.entry.value != kAnswered;
      }
    }
    ++changes_;
    changed_.notify_all();
  }
  if (options_.gone == nullptr) return;
  for (const Departure& departure : gone) {
    if (departure.task != options_.task) options_.gone(departure);
  }
}

// REQUIRES: mutex_ is held, here and below.
void Membership::OnMember(std::string_view task, const StoreEvent& event,
                          std::vector<Departure>* gone) {
  const bool put = event.kind == StoreEvent::Kind::kPut;
  if (task == options_.task && (!put || event.entry.version != revision_)) {
    unseated_ = true;
    return;
  }
  Known& known = known_[std::string(task)];
  const bool another = put && known.revision != event.entry.version;
  if (known.incarnation != 0 && (!put || another)) {
    Depart(task, Departure::How::kLost, Unavailable("is lost: it was at {}", known.place), gone);
  }
  if (!another) return;
  Holder holder = ParseHolder(event.entry.value);
  known = {holder.incarnation, event.entry.version, std::move(holder.place)};
}

void Membership::Depart(std::string_view task, Departure::How how, const absl::Status& why,
                        std::vector<Departure>* gone) {
  Known& known = known_[std::string(task)];
  if (!known.gone.ok()) return;
  known.gone = how == Departure::How::kFailed ? WithPrefix(why, "failed: ") : why;
  gone->push_back({std::string(task), known.incarnation, how, why});
}

// Looking ----------------------------------------------------------------------------------------

Membership::View Membership::ViewOf(const std::string& task) const {
  const std::lock_guard lock(mutex_);
  const auto known = known_.find(task);
  if (known == known_.end()) return {};
  return {known->second.incarnation, known->second.revision, known->second.gone};
}

std::optional<Membership::Failure> Membership::KnownFailure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Membership::StopRequest> Membership::KnownStopRequest() const {
  const std::lock_guard lock(mutex_);
  return stop_request_;
}

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
    missing[task] = known == known_.end()     ? "has not come"
                    : known->second.gone.ok() ? "is lost: it was at " + known->second.place
                                              : std::string(MessageOf(known->second.gone));
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

absl::StatusOr<std::optional<Membership::Failure>> Membership::FirstFailure() const {
  TUTTI_ASSIGN_OR_RETURN(const Store::Range range, List(std::string(kFailed)));
  const auto first = std::min_element(
      range.entries.begin(), range.entries.end(),
      [](const StoreEntry& a, const StoreEntry& b) { return a.created < b.created; });
  if (first == range.entries.end()) return std::nullopt;
  return Failure{first->key.substr(kFailed.size()), ParseFailure(first->value)};
}

}  // namespace tutti::net
