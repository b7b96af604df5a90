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
#include "tutti/train/strategies/task_load.h"

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
  std::string how = {};  // how gradients travel, as text for the log; the same on all workers
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
  // Where everything went, as lines of text; empty where there is nothing to tell.
  virtual std::string Describe() const { return ""; }
  // The same in one line: how many, and how many bytes where.
  virtual std::string Summary() const { return ""; }
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

  // Sets the session options that the strategy's graph needs: devices, communicator. Job and task
  // are already set.
  virtual void Configure(SessionOptions& /*options*/) const {}

  // What places the variables of one graph; null: all go to the default device.
  virtual std::unique_ptr<VariablePlacer> MakePlacer() const { return nullptr; }

  // True if every worker runs every step, each on its slice of the global batch. False if each
  // batch goes to one worker, which claims its number through its StepDriver.
  virtual bool InLockstep() const { return true; }
  // True if a fast worker waits for slow ones.
  virtual bool WaitsForWorkers() const { return InLockstep(); }
  // The device of nodes between gradients and updates that belong to no single variable.
  virtual std::string UpdateDevice() const { return ""; }

  // The scalar whose gradients Aggregate expects.
  virtual Output Differentiated(const WorkerStep& step) const = 0;
  // The list with the gradients of all workers in it, as Optimizer::Apply takes it: the gradient of
  // the mean over all samples. With no sample at all the updates change nothing.
  virtual std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                                     const WorkerStep& step,
                                                     JointStep* joint) const = 0;

  // The changes of the layers' moving averages (BatchNorm) in a step: the mean of the workers'
  // changes over all samples, so that every worker keeps the same averages, bit by bit. They are
  // joined in every step rather than at the end, because a save or an evaluation in between needs
  // one state too, and averages over all samples are better than one worker's.
  virtual std::vector<Output> AggregateState(std::span<const Output> changes,
                                             const WorkerStep& /*step*/,
                                             const JointStep& /*joint*/) const {
    return {changes.begin(), changes.end()};
  }

  // Adds nodes that run after the update. `nodes` has the update and what Aggregate put into
  // JointStep.
  virtual void Complete(StepNodes& /*nodes*/, const WorkerStep& /*step*/) const {}

  // True if this worker initialises or restores the variables itself, false if another worker does
  // it for all.
  virtual bool GivesValues() const { return true; }
  // Gives all workers the same state, after the variables were initialised or restored; may add
  // nodes to the graph. All workers call it. Throws Error.
  virtual void SynchronizeState(Graph& /*graph*/, Session& /*session*/) const {}

  // What this worker's task has done so far, and each task that keeps variables for it. Nothing
  // where the variables are the worker's own. May take a few milliseconds.
  virtual TaskLoad OwnLoad() const { return {}; }
  virtual std::vector<TaskLoad> ServerLoads() const { return {}; }

  // What leads this worker through the steps of one training. Throws Error.
  virtual std::unique_ptr<StepDriver> MakeDriver(Session& session, const StepNodes& nodes,
                                                 const StepRange& range) const;

 private:
  const std::shared_ptr<Peers> peers_;
};

}  // namespace tutti
