#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/client/session.h"

namespace tutti {

// The global steps of one training: [first, end).
struct StepRange {
  int64_t first = 0;
  int64_t end = 0;
};

struct StepResult {
  int64_t step = 0;        // the global step after this one
  double loss = 0;         // of all workers in lockstep, else of this one
  double samples = 0;      // the same
  bool stop = false;       // some worker asks for an end
  std::string bad = {};    // the gradient of this worker that was not finite: a variable's name
  int64_t staleness = -1;  // updates between its read and its own update; -1: not counted
  bool dropped = false;    // the update was made without this worker's gradient
};

// How far a training has come.
struct StepsMade {
  int64_t step = 0;     // the global step
  int64_t batches = 0;  // of this training
};

// What a step is given.
struct StepCall {
  std::span<const Feed> feeds;
  // Additional outputs to fetch, which must not depend on other workers, and where to put them.
  std::span<const Output> fetches = {};
  std::span<Tensor> results = {};
  RunTrace* trace = nullptr;  // unless null, filled

  RunOptions options() const { return {.trace = trace != nullptr, .trace_result = trace}; }
};

// Runs the steps of one worker. The only interface through which the Estimator and other training
// loops run a strategy's step:
//
//   for (int64_t batch; (batch = driver.NextBatch()) >= 0;) driver.Run({.feeds = FeedsOf(batch)});
//
// Every method throws Error. Not thread-safe.
class StepDriver {
 public:
  virtual ~StepDriver() = default;

  // The number of the batch for the next step, counted from the beginning of this training; a
  // worker in lockstep takes its slice of it. -1 when there are no more steps to make.
  virtual int64_t NextBatch() = 0;
  // Makes the step with that batch.
  virtual StepResult Run(const StepCall& call) = 0;
  // This worker runs no more steps, so the others do not wait for it. The destructor calls it, too.
  virtual void Leave() {}

  // How far the training has come; `own` is what this worker has seen of it. To be called when all
  // workers have left: others may have made the last steps.
  virtual StepsMade Made(const StepsMade& own) { return own; }

  // Facts about this worker for the report at the end: {"dropped", "3"}.
  virtual std::vector<std::pair<std::string, std::string>> Report() const { return {}; }
};

}  // namespace tutti
