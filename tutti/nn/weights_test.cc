// Mistakes with the variables of layers: what is said, where, and what is left of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/nn/nn.h"
#include "tutti/testing/error_of.h"

namespace tutti::nn {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::tutti::testing::ErrorOf;

Initializer Transposed(const Shape& shape, DType dtype) {
  return Zeros(shape.rank() == 2 ? Shape{shape[1], shape[0]} : Shape{shape[0] + 1}, dtype);
}
Initializer InFloat64(const Shape& shape, DType) { return Zeros(shape, kFloat64); }

class Weights : public ::testing::Test {
 protected:
  Output Floats(const Shape& shape) { return Placeholder(graph_, kFloat32, shape); }
  Graph graph_;
};

TEST_F(Weights, AForgottenCastIsBlamedOnTheCallOfTheLayer) {
  const Output image = Placeholder(graph_, kUInt8, {-1, 28, 28, 1}, "image");
  const Output row = Placeholder(graph_, kInt32, {-1, 8}, "row");
  const int line = __LINE__ + 1;
  const std::string error = ErrorOf([&] { Conv2d(image, 8, {3, 3}); });
  EXPECT_THAT(error, StartsWith("Conv2d (weights_test.cc:" + std::to_string(line) +
                                "): the input Placeholder \"image\""));
  EXPECT_THAT(error, HasSubstr("is uint8; expected a floating-point type: convert it with Cast(x, "
                               "kFloat32)"));
  EXPECT_THAT(ErrorOf([&] { Dense(row, 2); }), HasSubstr("is int32; expected a floating-point"));
  EXPECT_THAT(ErrorOf([&] { nn::BatchNorm(row); }), StartsWith("BatchNorm (weights_test.cc:"));
  EXPECT_THAT(ErrorOf([&] { nn::LayerNorm(row); }), StartsWith("LayerNorm (weights_test.cc:"));
  EXPECT_TRUE(Variables(graph_).empty());
}

TEST_F(Weights, AnInitialiserOfAnotherShapeOrTypeIsNamed) {
  EXPECT_THAT(ErrorOf([&] {
                Dense(Floats({-1, 8}), 3, {.weights = Transposed});
              }),
              HasSubstr("the initialiser of \"weights\" gave float32 [3, 8]; expected float32 [8, "
                        "3], the shape and type that it is called with"));
  EXPECT_THAT(ErrorOf([&] {
                Dense(Floats({-1, 8}), 3, {.biases = Transposed});
              }),
              HasSubstr("the initialiser of \"bias\" gave float32 [4]; expected float32 [3]"));
  EXPECT_THAT(ErrorOf([&] {
                Conv2d(Floats({-1, 8, 8, 2}), 3, {2, 2}, {.filter = InFloat64});
              }),
              HasSubstr("Conv2d (weights_test.cc:"));
  EXPECT_THAT(ErrorOf([&] {
                Conv2d(Floats({-1, 8, 8, 2}), 3, {2, 2}, {.filter = InFloat64});
              }),
              HasSubstr("gave float64 [2, 2, 2, 3]; expected float32 [2, 2, 2, 3]"));
  const Output ids = Placeholder(graph_, kInt32, {-1}, "ids");
  EXPECT_THAT(
      ErrorOf([&] { Embedding(ids, 5, 2, {.table = Transposed}); }),
      HasSubstr("the initialiser of \"table\" gave float32 [2, 5]; expected float32 [5, 2]"));
}

TEST_F(Weights, AnEmptyInitialiserIsAnError) {
  EXPECT_THAT(ErrorOf([&] {
                Dense(Floats({-1, 8}), 3, {.weights = nullptr});
              }),
              HasSubstr("the initialiser of \"weights\" is empty; use GlorotUniform"));
  EXPECT_THAT(ErrorOf([&] {
                Variable(graph_, Initializer{kFloat32, {2}, nullptr}, "w");
              }),
              HasSubstr("Variable \"w\" (weights_test.cc:"));
  EXPECT_EQ(graph_.Find("w"), nullptr);
}

TEST_F(Weights, ALayerCannotBeMadeInsideALoop) {
  const Output i = Constant(graph_, 0);
  const std::string error = ErrorOf([&] {
    While(
        {i, Floats({4, 8})}, [](std::span<const Output> v) { return Less(v[0], 5); },
        [](std::span<const Output> v) {
          return std::vector{Add(v[0], 1), Dense(v[1], 8)};
        });
  });
  EXPECT_THAT(error, HasSubstr("a variable cannot be made inside the branch of an If or the body "
                               "of a While"));
  EXPECT_THAT(error, HasSubstr("make it before the If or While and use it inside"));
}

}  // namespace
}  // namespace tutti::nn
