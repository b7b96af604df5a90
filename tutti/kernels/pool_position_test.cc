// Max-pooling with positions gives, bit by bit, what MaxPool and MaxPoolGrad give.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::KernelChoice;
using testing::KernelRunner;
using testing::Random;
using testing::RandomTensor;
using testing::SweepCount;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

absl::StatusOr<std::vector<Tensor>> TryOp(KernelChoice choice, std::string_view op,
                                          std::vector<Tensor> inputs, const AttrList& attrs,
                                          int cores = 1) {
  RegisterCpuKernels();
  KernelRunner runner(choice, cores);
  return runner.RunOp(op, inputs, attrs);
}

std::vector<Tensor> RunOp(KernelChoice choice, std::string_view op, std::vector<Tensor> inputs,
                          const AttrList& attrs, int cores = 1) {
  auto result = TryOp(choice, op, std::move(inputs), attrs, cores);
  EXPECT_TRUE(result.ok()) << MessageOf(result.status());
  return result.ok() ? *std::move(result) : std::vector<Tensor>(2);
}

AttrList Window(std::vector<int64_t> window, std::vector<int64_t> strides, std::string padding) {
  AttrList attrs;
  SetAttr(attrs, "window", std::move(window));
  SetAttr(attrs, "strides", std::move(strides));
  SetAttr(attrs, "padding", std::move(padding));
  return attrs;
}

AttrList WithShape(AttrList attrs, const Shape& x) {
  SetAttr(attrs, "x_shape", x);
  return attrs;
}

struct RandomPool {
  AttrList attrs;
  Shape x;
};

RandomPool AnyPool(Random& random) {
  const std::vector<int64_t> window = {random.Integer(1, 3), random.Integer(1, 3)};
  const std::vector<int64_t> strides = {random.Integer(1, 3), random.Integer(1, 3)};
  return {Window(window, strides, random.Coin() ? "SAME" : "VALID"),
          Shape{random.Integer(0, 3), window[0] + random.Integer(0, 6),
                window[1] + random.Integer(0, 6),
                random.Pick<int64_t>({0, 1, 3, 7, 8, 9, 16, 19, 40})}};
}

// Two by two, side by side and to the edge, which has loops of its own.
RandomPool Quads(Random& random) {
  return {Window({2, 2}, {2, 2}, random.Coin() ? "SAME" : "VALID"),
          Shape{random.Integer(1, 3), 2 * random.Integer(1, 4), 2 * random.Integer(1, 4),
                random.Pick<int64_t>({8, 16, 19, 48})}};
}

// Few values, so that maxima are equal often, and now and then NaN, an infinity or -0.
Tensor WithTies(Random& random, const Shape& shape) {
  Tensor tensor(kFloat32, shape);
  for (float& value : tensor.values<float>()) {
    const int64_t number = random.Integer(-3, 40);
    value = number == 40   ? kNaN
            : number == 39 ? -0.0f
            : number == 38 ? -std::numeric_limits<float>::infinity()
                           : float(number % 3);
  }
  return tensor;
}

void ExpectSameBits(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  ASSERT_EQ(actual.dtype(), expected.dtype()) << what;
  EXPECT_EQ(std::memcmp(actual.raw(), expected.raw(), expected.bytes()), 0)
      << what << ": " << actual.ToString() << ", expected " << expected.ToString();
}

