#pragma once

#include <cstdint>

#include "tutti/client/session.h"
#include "tutti/data/dataset.h"
#include "tutti/train/estimator/batch_inputs.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/metrics/metric_states.h"

namespace tutti {

// A model in Mode::kEvaluate, with variables of its own or on those of its training.
class Evaluation {
 public:
  // Builds it into `graph`. With `reuse` the model was built there before, to be trained. Throws
  // Error.
  Evaluation(Graph& graph, const ModelFunction& model, const Dataset& dataset, bool reuse);

  // What Run gives, by name.
  std::vector<std::string> MetricNames() const { return metrics_.names(); }

  // Loss and metrics over the parts that the workers have of `dataset`, up to `max_steps`
  // batches where that is not 0. All workers call it. Throws Error: kCancelled after a stop
  // (train/stop.h) of any worker. Where the loss of a worker does not end the job, the others
  // evaluate its part as well.
  Metrics Run(Session& session, const Dataset& dataset, int64_t max_steps, Peers& peers) const;

 private:
  // Adds the batches of `dataset` to `states`. Returns how many samples they had; -1: stopped.
  int64_t AddBatches(Session& session, const Dataset& dataset, int64_t max_steps,
                     MetricStates& states) const;

  BatchInputs inputs_;
  MetricStates metrics_;  // the loss among them; empty states
};

}  // namespace tutti
