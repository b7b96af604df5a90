#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/train/gradient_list.h"

namespace tutti {

// What one worker brings to a step, as scalars of its graph.
struct WorkerStep {
  Output loss;     // the mean over this worker's samples; anything where there are none
  Output samples;  // how many they are, float32
  Output stop;     // 1 to ask for an end of training after this step, else 0; float32
};

// The same for all workers together.
struct JointStep {
  Output loss;           // the mean over all samples; 0 where there are none
  Output samples;        // float32
  Output stop;           // how many workers ask for an end
  std::string how = {};  // do gradients travel, for people; the same on all workers
};

// How a training is spread over processes and devices: a rewrite of the graph at two points. The
// model does not know of it. Strategies only build nodes; they hold no state of the training.
//
//   list = optimizer.Gradients(strategy.Differentiated(step));
//   list = strategy.Aggregate(list, step, &joint);
//   train = optimizer.Apply(ClipByGlobalNorm(list, 1.0));
class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;  // as in --strategy
  virtual int workers() const { return 1; }
  virtual int rank() const { return 0; }  // of this process among the workers

  // When a variable is made: the device it lives on; empty for the default.
  virtual std::string DeviceOf(std::string_view /*variable*/, DType /*dtype*/,
                               const Shape& /*shape*/) const {
    return "";
  }

  // What to differentiate. With it, gradients are what Aggregate expects of them.
  virtual Output Differentiated(const WorkerStep& step) const = 0;
  // The list with the gradients of all workers in it, as Optimizer::Apply takes it: the gradient of
  // the mean over all samples. With no sample at all the updates change nothing.
  virtual std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                                     const WorkerStep& step,
                                                     JointStep* joint) const = 0;

  // What a step subtracts from the moving averages of layers (BatchNorm): the mean over all samples
  // of what the workers would, so that every worker's averages stay the same, bit by bit. They are
  // joined in every step rather than at the end, because whoever saves or evaluates in between
  // wants one state too, and averages over all samples are better than one worker's.
  virtual std::vector<Output> AggregateState(std::span<const Output> changes,
                                             const WorkerStep& /*step*/,
                                             const JointStep& /*joint*/) const {
    return {changes.begin(), changes.end()};
  }

  // A node that gives all workers the same first state, to be run after Session::Initialize; null
  // where there is nothing to do.
  virtual const Node* SynchronizeState(Graph& graph) const = 0;
};

}  // namespace tutti
