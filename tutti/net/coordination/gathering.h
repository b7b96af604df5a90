#pragma once

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/coordination/membership.h"

// What members of a job do together, over its store: rare and small (a value is at most 1 MB). All
// tasks of the job call the same function with the same name, as often. Each waits for the others
// while they live, at most `seconds`:
//
//   UNAVAILABLE        a task is gone that has not come here, or failed: which, and how
//   DEADLINE_EXCEEDED  who is alive and late
//   ABORTED            this task has lost its place
//
// A restarted task cannot take part in a round that its previous process has entered:
// FAILED_PRECONDITION.
namespace tutti::net {

// The values of all tasks, by task.
absl::StatusOr<std::map<std::string, std::string>> Gather(Membership& membership,
                                                          const std::string& name, std::string own,
                                                          double seconds);
// Returns when all have come.
absl::Status Barrier(Membership& membership, const std::string& name, double seconds);
// The value of the task `from`, which is the only one whose `own` counts; it does not wait.
absl::StatusOr<std::string> Broadcast(Membership& membership, const std::string& name,
                                      const std::string& from, std::string own, double seconds);

}  // namespace tutti::net
