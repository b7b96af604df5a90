#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// The other end of every message: partners[r][i] is the number of the step, in the list of its
// peer, that takes what step i of rank r sends, or sends what it takes; -1 where step i is no
// message. FAILED_PRECONDITION names a step that has no other end.
absl::StatusOr<std::vector<std::vector<int32_t>>> MatchMessages(const Schedule& schedule);

// Is told what happens while a schedule is executed. Of everything that must happen before
// something else, it is told first.
class ExecutionObserver {
 public:
  virtual ~ExecutionObserver() = default;
  // A step starts: whatever it has to wait for is over.
  virtual void Started(int rank, int step) = 0;
  // A copy, a reduce or a memory step takes place, right after it started.
  virtual void Computed(int rank, int step) = 0;
  // A message goes from a send to a receive; both are over.
  virtual void Delivered(int from, int send, int to, int receive) = 0;
  // A signal is taken by an await.
  virtual void Awaited(int rank, int await, int from, int signal) = 0;
};

// Runs the schedule with symbols in place of bytes, on the machine on which it is easiest to get
// stuck: a rank's steps start strictly in the order of its list, and a message moves only when both
// its send and its receive have started, as large messages do that wait at the sender. What runs
// here to the end, runs on every machine that keeps the order rules.
//
// FAILED_PRECONDITION where some steps can never run: names the steps that wait for each other.
// REQUIRES: CheckSchedule(schedule) is OK.
absl::Status Execute(const Schedule& schedule, ExecutionObserver& observer);

// "rank 2, step 7 (send 1 0)"
std::string Describe(const Schedule& schedule, int rank, int step);

}  // namespace tutti::collective
