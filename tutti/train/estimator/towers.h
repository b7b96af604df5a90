#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "tutti/train/estimator/batch_inputs.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/optimizers/optimizer.h"

namespace tutti {

// Builds the model on `device` for training, with inputs of its own, which are appended. The first
// tower makes the variables, the others use them.
ModelSpec BuildTower(Graph& graph, const ModelFunction& model, const Columns& example,
                     std::string_view device, std::vector<BatchInputs>& inputs);

// What the towers of a process are together.
struct Towers {
  Output loss;                  // the mean over the samples of all towers
  Output samples;               // their number, float32
  std::vector<Output> weights;  // the share of each tower in the samples; empty for a single one

  // The changes of moving averages, those of all towers for one variable joined into their mean.
  std::vector<StateChange> Join(std::span<const StateChange> of_towers) const;
};
Towers JoinTowers(std::span<const BatchInputs> inputs, std::span<const Output> losses);

}  // namespace tutti
