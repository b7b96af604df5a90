#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/random.h"

// Values and errors that the sweep over random inputs does not look at one by one.
namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::KernelChoice;
using testing::KernelRunner;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

absl::StatusOr<Tensor> RunOne(std::string_view op, std::vector<Tensor> inputs, AttrList attrs = {},
                              KernelChoice choice = KernelChoice::kCpu) {
  RegisterCpuKernels();
  KernelRunner runner(choice, 2);
  TUTTI_ASSIGN_OR_RETURN(const auto outputs, runner.RunOp(op, inputs, attrs));
  return outputs[0];
}

template <typename T>
std::vector<T> Values(const absl::StatusOr<Tensor>& tensor) {
  EXPECT_TRUE(tensor.ok()) << MessageOf(tensor.status());
  if (!tensor.ok()) return {};
  const auto values = tensor->values<T>();
  return {values.begin(), values.end()};
}

TEST(Elementwise, IntegerDivisionByZeroNamesTheElement) {
  const Tensor a = Tensor::Of<int32_t>({2, 2}, {1, 2, 3, 4});
  const Tensor b = Tensor::Of<int32_t>({2, 2}, {1, 1, 0, 1});
  for (const char* op : {"Div", "FloorDiv", "Mod"}) {
    const auto result = RunOne(op, {a, b});
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(MessageOf(result.status())),
                HasSubstr("integer division by zero: b[1, 0] is 0"));
  }
}

TEST(Elementwise, DividingTheSmallestIntegerByMinusOneWraps) {
  const int64_t least = std::numeric_limits<int64_t>::min();
  const Tensor a = Tensor::Vector<int64_t>({least, 7, -7});
  const Tensor b = Tensor::Vector<int64_t>({-1, -1, 2});
  EXPECT_EQ(Values<int64_t>(RunOne("Div", {a, b})), (std::vector<int64_t>{least, -7, -3}));
  EXPECT_EQ(Values<int64_t>(RunOne("FloorDiv", {a, b})), (std::vector<int64_t>{least, -7, -4}));
  EXPECT_EQ(Values<int64_t>(RunOne("Mod", {a, b})), (std::vector<int64_t>{0, 0, 1}));
}

TEST(Elementwise, IntegersWrapAround) {
  const Tensor a = Tensor::Vector<int8_t>({127, -128});
  EXPECT_EQ(Values<int8_t>(RunOne("Add", {a, Tensor::Vector<int8_t>({1, -1})})),
            (std::vector<int8_t>{-128, 127}));
  EXPECT_EQ(Values<int8_t>(RunOne("Neg", {a})), (std::vector<int8_t>{-127, -128}));
  EXPECT_EQ(Values<uint16_t>(RunOne("Square", {Tensor::Vector<uint16_t>({65535})})),
            (std::vector<uint16_t>{1}));
}

TEST(Elementwise, NegativePowerOfAnInteger) {
  const auto result = RunOne("Pow", {Tensor::Vector<int32_t>({2}), Tensor::Vector<int32_t>({-1})});
  EXPECT_THAT(std::string(MessageOf(result.status())),
              HasSubstr("negative power of an integer: b[0] is -1"));
}

TEST(Elementwise, ModHasTheSignOfTheDivisor) {
  const Tensor a = Tensor::Vector<float>({7, -7, 7, -7});
  const Tensor b = Tensor::Vector<float>({3, 3, -3, -3});
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kCpuOnly}) {
    EXPECT_EQ(Values<float>(RunOne("Mod", {a, b}, {}, choice)), (std::vector<float>{1, 2, -2, -1}));
  }
}

TEST(Elementwise, RoundGoesToEven) {
  const Tensor x = Tensor::Vector<float>({0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 2.4f, 1e9f});
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kCpuOnly}) {
    EXPECT_EQ(Values<float>(RunOne("Round", {x}, {}, choice)),
              (std::vector<float>{0, 2, 2, 0, -2, 2, 1e9f}));
  }
}

