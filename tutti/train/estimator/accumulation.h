#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tutti/data/dataset.h"
#include "tutti/train/optimizers/optimizer.h"
#include "tutti/train/strategies/strategy.h"

namespace tutti {

// Gradient accumulation: the samples of an update pass in parts, one after the other, so that the
// memory is that of one part. All parts but the last only add their gradients up, in this worker;
// the last one adds what was kept to its own, and is the only one that reaches other workers.
struct Accumulation {
  const Node* add = nullptr;    // the step of every part but the last
  const Node* clear = nullptr;  // to run with the update: forgets what was kept
  WorkerStep step;              // all parts together, as the last one sees them
  Output differentiated;        // as Strategy::Differentiated: of all parts together
  // Variables whose gradients are rows, and the rows that any part has named. What is kept of them
  // is dense; ToRows makes rows of it again, so that the update leaves other rows alone.
  struct NamedRows {
    Output variable;
    Output indices;
  };
  std::vector<NamedRows> rows;
  void ToRows(std::vector<GradientAndVariable>& list) const;
};

// Builds it. `part` is what one part brings; `variables` are those that are trained.
Accumulation BuildAccumulation(const WorkerStep& part, const Strategy& strategy,
                               const Optimizer& optimizer, std::span<const Output> variables);

// The rows of `batch` in so many parts of sizes that differ by at most 1; views.
std::vector<Minibatch> SplitBatch(const Minibatch& batch, int64_t parts);

}  // namespace tutti
