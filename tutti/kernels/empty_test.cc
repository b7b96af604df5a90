// Tensors without elements whose other dimensions multiply past 2^63: nothing overflows, nothing
// runs through 2^62 empty rows, and every result is empty too.
#include <gtest/gtest.h>

#include "tutti/kernels/register.h"
#include "tutti/kernels/update/row_indices.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;

constexpr int64_t kHuge = int64_t{1} << 62;

const Shape kEmpty[] = {{0, kHuge, 8}, {kHuge, 0, 8}, {kHuge, 8, 0}};

class EmptyTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  EmptyTest() { RegisterCpuKernels(); }

  // The op gives an empty tensor, or says that its result would be too large.
  void ExpectEmpty(const std::string& op, const std::vector<Tensor>& inputs,
                   const AttrList& attrs = {}) {
    KernelRunner runner(GetParam());
    const auto results = runner.RunOp(op, inputs, attrs);
    std::string shapes;
    for (const Tensor& input : inputs) shapes += input.shape().ToString();
    if (!results.ok()) {
      EXPECT_EQ(results.status().code(), absl::StatusCode::kInvalidArgument)
          << op << shapes << ": " << results.status();
      return;
    }
    for (const Tensor& result : *results) EXPECT_EQ(result.elements(), 0) << op << shapes;
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, EmptyTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

TEST_P(EmptyTest, ElementwiseOps) {
  for (const Shape& shape : kEmpty) {
    const Tensor x(kFloat32, shape);
    for (const char* op : {"Neg", "Exp", "Relu", "Sigmoid", "IsFinite", "Softmax", "LogSoftmax",
                           "ZerosLike", "OnesLike", "Identity"}) {
      ExpectEmpty(op, {x});
    }
    for (const char* op : {"Add", "Mul", "Maximum", "Less", "Pow"}) {
      ExpectEmpty(op, {x, x});
      ExpectEmpty(op, {x, Tensor::Zeros(kFloat32, Shape{1, 1, 1})});
    }
  }
}

TEST_P(EmptyTest, ArrayOps) {
  const Tensor zero = Tensor::Vector<int64_t>({0});
  for (const Shape& shape : kEmpty) {
    const Tensor x(kFloat32, shape);
    ExpectEmpty("Transpose", {x}, {{"perm", std::vector<int64_t>{2, 0, 1}}});
    ExpectEmpty("Reshape", {x, Tensor::Vector<int64_t>({8, 0, kHuge})});
    ExpectEmpty("Reshape", {x, Tensor::Vector<int64_t>({0, kHuge, 8, kHuge})});
    for (int64_t axis = 0; axis < 3; ++axis) {
      const Attr at = {"axis", axis};
      ExpectEmpty("Pack", {x, x}, {at});
      ExpectEmpty("Reverse", {x}, {{"axes", std::vector<int64_t>{axis}}});
      ExpectEmpty("Cumsum", {x}, {at});
      ExpectEmpty("Gather", {x, Tensor(kInt64, {0})}, {at});
      if (shape[int(axis)] != kHuge) ExpectEmpty("Concat", {x, x}, {at});
      if (shape[int(axis)] > 0) ExpectEmpty("Gather", {x, zero}, {at});
      if (shape[int(axis)] == 8) {
        ExpectEmpty("Split", {x}, {at, {"num", int64_t{2}}});
        ExpectEmpty("Unpack", {x}, {at, {"num", int64_t{8}}});
      }
    }
    ExpectEmpty("GatherNd", {x, Tensor(kInt64, {0, 2})});
  }
}

TEST_P(EmptyTest, MatrixOps) {
  ExpectEmpty("BatchMatMul",
              {Tensor(kFloat32, {kHuge, 8, 0, 3}), Tensor(kFloat32, {kHuge, 8, 3, 0})});
  ExpectEmpty("BatchMatMul",
              {Tensor(kFloat32, {0, kHuge, 8, 3}), Tensor(kFloat32, {0, kHuge, 3, 8})});
}

TEST(RowIndices, AnEmptyTableMayHaveRowsOfAnyWidth) {
  EXPECT_EQ(RowWidth({0, kHuge, 8}), INT64_MAX);
  EXPECT_EQ(RowWidth({kHuge, 0, 8}), 0);
  const Tensor none(kInt64, {0}), one = Tensor::Vector<int64_t>({0});
  EXPECT_TRUE(RowIndices(none).CheckRows({0, kHuge, 8}, {0, kHuge, 8}).ok());
  EXPECT_FALSE(RowIndices(one).CheckRange({0, kHuge, 8}, "variable", "w").ok());
  EXPECT_TRUE(RowIndices(one).CheckRows({2, 3}, {1, 3}).ok());
  EXPECT_FALSE(RowIndices(one).CheckRows({2, 3}, {2, 3}).ok());
}

}  // namespace
}  // namespace tutti
