#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "tutti/client/session.h"
#include "tutti/data/dataset.h"
#include "tutti/train/estimator/estimator.h"

namespace tutti {

// A model in Mode::kPredict: from columns of a batch to predictions.
class Prediction {
 public:
  // Builds it into `graph`, for batches of `dataset`. With `reuse` the model was built there
  // before. Throws Error.
  Prediction(Graph& graph, const ModelFunction& model, const Dataset& dataset, bool reuse);

  // The predictions for all samples of `dataset`, in its order, joined along dimension 0. Throws
  // Error, also when the dataset repeats for ever.
  Columns Run(Session& session, const Dataset& dataset) const;

  // The columns that the predictions depend on, and the predictions.
  const std::map<std::string, Output>& inputs() const { return inputs_; }
  const std::map<std::string, Output>& outputs() const { return outputs_; }

 private:
  std::map<std::string, Output> inputs_;
  std::map<std::string, Output> outputs_;
};

// The columns of all batches in one: each a tensor of its own.
Columns JoinRows(const std::vector<Columns>& batches);

}  // namespace tutti
