#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"

namespace tutti {
namespace {

TEST(MergeCommon, ComputesOnceWhatIsTheSame) {
  EXPECT_EQ(TextAfter(MergeCommon, R"(
x = Placeholder() {dtype=float32, shape=[2, 2]}
c = Constant() {value=float32 [2, 2] {1, 2, 3, 4}}
d = Constant() {value=float32 [2, 2] {1, 2, 3, 4}}
a = MatMul(x, c)
b = MatMul(x, d) {transpose_a=false}
p = MatMul(a, b)
q = MatMul(b, a)
feed x
fetch p
fetch q
)"),
            "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
            "c = Constant() {value=float32 [2, 2] {1, 2, 3, 4}}\n"
            "a = MatMul(x, c)\n"
            "p = MatMul(a, a)\n"
            "feed x\n"
            "fetch p\n"
            "fetch p\n");
}

TEST(MergeCommon, InputsOfSymmetricOpsMayChangePlaces) {
  EXPECT_EQ(TextAfter(MergeCommon, R"(
x = Placeholder() {dtype=float32, shape=[]}
y = Placeholder() {dtype=float32, shape=[]}
a = Mul(x, y)
b = Mul(y, x)
c = Sub(x, y)
d = Sub(y, x)
z = AddN(a, b, c, d)
feed x, y
fetch z
)"),
            "x = Placeholder() {dtype=float32, shape=[]}\n"
            "y = Placeholder() {dtype=float32, shape=[]}\n"
            "a = Mul(x, y)\n"
            "c = Sub(x, y)\n"
            "d = Sub(y, x)\n"
            "z = AddN(a, a, c, d)\n"
            "feed x\n"
            "feed y\n"
            "fetch z\n");
}

TEST(MergeCommon, EveryDifferenceCounts) {
  const std::string text =
      "x = Placeholder() {dtype=float32, shape=[2, 2]}\n"
      "x2 = Placeholder() {dtype=float32, shape=[2, 2]}\n"
      "n = NoOp()\n"
      "n2 = NoOp()\n"
      "v = Variable() {dtype=float32, shape=[]}\n"
      "v2 = Variable() {dtype=float32, shape=[]}\n"
      "zero = Constant() {value=float32 [] {0}}\n"
      "minus = Constant() {value=float32 [] {-0}}\n"
      "double = Constant() {value=float64 [] {0}}\n"
      "a = MatMul(x, x)\n"
      "b = MatMul(x, x) {transpose_a=true}\n"
      "c = MatMul(x, x) ^n\n"
      "d = MatMul(x, x) ^n2\n"
      "e = MatMul(x, x) @/cpu:1\n"
      "f = MatMul(x, x) {_note=1}\n"
      "g = MatMul(x, x2)\n"
      "h = BatchMatMul(x, x)\n"
      "feed x\n"
      "feed x2\n";
  EXPECT_EQ(TextAfter(MergeCommon, text), text);
}

TEST(MergeCommon, ControlEdgesAndTargetsGoToTheOneThatStays) {
  EXPECT_EQ(TextAfter(MergeCommon, R"(
x = Placeholder() {dtype=float32, shape=[]}
a = Identity(x)
b = Identity(x)
n = NoOp() ^a ^b
m = NoOp() ^b
feed x
target b
target n
target m
target a
)"),
            "x = Placeholder() {dtype=float32, shape=[]}\n"
            "a = Identity(x)\n"
            "n = NoOp() ^a\n"
            "m = NoOp() ^a\n"
            "feed x\n"
            "target a\n"
            "target n\n"
            "target m\n");
}

}  // namespace
}  // namespace tutti
