// A step of N workers, of which `admit` count:
//
//   worker w                            first server                    each variable's server
//   gradients computed
//   enter the gate for step s  ------>  admits the first `admit`
//   admitted: push             ---------------------------------------> accumulate (s, w)
//                                       gate complete: who is in  ----> sum over them, in order;
//                                                                       update
//   wait for the token s + 1   <------  a token for every worker  <---- done
//
// Admission is per step: the accumulators of all variables take the sum over the same workers. Who
// was not admitted pushes nothing, and goes on with the step that its token names.
//
// Every worker has a token queue of its own, so nobody takes another's token. One that was slow
// finds several and takes them all: the last tells the step to go on with.
#include "tutti/train/strategies/ps/sync_step.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/sync.h"

namespace tutti {
namespace {

// Of a worker that does not take its tokens. The chief stops giving them before (sync_driver.cc).
constexpr int64_t kTokenCapacity = 4096;

Output LastRow(Output x) {
  return StridedSlice(x, {.begin = {-1}, .end = {0}, .end_mask = 1, .shrink_mask = 1});
}

}  // namespace

SyncStep::SyncStep(Graph& graph, const SyncStepOptions& options)
    : graph_(graph), options_(options) {
  const DeviceScope device(graph, options.device);
  worker = Placeholder(graph, kInt64, Shape{}, "worker");
  step = Placeholder(graph, kInt64, Shape{}, "step");
  update_step = Placeholder(graph, kInt64, Shape{}, "update_step");
  gate_ = Gate(graph, options.admit, options.workers, "gate");
  members_ = GateAdmitted(gate_, update_step);
  leave = GateLeave(gate_, worker);
  join = GateJoin(gate_, worker);
  contains = GateContains(gate_, step, worker);
}

Output SyncStep::Summed(Output own, const std::string& device) {
  const DeviceScope on(graph_, device);
  const Output accumulator = Accumulator(graph_, own.dtype(), own.shape());
  pushes_.push_back({accumulator, {}, own});
  return AccumulatorTake(accumulator, update_step, members_);
}

GradientValue SyncStep::SummedRows(const GradientValue& own, const Shape& shape,
                                   const std::string& device) {
  const DeviceScope on(graph_, device);
  const Output accumulator = Accumulator(graph_, own.rows.dtype(), shape);
  pushes_.push_back({accumulator, own.indices, own.rows});
  const AccumulatedRows all = AccumulatorTakeRows(accumulator, update_step, members_);
  return {{}, all.indices, all.rows};
}

void SyncStep::Sum(GradientAndVariable& entry) {
  GradientValue& gradient = entry.gradient;
  if (gradient.empty()) return;
  const Shape& shape = entry.variable.shape();
  const std::string& device = entry.variable.node->device();
  if (!shape.IsFullyKnown()) {
    ThrowInvalidArgument(fmt::format(
        "variable {} is {}; expected a shape without unknown dimensions, so that the gradients of "
        "several workers can be summed",
        entry.variable.node->Describe(), shape.ToString()));
  }
  if (gradient.sparse()) {
    gradient = SummedRows(gradient, shape, device);
  } else {
    gradient.dense = Summed(gradient.dense, device);
  }
}

const Node* SyncStep::Apply(const Push& push, Output indices, Output values) const {
  const std::string& device = push.accumulator.node->device();
  values = OverWire(values, options_.wire, device);
  const DeviceScope on(graph_, device);
  const AccumulatorApplyOptions options = {.once = options_.once};
  if (!push.indices) return AccumulatorApply(push.accumulator, step, worker, values, options);
  return AccumulatorApplyRows(push.accumulator, step, worker, indices, values, options);
}

// Gradients wait in a queue of the worker's own until the gate has decided.
void SyncStep::PushHeld(const std::vector<const Node*>& computed) {
  QueueComponents types;
  std::vector<Output> values;
  std::string device;
  for (const Push& push : pushes_) {
    for (const Output& value : {push.indices, push.values}) {
      if (!value) continue;
      types.push_back({value.dtype(), value.shape()});
      values.push_back(value);
      device = value.node->device();
    }
  }
  const DeviceScope on(graph_, device);
  const Output held = FIFOQueue(graph_, types, {.capacity = 1}, "held");
  push = Enqueue(held, values);
  {
    const DeviceScope at_gate(graph_, options_.device);
    const ControlScope after(graph_, computed);
    admitted = GateEnter(gate_, step, worker);
  }
  const std::vector<Output> taken = Dequeue(held, "take_held");
  std::vector<const Node*> sent;
  size_t at = 0;
  for (const Push& push : pushes_) {
    const Output indices = push.indices ? taken[at++] : Output();
    sent.push_back(Apply(push, indices, taken[at++]));
  }
  send_held = Group(graph_, sent);
  drop_held = taken[0].node;
}

void SyncStep::Finish(const Node* made_update, Output values) {
  update = made_update;
  update_values = values;
  std::vector<const Node*> computed;
  for (const Push& push : pushes_) computed.push_back(push.values.node);
  if (has_backups()) {
    PushHeld(computed);
  } else {
    const DeviceScope device(graph_, options_.device);
    std::vector<const Node*> sent;
    for (const Push& push : pushes_) sent.push_back(Apply(push, push.indices, push.values));
    admitted = GateEnter(gate_, step, worker);
    sent.push_back(admitted.node);
    push = Group(graph_, sent);
  }
  const DeviceScope device(graph_, options_.device);
  const QueueComponents token = {{kInt64, Shape{}}, {kFloat64, values.shape()}};
  const Output next = Add(update_step, int64_t{1});
  const Tensor none = Tensor::Zeros(kFloat64, values.shape());
  for (int w = 0; w < options_.workers; ++w) {
    const Output queue =
        FIFOQueue(graph_, token, {.capacity = kTokenCapacity}, fmt::format("tokens_{}", w));
    const Output waiting = QueueSize(queue);
    waiting_tokens.push_back(waiting);
    {
      const ControlScope after(graph_, {update});
      tokens.push_back(Enqueue(queue, {next, values}));
    }
    wake.push_back(Enqueue(queue, {update_step, Constant(graph_, none)}));
    const std::vector<Output> taken = DequeueMany(queue, Maximum(waiting, int64_t{1}));
    release.push_back({LastRow(taken[0]), LastRow(taken[1])});
  }
}

}  // namespace tutti