TEST(Elementwise, NaNGoesThrough) {
  const Tensor x = Tensor::Vector<float>({kNaN, kNaN, 1, 2, 3, 4, 5, 6, 7});
  const Tensor one = Tensor::Scalar<float>(1);
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kCpuOnly}) {
    for (const char* op : {"Relu", "Relu6", "Exp", "Log", "Tanh", "Sigmoid", "Gelu", "Sign", "Elu",
                           "Softplus", "Sin", "Erf"}) {
      EXPECT_TRUE(std::isnan(Values<float>(RunOne(op, {x}, {}, choice))[1])) << op;
    }
    for (const char* op : {"Maximum", "Minimum"}) {
      EXPECT_TRUE(std::isnan(Values<float>(RunOne(op, {x, one}, {}, choice))[0])) << op;
      EXPECT_TRUE(std::isnan(Values<float>(RunOne(op, {one, x}, {}, choice))[0])) << op;
    }
    for (const char* op : {"Greater", "GreaterEqual", "Less", "LessEqual", "Equal", "NotEqual"}) {
      const auto result = RunOne(op, {x, x}, {}, choice);
      ASSERT_TRUE(result.ok()) << MessageOf(result.status());
      EXPECT_EQ(result->data<bool>()[0], std::string_view(op) == "NotEqual") << op;
    }
    const AttrList bounds = {{"high", 3.0}, {"low", 2.0}};
    const auto clipped = Values<float>(RunOne("Clip", {x}, bounds, choice));
    EXPECT_TRUE(std::isnan(clipped[0]));
    EXPECT_EQ(clipped[2], 2);
    EXPECT_EQ(clipped[8], 3);
  }
}

TEST(Elementwise, EndsOfTheRange) {
  const Tensor x = Tensor::Vector<float>({-kInf, -200, -90, 0, 90, 200, kInf});
  EXPECT_THAT(
      Values<float>(RunOne("Exp", {x})),
      ::testing::ElementsAre(0, 0, ::testing::FloatNear(8.194e-40f, 1e-42f), 1, kInf, kInf, kInf));
  EXPECT_EQ(Values<float>(RunOne("Tanh", {x})), (std::vector<float>{-1, -1, -1, 0, 1, 1, 1}));
  EXPECT_EQ(Values<float>(RunOne("Softplus", {x}))[6], kInf);
  EXPECT_EQ(Values<float>(RunOne("Sigmoid", {x}))[0], 0);
  EXPECT_EQ(Values<float>(RunOne("Erf", {x})), (std::vector<float>{-1, -1, -1, 0, 1, 1, 1}));
  const auto log = Values<float>(RunOne("Log", {Tensor::Vector<float>({0, -1, kInf, 1, 1e-40f})}));
  EXPECT_EQ(log[0], -kInf);
  EXPECT_TRUE(std::isnan(log[1]));
  EXPECT_EQ(log[2], kInf);
  EXPECT_EQ(log[3], 0);
  EXPECT_NEAR(log[4], std::log(1e-40), 1e-4);
  EXPECT_EQ(Values<float>(RunOne("Log1p", {Tensor::Vector<float>({-1, 1e-10f, 3e38f})})),
            (std::vector<float>{-kInf, 1e-10f, std::log1p(3e38f)}));
}

