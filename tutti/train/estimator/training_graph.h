#pragma once

#include <string_view>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/train/estimator/agreement.h"
#include "tutti/train/estimator/batch_inputs.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/estimator/model.h"
#include "tutti/train/run_config.h"

namespace tutti {

// What a training step needs of its graph: placeholders for the columns of a batch, the model built
// on them, and the strategy's nodes between gradients and updates.
struct TrainingGraph {
  std::vector<BatchInputs> inputs;   // of each tower (Strategy::Devices)
  Output stop;                       // placeholder: 1 to ask for an end after this step, else 0
  ModelSpec spec;                    // its loss is the mean over all towers
  StepNodes nodes;                   // what the strategy and the optimizer made of it
  const Node* accumulate = nullptr;  // for every part of an update's samples but the last
  // What log and summaries may show: float32 scalars; the norm only where it is asked for.
  Output learning_rate;
  Output gradient_norm;
  // Before clipping: of the mean over all workers' samples, or, where the update is a run of its
  // own (ps strategies), over those of this worker.
  std::vector<GradientAndVariable> gradients;
  int64_t model_nodes = 0;  // the nodes of the graph that the model function has made, or before it

  // Adds what feeds the towers with `batch`.
  void Feed(const Minibatch& batch, int64_t global_batch, std::vector<tutti::Feed>& feeds) const;
};

// Builds it into `graph`, for batches of `dataset`. Throws Error.
// `order` is that of the checkpoint to go on from, or empty.
TrainingGraph BuildTraining(Graph& graph, const ModelFunction& model, const RunConfig& config,
                            const Dataset& dataset, const SumOrder& order = {});

// What all workers must have alike before they work together: what the model is, and what it is
// given.
std::vector<Fact> ModelFacts(const Graph& graph, const RunConfig& config, std::string_view how);
std::vector<Fact> DataFacts(const Dataset& dataset, int64_t max_steps);

}  // namespace tutti
