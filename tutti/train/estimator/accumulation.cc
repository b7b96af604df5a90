// What the strategy differentiates must have the gradient of all parts together, in whatever way
// the strategy counts (a mean over samples, a sum). With S samples in all, the last part of s
// samples with mean loss m, and G the gradient of the sum of losses that earlier parts left for a
// variable v, that is the gradient of
//
//   m * s / S  +  sum(G * v) / S        for every v
//
// because the second term is linear in v, and G is a constant of the step. Its value is never
// computed: only its gradient is asked for, which is G / S.
#include "tutti/train/estimator/accumulation.h"

#include <fmt/format.h>

#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"

namespace tutti {
namespace {

Output As(Output value, DType dtype) { return value.dtype() == dtype ? value : Cast(value, dtype); }

Output Kept(Graph& graph, const std::string& name, DType dtype, const Shape& shape) {
  NameScope root(graph, "/");
  return Variable(graph, Zeros(shape, dtype), name, {.trainable = false});
}

Tensor IotaTensor(int64_t count) {
  Tensor numbers(kInt64, {count});
  for (int64_t i = 0; i < count; ++i) numbers.data<int64_t>()[i] = i;
  return numbers;
}

const Node* AddTo(Output kept, const GradientValue& gradient) {
  if (gradient.sparse()) return ScatterAdd(kept, gradient.indices, gradient.rows).node;
  return AssignAdd(kept, gradient.dense).node;
}

// Keeps which rows the parts have named: a flag for each row. Gives those of all parts and, through
// `adds` and `clears`, what keeps and forgets them.
Output KeepIndices(Output variable, Output indices, std::vector<const Node*>& adds,
                   std::vector<const Node*>& clears) {
  Graph& graph = variable.graph();
  const int64_t count = variable.shape()[0];
  const Output named =
      Kept(graph, fmt::format("{}/named_rows", variable.node->name()), kInt32, {count});
  const Output flat = Reshape(indices, Shape{-1});
  const Output flags = ScatterUpdate(named, flat, OnesLike(Cast(flat, kInt32)));
  adds.push_back(flags.node);
  {
    ControlScope after(graph, {flags.node});
    clears.push_back(Assign(named, ZerosLike(named)).node);
  }
  const Output all = Constant(graph, IotaTensor(count));
  return DynamicPartition(all, flags, 2)[1];
}

}  // namespace

void Accumulation::ToRows(std::vector<GradientAndVariable>& list) const {
  for (GradientAndVariable& entry : list) {
    for (const NamedRows& named : rows) {
      if (entry.variable != named.variable || entry.gradient.sparse()) continue;
      entry.gradient = {.indices = named.indices,
                        .rows = Gather(entry.gradient.dense, named.indices)};
    }
  }
}

Accumulation BuildAccumulation(const WorkerStep& part, const Strategy& strategy,
                               const Optimizer& optimizer, std::span<const Output> variables) {
  Graph& graph = part.loss.graph();
  NameScope scope(graph, "accumulate");
  const DType dtype = part.loss.dtype();
  const Output samples = As(part.samples, dtype);
  // Without samples the mean is no number.
  const Output sum = Select(Greater(samples, 0.0), Mul(part.loss, samples), ZerosLike(part.loss));
  const Output kept_loss = Kept(graph, "accumulated/loss", dtype, {});
  const Output kept_samples = Kept(graph, "accumulated/samples", kFloat32, {});
  const Output all_samples = Add(kept_samples, part.samples);
  const Output divisor = As(Maximum(all_samples, 1.0f), dtype);

  Accumulation made;
  std::vector<const Node*> adds = {AssignAdd(kept_loss, sum).node,
                                   AssignAdd(kept_samples, part.samples).node};
  std::vector<const Node*> clears = {Assign(kept_loss, ZerosLike(kept_loss)).node,
                                     Assign(kept_samples, ZerosLike(kept_samples)).node};
  std::vector<Output> terms = {Mul(part.loss, samples)};
  for (const GradientAndVariable& entry : optimizer.Gradients(terms[0], variables)) {
    if (entry.gradient.empty()) continue;
    const Output variable = entry.variable;
    const Output kept = Kept(graph, fmt::format("{}/accumulated", variable.node->name()),
                             variable.dtype(), variable.shape());
    adds.push_back(AddTo(kept, entry.gradient));
    clears.push_back(Assign(kept, ZerosLike(kept)).node);
    if (entry.gradient.sparse()) {
      made.rows.push_back({variable, KeepIndices(variable, entry.gradient.indices, adds, clears)});
    }
    terms.push_back(As(Sum(Mul(StopGradient(kept), variable)), dtype));
  }
  made.add = Group(graph, adds);
  made.clear = Group(graph, clears);
  made.step = {Div(Add(kept_loss, sum), divisor), all_samples, part.stop, part.order};
  made.differentiated =
      strategy.Differentiated({Div(AddN(terms), divisor), all_samples, part.stop, part.order});
  return made;
}

std::vector<Minibatch> SplitBatch(const Minibatch& batch, int64_t parts) {
  std::vector<Minibatch> split;
  for (int64_t i = 0; i < parts; ++i) {
    const int64_t begin = batch.count * i / parts, end = batch.count * (i + 1) / parts;
    Minibatch part{.columns = {}, .count = end - begin, .position = batch.position + begin};
    for (const auto& [name, column] : batch.columns) part.columns[name] = column.Rows(begin, end);
    split.push_back(std::move(part));
  }
  return split;
}

}  // namespace tutti
