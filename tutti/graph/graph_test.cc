#include "tutti/graph/graph.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/source.h"
#include "tutti/testing/error_of.h"

namespace tutti {
namespace {

using ::tutti::testing::ErrorOf;

TEST(Graph, InfersTypesAndShapes) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 784}, "x");
  const Output w = Constant(graph, Tensor::Zeros(kFloat32, {784, 10}), "w");
  const Output y = MatMul(x, w, {}, "y");
  EXPECT_EQ(y.shape(), (Shape{-1, 10}));
  EXPECT_EQ(y.dtype(), kFloat32);
  EXPECT_EQ(graph.FindOutput("y"), y);
  EXPECT_FALSE(graph.FindOutput("y:1"));
}

TEST(Graph, ErrorsNameBothNodesAndTheSourceLine) {
  Graph graph;
  const Output a = Placeholder(graph, kFloat32, {128, 784}, "a");
  const Output b = Placeholder(graph, kFloat32, {100, 10}, "b");
  const int line = __LINE__ + 1;
  const std::string message = ErrorOf([&] { MatMul(a, b, {}, "dense_1/matmul"); });
  EXPECT_EQ(message, "MatMul \"dense_1/matmul\" (graph_test.cc:" + std::to_string(line) +
                         "): inner dimensions differ: a is [128, 784], b is [100, 10]; a's "
                         "dimension 1 must equal b's "
                         "dimension 0; inputs: Placeholder \"a\" (graph_test.cc:" +
                         std::to_string(line - 3) +
                         "), Placeholder \"b\" (graph_test.cc:" + std::to_string(line - 2) + ")");
  EXPECT_EQ(graph.size(), 2);
}

TEST(Graph, NamesAreUniqueAndScoped) {
  Graph graph;
  EXPECT_EQ(NoOp(graph)->name(), "NoOp");
  EXPECT_EQ(NoOp(graph)->name(), "NoOp_1");
  {
    NameScope outer(graph, "layer");
    EXPECT_EQ(NoOp(graph, "a")->name(), "layer/a");
    NameScope inner(graph, "layer");
    EXPECT_EQ(NoOp(graph, "a")->name(), "layer/layer/a");
  }
  NameScope again(graph, "layer");
  EXPECT_EQ(NoOp(graph, "a")->name(), "layer_1/a");
  EXPECT_NE(ErrorOf([&] { NoOp(graph, "a"); }).find("the name is taken by NoOp \"layer_1/a\""),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] { NoOp(graph, "a b"); }).find("is no node name"), std::string::npos);
}

TEST(Graph, RefusesUnknownOpsAndAttributes) {
  Graph graph;
  EXPECT_EQ(ErrorOf([&] { graph.Add({.op = "Frobnicate"}); }).substr(0, 27),
            "there is no op \"Frobnicate\"");
  EXPECT_NE(ErrorOf([&] {
              graph.Add({.op = "NoOp", .attrs = {{"colour", int64_t{1}}}});
            }).find("the op has no attribute \"colour\""),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              graph.Add({.op = "Constant"});
            }).find("attribute \"value\" (tensor) is missing"),
            std::string::npos);
}

TEST(Graph, ScopesSetDeviceAndControlInputs) {
  Graph graph;
  const Node* first = NoOp(graph);
  DeviceScope device(graph, "/cpu:1");
  ControlScope control(graph, {first});
  const Node* second = NoOp(graph);
  EXPECT_EQ(second->device(), "/cpu:1");
  EXPECT_EQ(second->control_inputs(), std::vector<const Node*>{first});
}

TEST(Graph, CapturesValuesOfAnEnclosingGraph) {
  Graph outer;
  const Output x = Placeholder(outer, kFloat32, {2, 2}, "x");
  Graph middle(&outer);
  Graph inner(&middle);
  SubgraphScope scope(&inner);
  const Output y = MatMul(x, x);
  EXPECT_EQ(&y.graph(), &inner);
  ASSERT_EQ(inner.captures().size(), 1u);
  ASSERT_EQ(middle.captures().size(), 1u);
  EXPECT_EQ(middle.captures()[0].outer, x);
  EXPECT_EQ(inner.captures()[0].outer, middle.captures()[0].arg);
}

}  // namespace
}  // namespace tutti
