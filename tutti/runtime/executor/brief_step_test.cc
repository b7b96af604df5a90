#include "tutti/runtime/executor/brief_step.h"

#include <gtest/gtest.h>

#include "tutti/compile/program_text.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"

namespace tutti {
namespace {

Output Parameters(Program& program, const Shape& shape) {
  return Variable(*program.graph,
                  {.dtype = kFloat32,
                   .shape = shape,
                   .build = [shape](Graph& g) { return Constant(g, Tensor(kFloat32, shape)); }},
                  "v");
}

TEST(BriefStep, ReadingParametersOfAnySizeIs) {
  const auto program = ParseProgram(
      "v = Variable() {dtype=float32, shape=[1048576,16]}\n"
      "fetch v\n");
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(IsBrief(*program));
}

TEST(BriefStep, ComputingWithFewIs) {
  Program program;
  program.fetches = {Exp(Parameters(program, {100}))};
  EXPECT_TRUE(IsBrief(program));
}

TEST(BriefStep, ComputingWithManyIsNot) {
  Program program;
  program.fetches = {Sum(Parameters(program, {1 << 20}))};  // one number of many
  EXPECT_FALSE(IsBrief(program));
  Program wide;
  wide.fetches = {Exp(Placeholder(*wide.graph, kFloat32, {kUnknownDim, 2}))};
  EXPECT_FALSE(IsBrief(wide));
}

TEST(BriefStep, WaitingIsNot) {
  Program program;
  const Output queue = FIFOQueue(*program.graph, {{kInt64, Shape{}}}, {}, "q");
  program.fetches = {Dequeue(queue)[0]};
  EXPECT_FALSE(IsBrief(program));
}

TEST(BriefStep, ManyNodesAreNot) {
  Program program;
  Output value = Parameters(program, {});
  for (int i = 0; i < 100; ++i) value = Exp(value);
  program.fetches = {value};
  EXPECT_FALSE(IsBrief(program));
}

}  // namespace
}  // namespace tutti
