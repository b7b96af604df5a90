#include "tutti/compile/step_plan.h"

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
