#include "tutti/compile/memory_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/compile/partition.h"
#include "tutti/compile/passes/pass_testing.h"
#include "tutti/compile/place.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

using ::testing::EndsWith;

// Each of these passes finds something to rewrite, and changes the ids of what follows it.
constexpr std::string_view kProgram =
    "unused = Placeholder() {dtype=float32, shape=[2]}\n"
    "x = Placeholder() {dtype=float32, shape=[8]}\n"
    "dead = Exp(x)\n"
    "one = Constant() {value=float32 [] {1}}\n"
    "two = Constant() {value=float32 [] {2}}\n"
    "three = Add(one, two)\n"
    "same = Mul(x, one)\n"
    "a = Neg(same)\n"
    "b = Mul(a, three)\n"
    "c = Mul(a, three)\n"
    "s = AllReduce(b)\n"
    "y = Sub(s, c)\n"
    "feed unused, x\n"
    "fetch y\n"
    "layout b A8a\n"
    "arena first\n"
    "arena s registered\n"
    "pin b s 64\n"
    "joined s\n";
const std::string kTable = "layout b A8a\narena first\narena s registered\npin b s 64\njoined s\n";

TEST(MemoryTable, SurvivesPassesThatCopyNodes) {
  RegisterCpuKernels();
  Device device("/job:local/task:0/cpu:0", 1);
  for (const Pass pass : {Prune, FoldConstants, Simplify, MergeCommon}) {
    EXPECT_THAT(TextAfter(pass, kProgram, {.device = &device, .folding = &device}),
                EndsWith(kTable));
  }
}

TEST(MemoryTable, SurvivesPlacingAndCutting) {
  Device first("/job:local/task:0/cpu:0", 1), second("/job:local/task:0/cpu:1", 1);
  const DeviceInfo devices[] = {first.info(), second.info()};
  const auto program = ParseProgram(kProgram);
  ASSERT_TRUE(program.ok()) << MessageOf(program.status());
  const auto placed = Place(*program, devices);
  ASSERT_TRUE(placed.ok()) << MessageOf(placed.status());
  EXPECT_THAT(ToText(*placed), EndsWith(kTable));
  const auto parts = CutByDevice(*placed, devices);
  ASSERT_TRUE(parts.ok()) << MessageOf(parts.status());
  ASSERT_EQ(parts->size(), 1u);
  EXPECT_THAT(ToText(parts->front().program), EndsWith(kTable));
}

// Ids of the copy differ from those of the original.
TEST(MemoryTable, FollowsANodeToItsCopy) {
  auto program = ParseProgram("z = NoOp()\nx = Placeholder() {dtype=float32, shape=[8]}\nfeed x");
  ASSERT_TRUE(program.ok()) << MessageOf(program.status());
  const Output x = program->feeds[0];
  program->memory.SetLayout(x, Layout("A8a"));
  program->memory.SetPin(x, {program->memory.AddArena("a", ""), 192});
  ProgramCopy copy(*program);
  const auto made = copy.Copy(*x.node);
  ASSERT_TRUE(made.ok()) << MessageOf(made.status());
  ASSERT_EQ((*made)->id(), 0);
  EXPECT_EQ(copy.memory().LayoutOf((*made)->output()), Layout("A8a"));
  ASSERT_NE(copy.memory().PinOf((*made)->output()), nullptr);
  EXPECT_EQ(*copy.memory().PinOf((*made)->output()), (Pin{0, 192}));
  EXPECT_EQ(copy.memory().arenas, program->memory.arenas);
  copy.memory().SetLayout((*made)->output(), Layout());
  EXPECT_TRUE(copy.memory().layouts.empty());
}

}  // namespace
}  // namespace tutti
