#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/ops/state.h"
#include "tutti/train/optimizers/gradient_list.h"
#include "tutti/train/strategies/peers.h"
#include "tutti/train/strategies/step_driver.h"

namespace tutti {

class Session;
struct SessionOptions;

// What the order of sums over workers depends on, by name: {"buckets", "65536, 4194304"}. With the
// same facts the sums have the same bits.
using SumOrder = std::map<std::string, std::string>;

// What one worker brings to a step, as scalars of its graph.
struct WorkerStep {
  Output loss;          // the mean over this worker's samples; anything where there are none
  Output samples;       // how many they are, float32
  Output stop;          // 1 to ask for an end of training after this step, else 0; float32
  SumOrder order = {};  // of the checkpoint that the training goes on from: to be used again
};

// What a strategy built besides the update, and its StepDriver needs.
struct StrategyNodes {
  virtual ~StrategyNodes() = default;
};

// The same for all workers together.
struct JointStep {
  Output loss;           // the mean over all samples; 0 where there are none
  Output samples;        // float32
  Output stop;           // how many workers ask for an end
  std::string how = {};  // do gradients travel, for people; the same on all workers
  SumOrder order = {};
  std::shared_ptr<StrategyNodes> nodes = nullptr;  // of strategies that have some
};

// The nodes of a training step.
struct StepNodes {
  const Node* update = nullptr;  // what Optimizer::Apply gave
  Output counted;                // the global step after it
  JointStep joint;
};

// Decides where the variables of one graph live. It is asked for each variable in the order in
// which they are made: those of the model, then optimizer slots and the global step. So it may keep
// state, such as the bytes that a device has so far.
class VariablePlacer {
 public:
  virtual ~VariablePlacer() = default;
  virtual VariablePlacement Place(const VariableRequest& request) = 0;
  // Where everything went, as lines for people; empty where there is nothing to tell.
  virtual std::string Describe() const { return ""; }
};

// How a training is spread over processes and devices: a rewrite of the graph at two points. The
// model does not know of it. Strategies only build nodes; they hold no state of the training.
//
//   list = optimizer.Gradients(strategy.Differentiated(step));
//   list = strategy.Aggregate(list, step, &joint);
//   train = optimizer.Apply(ClipByGlobalNorm(list, 1.0));
class Strategy {
 public:
  // With the way to the other workers; alone without it.
  explicit Strategy(std::shared_ptr<Peers> peers = std::make_shared<AlonePeers>())
      : peers_(std::move(peers)) {}
  virtual ~Strategy() = default;

  virtual std::string_view name() const = 0;  // as in --strategy
  Peers& peers() const { return *peers_; }

  // The devices on which this process computes. The model is built once on each, a tower, on the
  // same variables; the towers share the process's part of a batch, and WorkerStep has what they
  // are together. "" is the session's first device.
  virtual std::vector<std::string> Devices() const { return {""}; }

  // How many batches of RunConfig::batch_size go into one update: what --scale-learning-rate
  // multiplies the learning rate with.
  virtual int BatchesPerUpdate() const { return peers().workers() * int(Devices().size()); }

  // How the session must be made whose graph this strategy has built: devices, how it takes part in
  // collectives. Job and task are set already.
  virtual void Configure(SessionOptions& /*options*/) const {}

  // What places the variables of one graph; null: all go to the default device.
  virtual std::unique_ptr<VariablePlacer> MakePlacer() const { return nullptr; }

  // Does every worker have a slice of every global batch, and make every step? Else each batch goes
  // to one worker, by the number that its StepDriver claims.
  virtual bool InLockstep() const { return true; }
  // Where the nodes between gradients and updates are that belong to no variable.
  virtual std::string UpdateDevice() const { return ""; }

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

  // Adds what must follow the update, which is in `nodes`, as is what Aggregate gave.
  virtual void Complete(StepNodes& /*nodes*/, const WorkerStep& /*step*/) const {}

  // Does this worker give variables their first values, or those of a checkpoint? Not where another
  // does it for all.
  virtual bool GivesValues() const { return true; }
  // Gives all workers the same state, after that; may add nodes to the graph. All workers call it.
  // Throws Error.
  virtual void SynchronizeState(Graph& /*graph*/, Session& /*session*/) const {}

  // What leads this worker through the steps of one training. Throws Error.
  virtual std::unique_ptr<StepDriver> MakeDriver(Session& session, const StepNodes& nodes,
                                                 const StepRange& range) const;

 private:
  const std::shared_ptr<Peers> peers_;
};

}  // namespace tutti
