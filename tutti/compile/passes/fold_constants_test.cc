#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/compile/pipeline.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

std::string Folded(std::string_view text) {
  RegisterCpuKernels();
  Device device("/job:local/task:0/cpu:0", 1);
  return TextAfter(FoldConstants, text, {.folding = &device});
}

TEST(FoldConstants, EvaluatesWhatIsConstant) {
  EXPECT_EQ(Folded(R"(
a = Constant() {value=float32 [2, 2] {1, 2, 3, 4}}
b = Constant() {value=float32 [2, 2] {1, 0, 0, 1}}
c = MatMul(a, b) {transpose_a=true} @/cpu:0
d = MatMul(c, c)
x = Placeholder() {dtype=float32, shape=[2, 2]}
y = MatMul(x, d)
feed x
fetch y
)"),
            "d = Constant() {value=float32 [2, 2] {7, 15, 10, 22}}\n"
            "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
            "y = MatMul(x, d)\n"
            "feed x\n"
            "fetch y\n");
}

TEST(FoldConstants, KnownShapesAreConstants) {
  EXPECT_EQ(Folded(R"(
x = Placeholder() {dtype=float32, shape=[2, 3]}
u = Placeholder() {dtype=float32, shape=[?, 3]}
shape = Shape(x) {dtype=int32}
size = Size(x)
rank = Rank(u)
open = Shape(u)
n = NoOp() ^shape
feed x
feed u
fetch shape
fetch size
fetch rank
fetch open
target n
)"),
            "x = Placeholder() {dtype=float32, shape=[2, 3]}\n"
            "u = Placeholder() {dtype=float32, shape=[?, 3]}\n"
            "shape = Constant() {value=int32 [2] {2, 3}}\n"
            "size = Constant() {value=int64 [] {6}}\n"
            "rank = Constant() {value=int64 [] {2}}\n"
            "open = Shape(u)\n"
            "n = NoOp() ^x\n"
            "feed x\n"
            "feed u\n"
            "fetch shape\n"
            "fetch size\n"
            "fetch rank\n"
            "fetch open\n"
            "target n\n");
}

TEST(FoldConstants, ShapesBecomeKnownDownstream) {
  EXPECT_EQ(Folded(R"(
x = Placeholder() {dtype=float32, shape=[2, 3]}
s = Shape(x)
r = Reverse(s) {axes=[0]}
y = Placeholder() {dtype=float32, shape=[6]}
z = Reshape(y, r)
q = Shape(z)
feed x
feed y
fetch q
)"),
            "x = Placeholder() {dtype=float32, shape=[2, 3]}\n"
            "y = Placeholder() {dtype=float32, shape=[6]}\n"
            "q = Constant() {value=int64 [2] {3, 2}}\n"
            "feed x\n"
            "feed y\n"
            "fetch q\n");
}

TEST(FoldConstants, EveryOutputIsReplaced) {
  EXPECT_EQ(Folded(R"(
c = Constant() {value=int32 [4] {1, 2, 3, 4}}
s, = Split(c) {axis=0, num=2}
fetch s:1
fetch s
target s
)"),
            "s = Constant() {value=int32 [2] {1, 2}}\n"
            "s.1 = Constant() {value=int32 [2] {3, 4}}\n"
            "fetch s.1\n"
            "fetch s\n"
            "target s\n");
}

TEST(FoldConstants, LeavesStateControlEdgesAndLargeResultsAlone) {
  const std::string text =
      "v = Variable() {dtype=float32, shape=[2]}\n"
      "c = Constant() {value=float32 [2] {1, 2}}\n"
      "a = Assign(v, c)\n"
      "s = Shape(a)\n"
      "i = Identity(c) ^a\n"
      "late = Constant() {value=float32 [2] {1, 2}} ^a\n"
      "j = Identity(late)\n"
      "dims = Constant() {value=int64 [2] {1000, 1000}}\n"
      "one = Constant() {value=float32 [] {1}}\n"
      "big = Fill(dims, one)\n"
      "fetch s\n"
      "fetch i\n"
      "fetch j\n"
      "fetch big\n";
  EXPECT_EQ(Folded(text), text);
}

const std::string kTwoTypes =
    "a = Constant() {value=float32 [2] {1, 2}}\n"
    "b = Neg(a) @/job:local/task:0/cpu:0\n"
    "c = Neg(a) @/job:local/task:0/other:0\n"
    "x = Placeholder() {dtype=float32, shape=[2]}\n"
    "s = Shape(x)\n"
    "fetch b\n"
    "fetch c\n"
    "fetch s\n";

// A master may know devices that it has no kernels for.
TEST(FoldConstants, LeavesNodesOfOtherTypesOfDevice) {
  EXPECT_EQ(Folded(kTwoTypes),
            "a = Constant() {value=float32 [2] {1, 2}}\n"
            "b = Constant() {value=float32 [2] {-1, -2}} @/job:local/task:0/cpu:0\n"
            "c = Neg(a) @/job:local/task:0/other:0\n"
            "s = Constant() {value=int64 [1] {2}}\n"
            "fetch b\nfetch c\nfetch s\n");
}

// What a known shape tells needs no kernel.
TEST(FoldConstants, RunsNoKernelWithoutADevice) {
  RegisterCpuKernels();
  EXPECT_EQ(TextAfter(FoldConstants, kTwoTypes),
            "a = Constant() {value=float32 [2] {1, 2}}\n"
            "b = Neg(a) @/job:local/task:0/cpu:0\n"
            "c = Neg(a) @/job:local/task:0/other:0\n"
            "s = Constant() {value=int64 [1] {2}}\n"
            "fetch b\nfetch c\nfetch s\n");
}

TEST(FoldConstants, AProgramIsCompiledWithoutADevice) {
  RegisterCpuKernels();
  Device device("/job:local/task:0/cpu:0", 1);
  const DeviceInfo devices[] = {device.info()};
  const auto program = ParseProgram(
      "a = Constant() {value=float32 [2] {1, 2}}\n"
      "b = Neg(a)\n"
      "fetch b\n");
  ASSERT_TRUE(program.ok()) << MessageOf(program.status());
  for (const bool fold : {true, false}) {
    const auto parts = CompileWhole(*program, devices, fold ? &device : nullptr, {});
    ASSERT_TRUE(parts.ok()) << MessageOf(parts.status());
    ASSERT_EQ(parts->size(), 1u);
    EXPECT_EQ(parts->front().program.fetches[0].node->op(), fold ? "Constant" : "Neg");
  }
}

}  // namespace
}  // namespace tutti
