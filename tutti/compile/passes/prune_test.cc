#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/graph/build.h"

namespace tutti {
namespace {

TEST(Prune, KeepsWhatFetchesAndTargetsNeed) {
  EXPECT_EQ(TextAfter(Prune, R"(
x = Placeholder() {dtype=float32, shape=[2, 2]}
unused = Placeholder() {dtype=float32, shape=[]}
a = Identity(x)
b = Identity(a)
dead = Identity(b)
dead_too = MatMul(dead, b)
first = NoOp()
t = NoOp() ^first
last = NoOp() ^t
feed x
feed unused
fetch b
target t
)"),
            "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
            "unused = Placeholder() {dtype=float32, shape=[]}\n"
            "a = Identity(x)\n"
            "b = Identity(a)\n"
            "first = NoOp()\n"
            "t = NoOp() ^first\n"
            "feed x\n"
            "feed unused\n"
            "fetch b\n"
            "target t\n");
}

TEST(Prune, FeedsWaitForNothing) {
  EXPECT_EQ(TextAfter(Prune, R"(
n = NoOp()
x = Placeholder() {dtype=float32, shape=[]} ^n
y = Identity(x)
feed x
fetch y
)"),
            "x = Placeholder() {dtype=float32, shape=[]}\n"
            "y = Identity(x)\n"
            "feed x\n"
            "fetch y\n");
}

TEST(Prune, KeepsWhatNeededNodesWaitFor) {
  EXPECT_EQ(TextAfter(Prune, R"(
x = Placeholder() {dtype=float32, shape=[]}
v = Variable() {dtype=float32, shape=[]}
w = Assign(v, x)
y = Identity(x) ^w
feed x
fetch y
)"),
            "x = Placeholder() {dtype=float32, shape=[]}\n"
            "v = Variable() {dtype=float32, shape=[]}\n"
            "w = Assign(v, x)\n"
            "y = Identity(x) ^w\n"
            "feed x\n"
            "fetch y\n");
}

TEST(Prune, NothingAskedForIsNothing) { EXPECT_EQ(TextAfter(Prune, "n = NoOp()"), ""); }

// Every pass of this folder, on a chain that would overflow the stack of anything recursive, and
// take minutes by anything quadratic.
TEST(Passes, TakeALongChain) {
  Program program;
  Graph& graph = *program.graph;
  Output last = graph
                    .Add({.op = "Placeholder",
                          .name = "x",
                          .attrs = {{"dtype", kFloat32}, {"shape", Shape{2, 2}}}})
                    ->output();
  program.feeds = {last};
  for (int i = 0; i < 100'000; ++i) {
    last = graph.Add({.op = "Identity", .inputs = {last}})->output();
    last = graph.Add({.op = "MatMul", .inputs = {last, last}})->output();
  }
  program.fetches = {last};
  auto pruned = Prune(std::move(program), {});
  ASSERT_TRUE(pruned.ok());
  EXPECT_EQ(pruned->graph->size(), 200'001);
  auto folded = FoldConstants(*std::move(pruned), {});
  ASSERT_TRUE(folded.ok());
  EXPECT_EQ(folded->graph->size(), 200'001);
  auto simple = Simplify(*std::move(folded), {});
  ASSERT_TRUE(simple.ok());
  EXPECT_EQ(simple->graph->size(), 100'001);
  const auto merged = MergeCommon(*std::move(simple), {});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->graph->size(), 100'001);
}

// Work that is not done: the very graph that went in comes out.
TEST(Passes, WhatFindsNothingToDoCopiesNothing) {
  for (const Pass pass :
       {Prune, FuseMatrix, FuseDescent, KeepPositions, FuseUpdates, PlaceBuckets}) {
    auto program = ParseProgram(
        "x = Placeholder() {dtype=float32, shape=[2]}\n"
        "y = Sin(x)\n"
        "z = Cos(y)\n"
        "feed x\n"
        "fetch z\n");
    ASSERT_TRUE(program.ok()) << MessageOf(program.status());
    const Graph* const graph = program->graph.get();
    const auto result = pass(*std::move(program), {});
    ASSERT_TRUE(result.ok()) << MessageOf(result.status());
    EXPECT_EQ(result->graph.get(), graph);
  }
}

}  // namespace
}  // namespace tutti
