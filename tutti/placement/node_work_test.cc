#include "tutti/placement/node_work.h"

#include <gtest/gtest.h>

#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/update_table.h"
#include "tutti/nn/initializers.h"
#include "tutti/placement/machine_speed.h"

namespace tutti::placement {
namespace {

TEST(NodeWork, AProductMultipliesAndAddsOverTheInnerDimension) {
  Graph graph;
  const Output a = Placeholder(graph, kFloat32, {32, 784}, "a");
  const Output b = Placeholder(graph, kFloat32, {784, 100}, "b");
  const NodeWork work = WorkOf(*MatMul(a, b).node);
  EXPECT_EQ(work.kind, WorkKind::kMatrix);
  EXPECT_EQ(work.operations, 2.0 * 32 * 784 * 100);
  EXPECT_EQ(work.read_bytes, 4.0 * (32 * 784 + 784 * 100));
  EXPECT_EQ(work.output_bytes, 4.0 * 32 * 100);
  const NodeWork turned = WorkOf(*MatMul(a, a, {.transpose_a = true}).node);
  EXPECT_EQ(turned.operations, 2.0 * 784 * 784 * 32);
}

TEST(NodeWork, AConvolutionAndItsGradientsDoTheSame) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 28, 28, 16}, "x");
  const Output filter = Placeholder(graph, kFloat32, {3, 3, 16, 32}, "filter");
  const Output y = Conv2D(x, filter);
  const double expected = 2.0 * double(y.shape().elements()) * 3 * 3 * 16;
  EXPECT_EQ(WorkOf(*y.node).operations, expected);
  const Output dx = Conv2DBackpropInput(filter, y, ShapeOf(x));
  const Output df = Conv2DBackpropFilter(x, y, ShapeOf(filter));
  EXPECT_EQ(WorkOf(*dx.node).operations, expected);
  EXPECT_EQ(WorkOf(*df.node).operations, expected);
}

// Updates of 32 rows of tables that have so many, of 16 numbers.
std::vector<const Node*> UpdatesOfRows(Graph& graph, int64_t rows) {
  const auto table = [&](std::string_view name) {
    return Variable(graph, Zeros({rows, 16}), name);
  };
  const Output variable = table("variable"), slots[] = {table("slot"), table("another_slot")};
  const Output indices = Placeholder(graph, kInt64, {32}, "indices");
  const Output touched = Placeholder(graph, kFloat32, {32, 16}, "rows");
  std::vector<const Node*> updates = {ScatterAdd(variable, indices, touched).node,
                                      ScatterSub(variable, indices, touched).node,
                                      ScatterUpdate(variable, indices, touched).node};
  for (const UpdateOp& op : UpdateOps()) {
    UpdateInputs inputs{
        .references = {variable}, .scalars = {0.1f}, .gradient = {indices, touched}};
    for (size_t i = 0; i < op.slots.size(); ++i) inputs.references.emplace_back(slots[i]);
    if (op.takes_step) inputs.scalars.emplace_back(Tensor::Scalar(int64_t{1}));
    updates.push_back(BuildUpdate(op.name, inputs, {}).node);
  }
  return updates;
}

TEST(NodeWork, UpdatesOfRowsTouchNoOthers) {
  Graph large_graph, small_graph;
  const std::vector<const Node*> large = UpdatesOfRows(large_graph, 1'000'000);
  const std::vector<const Node*> small = UpdatesOfRows(small_graph, 1'000);
  for (size_t i = 0; i < large.size(); ++i) {
    const NodeWork work = WorkOf(*large[i]), expected = WorkOf(*small[i]);
    EXPECT_EQ(work.read_bytes, expected.read_bytes) << large[i]->op();
    EXPECT_EQ(work.write_bytes, expected.write_bytes) << large[i]->op();
    EXPECT_EQ(SecondsOf(work, MachineSpeed::Typical(), 1),
              SecondsOf(expected, MachineSpeed::Typical(), 1))
        << large[i]->op();
    EXPECT_EQ(work.write_bytes, 4.0 * 32 * 16) << large[i]->op();
  }
}

TEST(NodeWork, SourcesAndViewsTakeNoTime) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 4}, "x");
  EXPECT_EQ(WorkOf(*x.node).kind, WorkKind::kNone);
  EXPECT_EQ(WorkOf(*Reshape(x, {32}).node).kind, WorkKind::kNone);
  EXPECT_EQ(SecondsOf(WorkOf(*x.node), MachineSpeed::Typical(), 1), 0);
}

TEST(NodeWork, UnknownDimensionsAreAssumedAndTold) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 10}, "x");
  const NodeWork work = WorkOf(*Neg(x).node);
  EXPECT_FALSE(work.known);
  EXPECT_EQ(work.output_bytes, 4.0 * double(kAssumedDim) * 10);
}

TEST(NodeWork, ALoopCountsItsBodySeveralTimes) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {64, 64}, "x");
  const Output n = Placeholder(graph, kInt32, {}, "n");
  const std::vector<Output> results = While(
      {n, x}, [](std::span<const Output> v) { return Greater(v[0], 0); },
      [](std::span<const Output> v) {
        return std::vector<Output>{v[0] - 1, MatMul(v[1], v[1])};
      });
  const NodeWork work = WorkOf(*results[1].node);
  EXPECT_EQ(work.kind, WorkKind::kMatrix);
  EXPECT_EQ(work.operations, kAssumedIterations * 2 * 64 * 64 * 64);
}

TEST(MachineSpeed, IsTheSameAfterJson) {
  const MachineSpeed speed = MachineSpeed::Typical();
  const auto read = MachineSpeed::FromJson(speed.ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), speed.ToJson());
  EXPECT_FALSE(MachineSpeed::FromJson("{}").ok());
  EXPECT_FALSE(MachineSpeed::FromJson("no json").ok());
}

TEST(MachineSpeed, LargeWorkIsSharedByCores) {
  Graph graph;
  const Output a = Placeholder(graph, kFloat32, {512, 512}, "a");
  const NodeWork work = WorkOf(*MatMul(a, a).node);
  const MachineSpeed speed = MachineSpeed::Typical();
  EXPECT_LT(SecondsOf(work, speed, 2), 0.6 * SecondsOf(work, speed, 1));
}

}  // namespace
}  // namespace tutti::placement
