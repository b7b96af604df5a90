#include <gtest/gtest.h>

#include "tutti/compile/passes/pass_testing.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

class FuseMatrixTest : public ::testing::Test {
 protected:
  FuseMatrixTest() { RegisterCpuKernels(); }
};

TEST_F(FuseMatrixTest, TakesBiasAndActivation) {
  EXPECT_EQ(TextAfter(FuseMatrix, R"(
x = Placeholder() {dtype=float32, shape=[2, 3]}
w = Placeholder() {dtype=float32, shape=[4, 3]}
b = Placeholder() {dtype=float32, shape=[4]}
m = MatMul(x, w) {transpose_b=true}
s = BiasAdd(m, b)
y = Relu(s)
feed x, w, b
fetch y
)"),
            "x = Placeholder() {dtype=float32, shape=[2, 3]}\n"
            "w = Placeholder() {dtype=float32, shape=[4, 3]}\n"
            "b = Placeholder() {dtype=float32, shape=[4]}\n"
            "y = _FusedMatMul(x, w, b) {activation=\"Relu\", transpose_b=true}\n"
            "feed x\nfeed w\nfeed b\n"
            "fetch y\n");
}

TEST_F(FuseMatrixTest, ABiasMayBeAddedFromTheLeft) {
  EXPECT_EQ(TextAfter(FuseMatrix, R"(
x = Placeholder() {dtype=float32, shape=[1, 4, 4, 2]}
f = Placeholder() {dtype=float32, shape=[3, 3, 2, 8]}
b = Placeholder() {dtype=float32, shape=[8]}
m = Conv2D(x, f) {padding="VALID"}
y = Add(b, m)
feed x, f, b
fetch y
)"),
            "x = Placeholder() {dtype=float32, shape=[1, 4, 4, 2]}\n"
            "f = Placeholder() {dtype=float32, shape=[3, 3, 2, 8]}\n"
            "b = Placeholder() {dtype=float32, shape=[8]}\n"
            "y = _FusedConv2D(x, f, b) {padding=\"VALID\"}\n"
            "feed x\nfeed f\nfeed b\n"
            "fetch y\n");
}

TEST_F(FuseMatrixTest, WhatOthersReadStays) {
  const std::string text =
      "x = Placeholder() {dtype=float32, shape=[2, 3]}\n"
      "w = Placeholder() {dtype=float32, shape=[3, 4]}\n"
      "m = MatMul(x, w)\n"
      "y = Relu(m)\n"
      "feed x\nfeed w\n"
      "fetch y\nfetch m\n";
  EXPECT_EQ(TextAfter(FuseMatrix, text), text);
}

TEST_F(FuseMatrixTest, LeavesOtherTypesEmptyMatricesAndOtherSumsAlone) {
  const std::string text =
      "x = Placeholder() {dtype=float64, shape=[2, 3]}\n"
      "w = Placeholder() {dtype=float64, shape=[3, 4]}\n"
      "m = MatMul(x, w)\n"
      "y = Relu(m)\n"
      "p = Placeholder() {dtype=float32, shape=[0, 3]}\n"
      "q = Placeholder() {dtype=float32, shape=[3, 4]}\n"
      "n = MatMul(p, q)\n"
      "z = Relu(n)\n"
      "k = MatMul(q, p) {transpose_a=true, transpose_b=true}\n"
      "r = Placeholder() {dtype=float32, shape=[2, 4]}\n"
      "t = MatMul(r, q) {transpose_b=true}\n"
      "u = Placeholder() {dtype=float32, shape=[2, 3]}\n"
      "v = Add(t, u)\n"
      "feed x\nfeed w\nfeed p\nfeed q\nfeed r\nfeed u\n"
      "fetch y\nfetch z\nfetch k\nfetch v\n";
  EXPECT_EQ(TextAfter(FuseMatrix, text), text);
}

}  // namespace
}  // namespace tutti