// Against double, over all magnitudes: what vector_math-inl.h promises.
TEST(Elementwise, VectorFunctionsArePrecise) {
  struct Case {
    const char* op;
    double (*function)(double);
    double low, high, relative, absolute;
  };
  const Case cases[] = {
      {"Exp", std::exp, -87, 88, 4e-7, 0},
      {"Log", std::log, 1e-6, 1e6, 4e-7, 0},
      {"Log1p", std::log1p, -0.9, 100, 4e-7, 0},
      {"Tanh", std::tanh, -12, 12, 4e-7, 0},
      {"Erf", std::erf, -5, 5, 0, 1.2e-7},
      {"Sin", std::sin, -100, 100, 0, 4e-7},
      {"Cos", std::cos, -100, 100, 0, 4e-7},
      {"Sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -80, 80, 4e-7, 0},
      {"Gelu", [](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }, -6, 6, 4e-6, 0},
  };
  testing::Random random(7);
  for (const Case& c : cases) {
    const Tensor x = testing::RandomTensor(random, kFloat32, {20011}, c.low, c.high);
    const auto y = RunOne(c.op, {x}, {}, KernelChoice::kCpuOnly);
    ASSERT_TRUE(y.ok()) << MessageOf(y.status());
    for (int64_t i = 0; i < x.elements(); ++i) {
      const double expected = c.function(x.data<float>()[i]);
      ASSERT_NEAR(y->data<float>()[i], expected, c.absolute + c.relative * std::abs(expected))
          << c.op << "(" << x.data<float>()[i] << ")";
    }
  }
  const Tensor far = Tensor::Vector<float>({1e5f, -3e8f, 2, 1e30f});
  const auto sin = Values<float>(RunOne("Sin", {far}));
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(sin[i], std::sin(double(far.data<float>()[i])), 1e-6);
}

TEST(Elementwise, CastHoldsToTheRange) {
  const Tensor x = Tensor::Vector<float>({-1e30f, 1e30f, kNaN, -1.9f, 1.9f, kInf});
  EXPECT_EQ(Values<int32_t>(RunOne("Cast", {x}, {{"dtype", kInt32}})),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min(),
                                  std::numeric_limits<int32_t>::max(), 0, -1, 1,
                                  std::numeric_limits<int32_t>::max()}));
  EXPECT_EQ(Values<uint8_t>(RunOne("Cast", {x}, {{"dtype", kUInt8}})),
            (std::vector<uint8_t>{0, 255, 0, 0, 1, 255}));
  EXPECT_EQ(Values<int8_t>(RunOne("Cast", {Tensor::Vector<int32_t>({300})}, {{"dtype", kInt8}})),
            (std::vector<int8_t>{44}));
  const auto flags = RunOne("Cast", {Tensor::Vector<float>({0, 0.5f, kNaN})}, {{"dtype", kBool}});
  ASSERT_TRUE(flags.ok());
  EXPECT_FALSE(flags->data<bool>()[0]);
  EXPECT_TRUE(flags->data<bool>()[1]);
  EXPECT_TRUE(flags->data<bool>()[2]);
}

TEST(Elementwise, SixteenBitsComputeInFloat) {
  Tensor a(kBFloat16, {3}), b(kBFloat16, {});
  for (int i = 0; i < 3; ++i) a.data<BFloat16>()[i] = BFloat16(float(i) + 0.5f);
  b.data<BFloat16>()[0] = BFloat16(2.0f);
  const auto product = RunOne("Mul", {a, b});
  ASSERT_TRUE(product.ok()) << MessageOf(product.status());
  EXPECT_EQ(product->dtype(), kBFloat16);
  EXPECT_EQ(float(product->data<BFloat16>()[2]), 5.0f);
}

// Short rows, columns, scalars, both sides, and rows that do not fill a vector.
TEST(Elementwise, BroadcastingByVectorsEqualsTheReference) {
  testing::Random random(3);
  const std::pair<Shape, Shape> shapes[] = {
      {{50, 10}, {10}},    {{10}, {50, 10}},    {{3000, 7}, {1, 7}},
      {{40, 33}, {40, 1}}, {{40, 1}, {1, 33}},  {{}, {100}},
      {{100}, {}},         {{4, 1, 5}, {3, 1}}, {{2, 3, 4}, {3, 1}},
      {{1}, {1, 1}},       {{0, 3}, {3}},       {{5, 1}, {5, 300}},
      {{60000}, {60000}},  {{200, 300}, {300}}, {{2, 1, 2, 1, 2}, {2, 1, 2, 1}},
  };
  for (const auto& [a, b] : shapes) {
    const Tensor x = testing::RandomTensor(random, kFloat32, a);
    const Tensor y = testing::RandomTensor(random, kFloat32, b);
    for (const char* op : {"Sub", "Maximum", "Less"}) {
      const auto expected = RunOne(op, {x, y}, {}, KernelChoice::kReference);
      const auto actual = RunOne(op, {x, y}, {}, KernelChoice::kCpuOnly);
      ASSERT_TRUE(expected.ok() && actual.ok()) << MessageOf(actual.status());
      EXPECT_TRUE(actual->BitwiseEquals(*expected)) << op << a.ToString() << b.ToString();
    }
  }
}

}  // namespace
}  // namespace tutti
