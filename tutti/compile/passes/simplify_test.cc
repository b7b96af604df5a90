#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

// What Simplify makes of `lines` about the inputs x, of shape [2, 3], and m, of shape [3, 2],
// without the lines of the inputs.
std::string Simple(std::string_view lines) {
  RegisterCpuKernels();
  const std::string inputs =
      "x = Placeholder() {dtype=float32, shape=[2, 3]}\n"
      "m = Placeholder() {dtype=float32, shape=[3, 2]}\n";
  const std::string feeds = "feed x\nfeed m\n";
  std::string text = TextAfter(Simplify, inputs + std::string(lines) + feeds);
  for (const std::string& part : {inputs, feeds}) {
    if (const size_t at = text.find(part); at != std::string::npos) text.erase(at, part.size());
  }
  return text;
}

constexpr char kZero[] = "c = Constant() {value=float32 [] {0}}\n";
constexpr char kOne[] = "c = Constant() {value=float32 [1, 3] {1, 1, 1}}\n";

TEST(Simplify, NeutralElements) {
  for (const char* line : {"y = Add(x, c)\n", "y = Add(c, x)\n", "y = Sub(x, c)\n"}) {
    EXPECT_EQ(Simple(std::string(kZero) + line + "fetch y\n"), "fetch x\n") << line;
  }
  for (const char* line : {"y = Mul(x, c)\n", "y = Mul(c, x)\n", "y = Div(x, c)\n"}) {
    EXPECT_EQ(Simple(std::string(kOne) + line + "fetch y\n"), "fetch x\n") << line;
  }
}

TEST(Simplify, NotThoseThatChangeTheValueOrShape) {
  for (const char* lines :
       {"c = Constant() {value=float32 [] {0}}\ny = Mul(x, c)\nfetch y\n",
        "c = Constant() {value=float32 [] {0}}\ny = Sub(c, x)\nfetch y\n",
        "c = Constant() {value=float32 [] {1}}\ny = Div(c, x)\nfetch y\n",
        "c = Constant() {value=float32 [4, 1, 1] {0, 0, 0, 0}}\ny = Add(x, c)\nfetch y\n",
        "c = Constant() {value=float32 [3] {1, 1, 0}}\ny = Mul(x, c)\nfetch y\n"}) {
    EXPECT_EQ(Simple(lines), lines);
  }
}

TEST(Simplify, WhatOnlyRepeatsItsInput) {
  EXPECT_EQ(Simple("a = Identity(x)\nb = StopGradient(a)\nc = AddN(b)\nd = Cast(c) "
                   "{dtype=float32}\nfetch d\n"),
            "fetch x\n");
  EXPECT_EQ(Simple("a = Neg(x)\nb = Neg(a)\nc = Neg(b)\nfetch c\n"), "c = Neg(x)\nfetch c\n");
  EXPECT_EQ(Simple("a = IsFinite(x)\nb = LogicalNot(a)\nc = LogicalNot(b)\nfetch c\n"),
            "a = IsFinite(x)\nfetch a\n");
  EXPECT_EQ(
      Simple("s = Constant() {value=int64 [2] {2, 3}}\na = SumToShape(x, s)\nb = BroadcastTo(a, "
             "s)\nc = Reshape(b, s)\nfetch c\n"),
      "fetch x\n");
  EXPECT_EQ(Simple("a = Squeeze(x)\nfetch a\n"), "fetch x\n");
}

TEST(Simplify, CheaperOps) {
  EXPECT_EQ(Simple("y = Mul(x, x)\nfetch y\n"), "y = Square(x)\nfetch y\n");
  EXPECT_EQ(Simple("c = Constant() {value=float32 [3] {2, 4, -0.5}}\ny = Div(x, c)\nfetch y\n"),
            "y.reciprocal = Constant() {value=float32 [3] {0.5, 0.25, -2}}\n"
            "y = Mul(x, y.reciprocal)\nfetch y\n");
  const std::string inexact = "c = Constant() {value=float32 [] {3}}\ny = Div(x, c)\nfetch y\n";
  EXPECT_EQ(Simple(inexact), inexact);
}

TEST(Simplify, ReshapeOfReshape) {
  EXPECT_EQ(Simple("s = Constant() {value=int64 [1] {6}}\n"
                   "t = Constant() {value=int64 [2] {3, -1}}\n"
                   "a = Reshape(x, s)\nb = ExpandDims(a) {axis=0}\nc = Reshape(b, t)\nfetch c\n"),
            "t = Constant() {value=int64 [2] {3, -1}}\n"
            "c = Reshape(x, t)\nfetch c\n");
}

TEST(Simplify, Transposes) {
  EXPECT_EQ(Simple("a = Transpose(x)\nb = Transpose(a)\nfetch b\n"), "fetch x\n");
  EXPECT_EQ(Simple("a = Transpose(x) {perm=[0, 1]}\nfetch a\n"), "fetch x\n");
  EXPECT_EQ(Simple("e = ExpandDims(x) {axis=0}\na = Transpose(e) {perm=[1, 2, 0]}\n"
                   "b = Transpose(a) {perm=[1, 0, 2]}\nfetch b\n"),
            "e = ExpandDims(x) {axis=0}\n"
            "b = Transpose(e) {perm=[2, 1, 0]}\nfetch b\n");
}

TEST(Simplify, TransposesGoIntoMatMul) {
  EXPECT_EQ(Simple("a = Transpose(x)\ny = MatMul(a, x)\nfetch y\n"),
            "y = MatMul(x, x) {transpose_a=true}\nfetch y\n");
  EXPECT_EQ(Simple("a = Transpose(m)\nb = Transpose(x)\ny = MatMul(a, b) {transpose_a=true, "
                   "transpose_b=true}\nfetch y\n"),
            "y = MatMul(m, x) {transpose_a=false, transpose_b=false}\nfetch y\n");
  EXPECT_EQ(Simple("e = ExpandDims(x) {axis=0}\na = Transpose(e) {perm=[0, 2, 1]}\n"
                   "y = BatchMatMul(e, a)\nfetch y\n"),
            "e = ExpandDims(x) {axis=0}\n"
            "y = BatchMatMul(e, e) {transpose_b=true}\nfetch y\n");
}

TEST(Simplify, ReadsOfVariablesStay) {
  const std::string text =
      "v = Variable() {dtype=float32, shape=[2, 3]}\n"
      "r = Identity(v)\n"
      "w = Assign(v, x) ^r\n"
      "fetch r\ntarget w\n";
  EXPECT_EQ(Simple(text), text);
}

TEST(Simplify, WhatWaitsStaysAndOthersWaitForWhatIsLeft) {
  EXPECT_EQ(Simple("n = NoOp()\na = Identity(x) ^n\nb = Identity(a)\nc = NoOp() ^b\n"
                   "target c\ntarget b\n"),
            "n = NoOp()\na = Identity(x) ^n\nc = NoOp() ^a\ntarget c\ntarget a\n");
}

}  // namespace
}  // namespace tutti
