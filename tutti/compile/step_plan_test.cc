#include "tutti/compile/step_plan.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/program_text.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& attrs) {
  RegisterCpuKernels();
  auto program = ParseProgram(
      "x = Placeholder() {dtype=float32, shape=[2]}\n"
      "y = Neg(x) {" +
      attrs +
      "}\n"
      "z = Neg(y)\n"
      "feed x\n"
      "fetch z\n");
  EXPECT_TRUE(program.ok()) << MessageOf(program.status());
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
      const PlanSlot& slot = (*plan)->slots[s];
      static constexpr const char* kNames[] = {"arena", "constant", "feed", "pool", "provided"};
      places.push_back(fmt::format("{} read {}", kNames[int(slot.storage)], slot.uses));
    }
    lines += fmt::format("{} waits for {}, then {} | {}\n", node.node->name(), node.waits_for,
                         fmt::join(next, " "), fmt::join(places, ", "));
  }
  return lines;
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

TEST(StepPlan, ChecksTheNotesOfPasses) {
  EXPECT_EQ(ErrorOf("_pinned=strings [\"bucket@64\"], _arena_kind=\"\""), "no error");
  EXPECT_THAT(ErrorOf("_pinned=3"), HasSubstr("Neg \"y\": the note \"_pinned\" is a int"));
  EXPECT_THAT(ErrorOf("_pinned=strings [\"bucket\"]"),
              HasSubstr("\"bucket\"; expected \"arena@offset\""));
  EXPECT_THAT(ErrorOf("_pinned=strings [\"bucket@-1\"]"), HasSubstr("expected \"arena@offset\""));
  EXPECT_THAT(ErrorOf("_pinned=strings [\"bucket@99999999999999999999\"]"),
              HasSubstr("expected \"arena@offset\""));
  EXPECT_THAT(ErrorOf("_pinned=strings [\"bucket@8\"]"), HasSubstr("a multiple of 64"));
  EXPECT_THAT(ErrorOf("_arena_kind=3"), HasSubstr("the note \"_arena_kind\" is a int"));
  EXPECT_THAT(ErrorOf("_output_layouts=\"Ab8a\""),
              HasSubstr("the note \"_output_layouts\" is a string"));
}

}  // namespace
}  // namespace tutti
