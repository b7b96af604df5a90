// Round n of a name is the keys gather/NAME/n/TASK. A task puts its own and waits for the others'.
// When it has seen all of round n, everybody has ended round n-1, because tasks make their calls
// one after the other; so it deletes its own key of that round. A broadcast has one key a round,
// which goes with the job: nobody tells the sender that all have read it.
#include "tutti/net/coordination/gathering.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {
namespace {

// Waits for the keys of `tasks` below `prefix`.
absl::StatusOr<std::map<std::string, std::string>> Await(Membership& membership,
                                                         const std::string& what,
                                                         const std::string& prefix,
                                                         const std::vector<std::string>& tasks,
                                                         double seconds) {
  std::map<std::string, std::string> values;
  std::vector<std::string> late;
  const auto look = [&]() -> absl::StatusOr<bool> {
    // The name of a task begins with a slash.
    TUTTI_ASSIGN_OR_RETURN(Store::Range range, membership.List(prefix + "/"));
    values.clear();
    for (StoreEntry& entry : range.entries) {
      values[entry.key.substr(prefix.size())] = std::move(entry.value);
    }
    late.clear();
    for (const std::string& task : tasks) {
      if (!values.contains(task)) late.push_back(task);
    }
    if (late.empty()) return true;
    TUTTI_ASSIGN_OR_RETURN(const auto failure, membership.FirstFailure());
    if (failure)
      return Unavailable("{}: {} failed: {}", what, failure->task, MessageOf(failure->why));
    TUTTI_ASSIGN_OR_RETURN(const std::vector<Member> members, membership.Members());
    for (const auto& [task, why] : membership.Missing(members)) {
      // One that has not come to the job yet may come.
      if (why == "has not come" || std::find(late.begin(), late.end(), task) == late.end())
        continue;
      return Unavailable("{}: {} {}", what, task, why);
    }
    return false;
  };
  TUTTI_ASSIGN_OR_RETURN(
      const bool all,
      membership.AwaitChange(NowNanos() + static_cast<int64_t>(seconds * 1e9), look));
  if (!all) return DeadlineExceeded("{}: waited {} s for {}", what, seconds, fmt::join(late, ", "));
  return values;
}

}  // namespace

absl::StatusOr<std::map<std::string, std::string>> Gather(Membership& membership,
                                                          const std::string& name, std::string own,
                                                          double seconds) {
  const uint64_t round = membership.NextRound("gather/" + name);
  const std::string what = fmt::format("gather \"{}\"", name);
  const std::string prefix = fmt::format("gather/{}/{}", name, round);
  TUTTI_RETURN_IF_ERROR(
      WithPrefix(membership.Put(prefix + membership.task(), std::move(own)), what + ": "));
  auto values = Await(membership, what, prefix, membership.tasks(), seconds);
  if (values.ok() && round > 0) {
    membership.Delete(fmt::format("gather/{}/{}{}", name, round - 1, membership.task()));
  }
  return values;
}

absl::Status Barrier(Membership& membership, const std::string& name, double seconds) {
  return Gather(membership, "barrier " + name, "", seconds).status();
}

absl::StatusOr<std::string> Broadcast(Membership& membership, const std::string& name,
                                      const std::string& from, std::string own, double seconds) {
  const std::string what = fmt::format("broadcast \"{}\"", name);
  const std::string prefix =
      fmt::format("broadcast/{}/{}", name, membership.NextRound("broadcast/" + name));
  if (membership.task() == from) {
    TUTTI_RETURN_IF_ERROR(WithPrefix(membership.Put(prefix + from, own), what + ": "));
    return own;
  }
  TUTTI_ASSIGN_OR_RETURN(auto values, Await(membership, what, prefix, {from}, seconds));
  return std::move(values[from]);
}

}  // namespace tutti::net
