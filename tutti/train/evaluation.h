#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/data/dataset.h"
#include "tutti/train/batch_inputs.h"
#include "tutti/train/estimator.h"

namespace tutti {

namespace collective {
class Communicator;
}

// A model in Mode::kEvaluate, on the variables of its training.
class Evaluation {
 public:
  // Builds it into `graph`, where the model was built to be trained before. Throws Error.
  Evaluation(Graph& graph, const ModelFunction& model, const Dataset& dataset);

  // Means of loss and metrics over this worker's part of `dataset`, or, with a communicator, over
  // the parts of all workers, which call it alike. Throws Error.
  Metrics Run(Session& session, const Dataset& dataset,
              collective::Communicator* communicator) const;

 private:
  BatchInputs inputs_;
  std::vector<std::string> names_;
  std::vector<Output> values_;  // means over the batch
};

}  // namespace tutti
