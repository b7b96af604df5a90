#include "tutti/graph/ops/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/update_table.h"
#include "tutti/kernels/node_under_test.h"

namespace tutti {
namespace {

class UpdateTest : public ::testing::Test {
 protected:
  Output MakeVariable(DType dtype, const Shape& shape, const std::string& name) {
    return Variable(
        graph_, {dtype, shape, [=](Graph& g) { return Constant(g, Tensor::Zeros(dtype, shape)); }},
        name);
  }
  Output Scalar(DType dtype = kFloat32) { return Placeholder(graph_, dtype, {}); }
  Tensor Value(const std::string& name) {
    return *device_.variables().FindOrCreate("", name)->Read();
  }
  void Set(const std::string& name, Tensor value) {
    device_.variables().FindOrCreate("", name)->Assign(std::move(value));
  }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 1};
};

const Tensor kRate = Tensor::Scalar<float>(0.5f);

TEST_F(UpdateTest, GradientDescentScalesAndSkips) {
  const Output w = MakeVariable(kFloat32, {2}, "w");
  const Output g = Placeholder(graph_, kFloat32, {2});
  Set("w", Tensor::Of<float>({2}, {1, 2}));
  const Tensor gradient = Tensor::Of<float>({2}, {2, 4});
  for (const char* kind : {"ref", "cpu"}) {
    Set("w", Tensor::Of<float>({2}, {1, 2}));
    NodeUnderTest plain(device_, ApplyGradientDescent(w, Scalar(), g), kind);
    ASSERT_TRUE(plain.Run({{}, kRate, gradient}).ok());
    EXPECT_TRUE(plain.output().BitwiseEquals(Tensor::Of<float>({2}, {0, 0})));
    plain.DropValues();
    NodeUnderTest scaled(device_, ApplyGradientDescent(w, Scalar(), g, {.scale = Scalar()}), kind);
    ASSERT_TRUE(scaled.Run({{}, kRate, gradient, Tensor::Scalar<float>(0.25f)}).ok());
    EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<float>({2}, {-0.25f, -0.5f})));
    const Tensor nan = Tensor::Of<float>({2}, {NAN, NAN});
    ASSERT_TRUE(scaled.Run({{}, kRate, nan, Tensor::Scalar<float>(0)}).ok());
    EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<float>({2}, {-0.25f, -0.5f})));
  }
}

TEST_F(UpdateTest, MomentumByHand) {
  const Output w = MakeVariable(kFloat64, {1}, "w");
  const Output a = MakeVariable(kFloat64, {1}, "a");
  const Output g = Placeholder(graph_, kFloat64, {1});
  for (const bool nesterov : {false, true}) {
    Set("w", Tensor::Of<double>({1}, {1}));
    Set("a", Tensor::Of<double>({1}, {2}));
    NodeUnderTest apply(device_,
                        ApplyMomentum(w, a, Scalar(), g, {.momentum = 0.5, .nesterov = nesterov}));
    ASSERT_TRUE(apply.Run({{}, {}, kRate, Tensor::Of<double>({1}, {3})}).ok());
    EXPECT_EQ(Value("a").scalar<double>(), 4);
    EXPECT_EQ(Value("w").scalar<double>(), nesterov ? 1 - 0.5 * (3 + 0.5 * 4) : 1 - 0.5 * 4);
  }
}

TEST_F(UpdateTest, AdamByHand) {
  const Output w = MakeVariable(kFloat64, {1}, "w");
  const Output m = MakeVariable(kFloat64, {1}, "m");
  const Output v = MakeVariable(kFloat64, {1}, "v");
  const Output g = Placeholder(graph_, kFloat64, {1});
  const Output step = Scalar(kInt64);
  for (const double decay : {0.0, 0.1}) {
    Set("w", Tensor::Of<double>({1}, {1}));
    Set("m", Tensor::Of<double>({1}, {0}));
    Set("v", Tensor::Of<double>({1}, {0}));
    const Output node =
        decay == 0 ? ApplyAdam(w, m, v, Scalar(kFloat64), step, g, {.beta1 = 0.9, .beta2 = 0.99})
                   : ApplyAdamW(w, m, v, Scalar(kFloat64), step, g,
                                {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = decay});
    NodeUnderTest apply(device_, node);
    double ew = 1, em = 0, ev = 0;
    for (int64_t t = 1; t <= 5; ++t) {
      const double grad = 0.3 * double(t) - 0.7;
      ASSERT_TRUE(apply
                      .Run({{},
                            {},
                            {},
                            Tensor::Scalar<double>(0.01),
                            Tensor::Scalar<int64_t>(t),
                            Tensor::Of<double>({1}, {grad})},
                           0)
                      .ok());
      ew -= 0.01 * decay * ew;
      em = 0.9 * em + 0.1 * grad;
      ev = 0.99 * ev + 0.01 * grad * grad;
      ew -= 0.01 * (em / (1 - std::pow(0.9, double(t)))) /
            (std::sqrt(ev / (1 - std::pow(0.99, double(t)))) + 1e-8);
      EXPECT_NEAR(Value("w").scalar<double>(), ew, 1e-14);
    }
    EXPECT_EQ(MessageOf(apply.Run({{},
                                   {},
                                   {},
                                   Tensor::Scalar<double>(0.01),
                                   Tensor::Scalar<int64_t>(0),
                                   Tensor::Of<double>({1}, {1})})),
              "step is 0; the first update has step 1");
  }
}

}  // namespace
}  // namespace tutti
