#include "tutti/compile/step_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(Pin pin) {
  RegisterCpuKernels();
  auto program = ParseProgram(
      "x = Placeholder() {dtype=float32, shape=[2]}\n"
      "y = Neg(x)\n"
      "z = Neg(y)\n"
      "feed x\n"
      "fetch z\n"
      "arena bucket\n");
  EXPECT_TRUE(program.ok()) << MessageOf(program.status());
  program->memory.SetPin(program->graph->FindOutput("y"), pin);
  Device device("/job:local/task:0/cpu:0", 1);
  const auto plan = MakeStepPlan(*std::move(program), device);
  return plan.ok() ? "no error" : std::string(MessageOf(plan.status()));
}

// The plan of the program in `text`, a line for each node: what it waits for, what waits for it,
// and where its outputs lie.
std::string PlanOf(std::string_view text) {
  RegisterCpuKernels();
  auto program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << MessageOf(program.status());
  Device device("/job:local/task:0/cpu:0", 1);
  const auto plan = MakeStepPlan(*std::move(program), device);
  if (!plan.ok()) return std::string(MessageOf(plan.status()));
  std::string lines;
  for (const PlanNode& node : (*plan)->nodes) {
    std::vector<std::string> next, places;
    for (const uint32_t successor : node.successors) {
      next.push_back((*plan)->nodes[successor].node->name());
    }
    for (const uint32_t s : node.outputs) {
      const PlanValue& value = (*plan)->values[s];
      static constexpr const char* kNames[] = {"arena", "constant", "feed", "pool", "provided"};
      places.push_back(fmt::format("{} read {}", kNames[int(value.storage)], value.uses));
    }
    lines += fmt::format("{} waits for {}, then {} | {}\n", node.node->name(), node.waits_for,
                         fmt::join(next, " "), fmt::join(places, ", "));
  }
  return lines;
}

// Memory of what an asynchronous node leads to is used again by whoever waits for it. A node that
// waits for nothing asynchronous must not begin to wait for the sake of memory: what it reads is
// not guarded against nodes that run before it in the order.
TEST(StepPlan, NoNodeWaitsForMemoryOfAsynchronousOnes) {
  EXPECT_THAT(PlanOf(R"(
zero = Constant() {value=int64 [] {0}}
clock = Clock() {workers=1}
w = ClockWait(clock, zero, zero)
r = Cast(w) {dtype=float32}
a = Exp(r)
b = Exp(a)
x = Placeholder() {dtype=float32, shape=[]}
n = Neg(x) ^clock
d = Add(n, b)
feed x
fetch d
)"),
              HasSubstr("n waits for 1, then d |"));
}

// Who reads the view counts as a reader of its bytes only where the view is elided.
TEST(StepPlan, WhatAViewOfUnknownShapeShowsIsNotInTheArena) {
  EXPECT_THAT(PlanOf(R"(
x = Placeholder() {dtype=float32, shape=[4]}
s = Placeholder() {dtype=int64, shape=[2]}
a = Neg(x)
v = Reshape(a, s)
b = Neg(x)
c = Exp(b)
d = Exp(c)
y = Exp(v)
feed x
feed s
fetch d
fetch y
)"),
              HasSubstr("a waits for 0, then v | pool read 1"));
}

TEST(StepPlan, IsInOrderWithCountsAndPlaces) {
  EXPECT_EQ(PlanOf(R"(
x = Placeholder() {dtype=float32, shape=[2, 2]}
c = Constant() {value=float32 [2, 2] {1, 2, 3, 4}}
a = Neg(x)
b = MatMul(a, c)
d = Add(a, b)
feed x
fetch d
)"),
            "a waits for 0, then b d | arena read 2\n"
            "b waits for 1, then d | arena read 1\n"
            "d waits for 2, then  | pool read 0\n");
}

TEST(StepPlan, ViewsOfPlannedMemoryNeedNoRun) {
  EXPECT_EQ(PlanOf(R"(
x = Placeholder() {dtype=float32, shape=[2, 3]}
shape = Constant() {value=int64 [1] {6}}
a = Neg(x)
b = Reshape(a, shape)
d = Exp(b)
feed x
fetch d
)"),
            "a waits for 0, then d | arena read 1\n"
            "d waits for 1, then  | pool read 0\n");
}

TEST(StepPlan, ReadersOfAVariableComeBeforeItsUpdate) {
  EXPECT_EQ(PlanOf(R"(
v = Variable() {dtype=float32, shape=[2]}
x = Placeholder() {dtype=float32, shape=[2]}
r = Neg(v)
u = AssignAdd(v, x)
feed x
fetch r
target u
)"),
            "v waits for 0, then r u | provided read 1\n"
            "r waits for 1, then u | pool read 0\n"
            "u waits for 2, then  | provided read 0\n");
}

TEST(StepPlan, ChecksPins) {
  EXPECT_EQ(ErrorOf({0, 64}), "no error");
  EXPECT_EQ(ErrorOf({1, 0}), "Neg \"y\": output 0 is pinned into arena 1; the program has 1");
  EXPECT_EQ(ErrorOf({-1, 0}), "Neg \"y\": output 0 is pinned into arena -1; the program has 1");
  EXPECT_THAT(ErrorOf({0, 8}), HasSubstr("Neg \"y\": output 0 is pinned at offset 8 of \"bucket\"; "
                                         "expected a multiple of 64, at most"));
  EXPECT_THAT(ErrorOf({0, SIZE_MAX - 63}), HasSubstr("expected a multiple of 64, at most"));
}

// A pinned value lies where its pin says, and the bucket's kernel learns that it is there.
TEST(StepPlan, PinnedValuesLieInTheirArena) {
  RegisterCpuKernels();
  auto program = ParseProgram(
      "x = Placeholder() {dtype=float32, shape=[2]}\n"
      "y = Neg(x)\n"
      "z = Neg(y)\n"
      "feed x\n"
      "fetch z\n"
      "arena unused registered\n"
      "arena bucket\n"
      "pin y bucket 128\n"
      "joined z\n");
  ASSERT_TRUE(program.ok()) << MessageOf(program.status());
  Device device("/job:local/task:0/cpu:0", 1);
  const auto plan = MakeStepPlan(*std::move(program), device);
  ASSERT_TRUE(plan.ok()) << MessageOf(plan.status());
  const PlanNode& y = (*plan)->nodes[0];
  const PlanValue& value = (*plan)->values[y.outputs[0]];
  ASSERT_EQ((*plan)->arenas.size(), 2u);
  EXPECT_EQ((*plan)->arenas[1].name, "bucket");
  EXPECT_EQ(value.storage, Storage::kArena);
  EXPECT_EQ(value.arena, 1);
  EXPECT_EQ(value.offset, 128u);
  EXPECT_FALSE(y.inputs_joined);
  EXPECT_TRUE((*plan)->nodes[1].inputs_joined);
}

}  // namespace
}  // namespace tutti
