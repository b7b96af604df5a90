#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/graph/attr.h"
#include "tutti/train/optimizers/optimizer.h"

// The optimizers. The formulas are in graph/ops/update.h, where the updates themselves are ops;
// each has a form for rows, which changes only the rows that a gradient names. Every constructor
// throws Error for a parameter out of its range.
namespace tutti {

// How an update op of graph/ops/update_table.h is used: its slots, in the op's order, as names of
// variables with their first values, and its hyper-parameters.
struct SlotRule {
  std::string name;
  double initial = 0;
};
struct UpdateRecipe {
  std::string op;  // of the dense update, "ApplyAdam"
  std::vector<SlotRule> slots = {};
  AttrList attrs = {};
};

// An optimizer that adds one op of the table for each variable. What distinguishes the optimizers
// below is their recipe.
class TableOptimizer : public Optimizer {
 public:
  TableOptimizer(LearningRate learning_rate, UpdateRecipe recipe)
      : Optimizer(std::move(learning_rate)), recipe_(std::move(recipe)) {}

 protected:
  Output Update(const UpdateContext& context) const override;

 private:
  UpdateRecipe recipe_;
};

struct SgdConfig {
  LearningRate learning_rate = 0.01;
};
class Sgd : public TableOptimizer {
 public:
  explicit Sgd(const SgdConfig& config = {});
};

struct MomentumConfig {
  LearningRate learning_rate = 0.01;
  double momentum = 0.9;
  bool nesterov = false;
};
// Slot "momentum".
class Momentum : public TableOptimizer {
 public:
  explicit Momentum(const MomentumConfig& config = {});
};

struct AdagradConfig {
  LearningRate learning_rate = 0.01;
  double initial_sum = 0;  // of the squares; more than 0 tames the first steps
  double epsilon = 1e-10;
};
// Slot "square_sum".
class Adagrad : public TableOptimizer {
 public:
  explicit Adagrad(const AdagradConfig& config = {});
};

struct RMSPropConfig {
  LearningRate learning_rate = 1e-3;
  double rho = 0.9;
  double momentum = 0;
  double epsilon = 1e-8;
};
// Slot "square_mean", and "momentum" when there is one.
class RMSProp : public TableOptimizer {
 public:
  explicit RMSProp(const RMSPropConfig& config = {});
};

struct AdamConfig {
  LearningRate learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
// Slots "m" and "v".
class Adam : public TableOptimizer {
 public:
  explicit Adam(const AdamConfig& config = {});
};

struct AdamWConfig {
  LearningRate learning_rate = 1e-3;
  double weight_decay = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
};
// Adam with weight decay that does not pass through the moments. Slots "m" and "v".
class AdamW : public TableOptimizer {
 public:
  explicit AdamW(const AdamWConfig& config = {});
};

struct FtrlConfig {
  LearningRate learning_rate = 0.1;
  double l1 = 0;
  double l2 = 0;
  double beta = 1;
};
// Slots "n" and "z".
class Ftrl : public TableOptimizer {
 public:
  explicit Ftrl(const FtrlConfig& config = {});
};

}  // namespace tutti
