#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/train/optimizers/gradient_list.h"
#include "tutti/train/optimizers/learning_rate.h"

namespace tutti {

// The count of updates that were made: the int64 variable "global_step" of the graph, made at the
// first call.
Output GlobalStep(Graph& graph);

// What one update is made from.
struct UpdateContext {
  Output variable;
  GradientValue gradient;  // dense, or rows
  Output scale;            // as in GradientAndVariable; may be empty
  Output learning_rate;    // float32 scalar
  Output step;             // int64 scalar: the number of this update, from 1 on

  // The variable "<variable>/<name>", of its type and shape and on its device, made at the first
  // call with `initial` everywhere. Not trainable.
  Output Slot(std::string_view name, double initial = 0) const;
};

// What a step subtracts from a moving average of a layer.
struct StateChange {
  Output variable;
  Output change;
};

struct ApplyOptions {
  bool count_step = true;  // add 1 to the global step
  // Unless null, receives the global step after the update, which is then counted after all
  // variables have changed.
  Output* counted = nullptr;
  // The list that Gradients returned. Needed to find the layers whose moving averages to update if
  // the applied gradients do not depend on those layers in the graph, as after an accumulator.
  // Empty: the list given to Apply.
  std::vector<GradientAndVariable> computed = {};
  // Replaces the changes that the step subtracts from the moving averages of layers: takes these
  // changes and returns those to subtract instead, one per variable. Strategies use it to combine
  // the changes of towers and workers. Not given: they are applied unchanged.
  std::function<std::vector<StateChange>(std::span<const StateChange>)> join_state = {};
};

// Changes variables so that a loss falls, in three stages, so that strategies and clipping can act
// on the list in the middle:
//
//   Adam adam({.learning_rate = 1e-3});
//   auto list = adam.Gradients(loss);
//   list = ClipByGlobalNorm(list, 1.0);
//   const Node* train = adam.Apply(list);       // session.RunTargets(feeds, {train})
//
// or in one: adam.Minimize(loss). An optimizer only describes: it builds nodes and holds no state
// of the training; that is in variables of the graph (slots, the global step). Every method throws
// Error. Immutable, so it may be shared.
class Optimizer {
 public:
  explicit Optimizer(LearningRate learning_rate) : learning_rate_(std::move(learning_rate)) {}
  virtual ~Optimizer() = default;

  // The gradient of `loss` (a scalar) for each variable; gradients of look-ups by Gather stay rows.
  // The variables default to nn::TrainableVariables of the graph. The entry of a variable on which
  // the loss does not depend has an empty gradient; it is an error if all entries are empty.
  std::vector<GradientAndVariable> Gradients(Output loss,
                                             std::span<const Output> variables = {}) const;

  // The node that updates every variable of the list and the global step when it runs. Reads of a
  // variable in the same run see the value from before. Entries without gradient are left alone.
  // The moving averages of the BatchNorm layers that the gradients come from are updated along.
  const Node* Apply(std::span<const GradientAndVariable> list,
                    const ApplyOptions& options = {}) const;

  // Apply(Gradients(loss, variables)).
  const Node* Minimize(Output loss, std::span<const Output> variables = {}) const;

  const LearningRate& learning_rate() const { return learning_rate_; }

 protected:
  // Builds the update of one variable and returns its value after it.
  virtual Output Update(const UpdateContext& context) const = 0;

 private:
  LearningRate learning_rate_;
};

}  // namespace tutti