TEST(MaxPoolWithPositions, EqualsMaxPoolBitByBit) {
  const int cases = SweepCount(300, 20000);
  for (int seed = 0; seed < cases; ++seed) {
    Random random(uint64_t(seed) + 1);
    const RandomPool pool = seed % 4 == 0 ? Quads(random) : AnyPool(random);
    const AttrList& attrs = pool.attrs;
    const Shape& shape = pool.x;
    const Tensor x = WithTies(random, shape);
    const int cores = int(random.Integer(1, 2));
    for (const KernelChoice choice : {KernelChoice::kCpuOnly, KernelChoice::kReference}) {
      const std::string what =
          fmt::format("seed {}, {} kernel, x {}", seed,
                      choice == KernelChoice::kCpuOnly ? "cpu" : "reference", shape.ToString());
      const Tensor y = RunOp(choice, "MaxPool", {x}, attrs)[0];
      const auto pooled = RunOp(choice, "_MaxPoolWithPositions", {x}, attrs, cores);
      ExpectSameBits(pooled[0], y, what);
      const Tensor dy = RandomTensor(random, kFloat32, y.shape());
      ExpectSameBits(RunOp(choice, "_MaxPoolGradWithPositions", {dy, pooled[1]},
                           WithShape(attrs, shape), cores)[0],
                     RunOp(choice, "MaxPoolGrad", {x, y, dy}, attrs)[0], what);
      const auto reference = RunOp(KernelChoice::kReference, "_MaxPoolWithPositions", {x}, attrs);
      ExpectSameBits(pooled[1], reference[1], what + ", positions");
    }
  }
}

TEST(MaxPoolWithPositions, CountsRowByRowFromWhereTheWindowBegins) {
  const Tensor x = Tensor::Of<float>({1, 3, 3, 1}, {9, 1, 1, 1, 1, kNaN, 1, 2, 2});
  for (const KernelChoice choice : {KernelChoice::kCpuOnly, KernelChoice::kReference}) {
    // One row and one column of padding come first: the corner of the image is position 4.
    const auto result = RunOp(choice, "_MaxPoolWithPositions", {x}, Window({3, 3}, {2, 2}, "SAME"));
    EXPECT_EQ(result[0].ToString(), "float32 [1, 2, 2, 1] {9, nan, 2, nan}");
    EXPECT_EQ(result[1].ToString(), "uint8 [1, 2, 2, 1] {4, 7, 5, 1}");
  }
}

// Positions that are none, which no pooling makes, reach nothing.
TEST(MaxPoolWithPositions, APositionBeyondTheWindowTakesNoGradient) {
  const Tensor dy = Tensor::Of<float>({1, 1, 2, 1}, {5, 7});
  const Tensor positions = Tensor::Of<uint8_t>({1, 1, 2, 1}, {255, 3});
  const AttrList attrs = WithShape(Window({2, 2}, {2, 2}, "VALID"), {1, 2, 4, 1});
  for (const KernelChoice choice : {KernelChoice::kCpuOnly, KernelChoice::kReference}) {
    EXPECT_EQ(RunOp(choice, "_MaxPoolGradWithPositions", {dy, positions}, attrs)[0].ToString(),
              "float32 [1, 2, 4, 1] {0, 0, 0, 0, 0, 0, 0, 7}");
  }
}

TEST(MaxPoolWithPositions, RefusesWhatDoesNotFit) {
  const auto message = [](std::string_view op, std::vector<Tensor> inputs, const AttrList& attrs) {
    return std::string(
        MessageOf(TryOp(KernelChoice::kReference, op, std::move(inputs), attrs).status()));
  };
  EXPECT_THAT(message("_MaxPoolWithPositions", {Tensor(kFloat32, {1, 20, 20, 1})},
                      Window({17, 16}, {1, 1}, "VALID")),
              HasSubstr("the window is [17, 16]; with positions it can have 256 elements at most"));
  const AttrList attrs = WithShape(Window({2, 2}, {2, 2}, "VALID"), {1, 4, 4, 1});
  EXPECT_THAT(message("_MaxPoolGradWithPositions",
                      {Tensor(kFloat32, {1, 2, 2, 1}), Tensor(kUInt8, {1, 2, 1, 1})}, attrs),
              HasSubstr("positions is [1, 2, 1, 1], but pooling [1, 4, 4, 1] gives [1, 2, 2, 1]"));
  EXPECT_THAT(message("_MaxPoolGradWithPositions",
                      {Tensor(kFloat32, {1, 2, 2, 1}), Tensor(kUInt8, {1, 2, 2, 1})},
                      WithShape(attrs, {4, 4})),
              HasSubstr("x_shape must have 4 dimensions; got [4, 4]"));
}

}  // namespace
}  // namespace tutti
