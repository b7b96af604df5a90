#include "tutti/graph/number.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "tutti/base/error.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <typename T>
std::string As(T number, DType dtype) {
  const auto result = NumberAs(Tensor::Scalar<T>(number), dtype);
  return result.ok() ? result->ToString() : std::string(result.status().message());
}

TEST(NumberAs, KeepsTheValueOrNamesIt) {
  EXPECT_EQ(As(127, kInt8), "int8 [] {127}");
  EXPECT_EQ(As(128, kInt8),
            "the number 128 cannot be int8, which holds whole numbers from -128 to 127");
  EXPECT_EQ(As(-1, kUInt64),
            "the number -1 cannot be uint64, which holds whole numbers from 0 to "
            "18446744073709551615");
  EXPECT_EQ(As(uint64_t{1} << 63, kInt64),
            "the number 9223372036854775808 cannot be int64, which holds whole numbers from "
            "-9223372036854775808 to 9223372036854775807");
  EXPECT_EQ(As(3.0, kInt32), "int32 [] {3}");
  EXPECT_EQ(As(1.5, kInt32),
            "the number 1.5 cannot be int32, which holds whole numbers from -2147483648 to "
            "2147483647");
  EXPECT_EQ(As(0x1p63, kInt64).substr(0, 48), "the number 9.223372036854776e+18 cannot be int64");
  EXPECT_EQ(As(-0x1p63, kInt64), "int64 [] {-9223372036854775808}");
  EXPECT_EQ(As(1, kBool), "bool [] {true}");
  EXPECT_EQ(As(true, kFloat32), "float32 [] {1}");
  EXPECT_EQ(As(2, kBool), "the number 2 cannot be bool, which holds 0 and 1");
}

TEST(NumberAs, LetsFloatingTypesRoundButNotOverflow) {
  EXPECT_EQ(As(0.1, kFloat32), "float32 [] {0.1}");
  EXPECT_EQ(As(1e-300, kFloat32), "float32 [] {0}");
  EXPECT_EQ(As(1e300, kFloat32),
            "the number 1e+300 cannot be float32, which holds magnitudes up to 3.4e+38");
  EXPECT_EQ(As(1e300, kBFloat16),
            "the number 1e+300 cannot be bfloat16, which holds magnitudes up to 3.4e+38");
  EXPECT_EQ(As(65504, kFloat16), "float16 [] {65504}");
  EXPECT_EQ(As(100000, kFloat16),
            "the number 100000 cannot be float16, which holds magnitudes up to 65504");
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    EXPECT_TRUE(NumberAs(infinity, dtype).ok()) << NameOf(dtype);
    EXPECT_TRUE(NumberAs(std::numeric_limits<double>::quiet_NaN(), dtype).ok()) << NameOf(dtype);
  }
  EXPECT_FALSE(NumberAs(infinity, kInt32).ok());
  EXPECT_FALSE(NumberAs(std::numeric_limits<double>::quiet_NaN(), kUInt8).ok());
}

template <typename Build>
std::string MessageOfError(Build&& build) {
  try {
    build();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(NumberAs, GuardsTheLiteralsOfOps) {
  Graph graph;
  const Output bytes = Placeholder(graph, kInt8, {2});
  const Output ints = Placeholder(graph, kInt32, {2});
  const Output floats = Placeholder(graph, kFloat32, {2});
  EXPECT_THAT(MessageOfError([&] { bytes + 300; }),
              AllOf(HasSubstr("Add (number_test.cc:"),
                    HasSubstr("input 1: the number 300 cannot be int8"), HasSubstr("or Cast")));
  EXPECT_THAT(MessageOfError([&] { Mul(1.5, ints); }),
              HasSubstr("input 0: the number 1.5 cannot be int32"));
  EXPECT_THAT(MessageOfError([&] { floats * 1e300; }),
              HasSubstr("input 1: the number 1e+300 cannot be float32"));
  EXPECT_EQ((floats * 2).dtype(), kFloat32);
  EXPECT_EQ((ints + 2.0).dtype(), kInt32);
}

TEST(NumberAs, GuardsTheAttributesOfOneHotAndPad) {
  Graph graph;
  const Output labels = Placeholder(graph, kInt32, {2});
  EXPECT_THAT(MessageOfError([&] { OneHot(labels, 3, {.dtype = kInt8, .on_value = 300}); }),
              HasSubstr("on_value: the number 300 cannot be int8"));
  EXPECT_THAT(MessageOfError([&] { OneHot(labels, 3, {.dtype = kInt32, .off_value = 0.5}); }),
              HasSubstr("off_value: the number 0.5 cannot be int32"));
  EXPECT_THAT(MessageOfError([&] {
                Pad(labels, {1, 1}, 0.5);
              }),
              HasSubstr("value: the number 0.5 cannot be int32"));
}

}  // namespace
}  // namespace tutti
