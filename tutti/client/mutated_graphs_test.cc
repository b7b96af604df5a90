// Damaged graphs that the readers accept, run: the outcome is values or an Error, within the
// timeout, never a crash. TUTTI_SWEEP=long runs a hundred times as many.
#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/io.h"
#include "tutti/graph/mutate.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/softmax.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/run_small_graph.h"

namespace tutti {
namespace {

using Outputs = std::vector<Output>;
using Variables = std::span<const Output>;

void BuildLayers(Graph& graph) {
  const Output x = Placeholder(graph, kFloat32, {4, 4}, "x");
  const Output c = Constant(graph, Tensor::Vector<float>({1, -0.5f, 2, 7}), "c");
  const Output r = Relu(BiasAdd(MatMul(x, x), c));
  const Outputs s = Split(r, 1, 2);
  Sum(Transpose(Add(s[0], s[1])));
  Softmax(r);
}

void BuildShapes(Graph& graph) {
  const Output dims = Constant(graph, Tensor::Vector<int64_t>({3, 2}), "dims");
  const Output f = Fill(dims, Constant(graph, Tensor::Scalar(1.0f)));
  const Output v = Reshape(f, Constant(graph, Tensor::Vector<int64_t>({-1})));
  const Output i = Constant(graph, Tensor::Vector<int64_t>({0, 5, 2}), "i");
  const Output e = ExpandDims(Gather(v, i), 0);
  Pack({e, e}, 1);
  Mul(Cast(Unique(i).values, kFloat32), Gather(v, i));
}

void BuildControlFlow(Graph& graph) {
  const Output x = Placeholder(graph, kFloat32, {2}, "x");
  const Output p = Constant(graph, Tensor::Scalar(true), "p");
  If(
      p, [&] { return Outputs{Neg(x)}; }, [&] { return Outputs{Identity(x)}; });
  While(
      {Add(x, 1.0f)}, [](Variables v) { return Less(Sum(v[0]), 100.0f); },
      [](Variables v) { return Outputs{Add(v[0], v[0])}; });
}

void BuildState(Graph& graph) {
  const Output c = Constant(graph, Tensor::Vector<float>({1, 2, 3}), "c");
  const Output v = Variable(graph,
                            {.shape = {3},
                             .build =
                                 [](Graph& g) {
                                   return Constant(g, Tensor::Vector<float>({1, 1, 1}));
                                 }},
                            "v");
  AssignAdd(v, Neg(v));
  const Output q = FIFOQueue(graph, {{kFloat32, {3}}}, {.capacity = 2}, "q");
  const ControlScope after(graph, {Enqueue(q, {c})});
  Dequeue(q);
}

constexpr void (*kBuilders[])(Graph&) = {BuildLayers, BuildShapes, BuildControlFlow, BuildState};

int Rounds() {
  const char* sweep = std::getenv("TUTTI_SWEEP");
  return sweep != nullptr && std::string_view(sweep) == "long" ? 100'000 : 1'000;
}

void Build(int round, Graph& graph) { kBuilders[size_t(round) % std::size(kBuilders)](graph); }

// `write` makes the bytes of a graph. `read` reads damaged ones, and throws Error when it does not
// like them.
void RunDamaged(const auto& write, const auto& read, uint64_t seeds) {
  RegisterCpuKernels();
  int accepted = 0, ran = 0;
  for (int round = 0; round < Rounds(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(round));
    RandomGraph mutations(uint64_t(round) + seeds);
    Graph original, graph;
    Build(round, original);
    const std::string damaged = Mutate(write(original), mutations);
    try {
      read(damaged, graph);
    } catch (const Error&) {
      continue;
    }
    ++accepted;
    ran += RunIfSmall(graph);
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(ran, 0);
}

TEST(MutatedGraphs, TextsRun) {
  const auto write = [](const Graph& graph) { return GraphToText(graph); };
  RunDamaged(write, ReadTextGraph, 3'000'000);
}

TEST(MutatedGraphs, BytesRun) { RunDamaged(GraphToBytes, ReadGraphBytes, 4'000'000); }

// Else the tests above would try errors only.
TEST(MutatedGraphs, UndamagedGraphsRun) {
  RegisterCpuKernels();
  for (int i = 0; i < int(std::size(kBuilders)); ++i) {
    Graph graph;
    Build(i, graph);
    EXPECT_GT(RunIfSmall(graph), int(graph.size()) / 2) << GraphToText(graph);
  }
}

}  // namespace
}  // namespace tutti
