#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"
#include "tutti/topology/link_costs.h"

namespace tutti::collective {

// How long an operation would take, in seconds from the moment when every rank starts it.
struct Prediction {
  double seconds = 0;         // until the last rank is done
  double reduced = 0;         // until the last sum is made: the first of the phases; 0 if none is
  std::vector<double> ranks;  // until each rank is done
};

// A schedule, ready to be replayed in virtual time: made once for a schedule and its links, then
// asked for any number of sizes. What the model assumes is told at the head of cost.cc. Immutable
// and thread-safe.
//
//   TUTTI_ASSIGN_OR_RETURN(const Replay replay, Replay::Make(schedule, costs));
//   TUTTI_ASSIGN_OR_RETURN(const Prediction prediction, replay.Predict(64'000'000));
class Replay {
 public:
  // REQUIRES: Verify(schedule) is OK. INVALID_ARGUMENT if the costs are for another number of
  // ranks; FAILED_PRECONDITION if sends and receives do not pair up. `costs` is copied.
  static absl::StatusOr<Replay> Make(const Schedule& schedule, const topology::LinkCosts& costs);

  // For `bytes` of data in all, the K of the algorithms' essays: the whole vector in all-reduce,
  // reduce, broadcast and reduce-scatter; what all chunks hold together in the others, where chunks
  // are taken as equally large. FAILED_PRECONDITION if the schedule deadlocks.
  absl::StatusOr<Prediction> Predict(int64_t bytes) const;

  // The longest chain of messages, signals and memory steps, each of which waits for the one
  // before: Work::rounds, but linear in the number of steps and without the rest.
  int64_t Rounds() const;

 private:
  struct Compiled;
  class Run;
  explicit Replay(std::shared_ptr<const Compiled> program) : program_(std::move(program)) {}

  std::shared_ptr<const Compiled> program_;
};

// The same for one size.
absl::StatusOr<Prediction> PredictCost(const Schedule& schedule, const topology::LinkCosts& costs,
                                       int64_t bytes);

}  // namespace tutti::collective
