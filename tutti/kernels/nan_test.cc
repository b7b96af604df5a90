// A value that is no number stays none: in the reference, in the CPU kernels and in what the
// compiler fuses. Whoever looks for the first bad value of a step depends on it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <tuple>

#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

Tensor ResultOf(KernelChoice choice, const std::string& op, const std::vector<Tensor>& inputs,
                const AttrList& attrs = {}) {
  RegisterCpuKernels();
  KernelRunner runner(choice);
  const auto results = runner.RunOp(op, inputs, attrs);
  EXPECT_TRUE(results.ok()) << op << ": " << results.status();
  return results.ok() ? (*results)[0] : Tensor::Zeros(kFloat32, Shape{});
}

Tensor Numbers(const Shape& shape, float scale = 1) {
  Tensor tensor(kFloat32, shape);
  int i = 0;
  for (float& value : tensor.values<float>()) value = scale * (float(++i * 37 % 17) - 8) / 8;
  return tensor;
}

Tensor With(Tensor tensor, int64_t at, float value) {
  tensor.data<float>()[at] = value;
  return tensor;
}

// NaN where `expected` has NaN, close to it elsewhere.
void ExpectSame(const Tensor& actual, const Tensor& expected, const std::string& what) {
  ASSERT_EQ(actual.shape(), expected.shape()) << what;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const float a = actual.data<float>()[i], e = expected.data<float>()[i];
    ASSERT_EQ(std::isnan(a), std::isnan(e)) << what << " at " << i << ": " << a << ", not " << e;
    if (std::isfinite(e)) {
      ASSERT_NEAR(a, e, 1e-3) << what << " at " << i;
    } else if (!std::isnan(e)) {
      ASSERT_EQ(a, e) << what << " at " << i;
    }
  }
}

TEST(NaN, StaysInElementwiseOps) {
  const Tensor x = With(With(Numbers({19}), 2, kNaN), 18, kNaN);  // in a vector, and in the tail
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kCpuOnly}) {
    std::vector<std::pair<std::string, Tensor>> results;
    for (const char* op :
         {"Relu", "Relu6", "LeakyRelu", "Elu", "Tanh", "Sigmoid", "Gelu", "Softplus"}) {
      results.emplace_back(op, ResultOf(choice, op, {x}));
    }
    results.emplace_back("Clip", ResultOf(choice, "Clip", {x}, {{"low", -0.5}, {"high", 0.5}}));
    for (const char* op : {"Maximum", "Minimum"}) {
      results.emplace_back(op, ResultOf(choice, op, {x, Numbers({19}, 0.5f)}));
      results.emplace_back(op, ResultOf(choice, op, {Numbers({19}, 0.5f), x}));
    }
    for (const auto& [op, result] : results) {
      for (int64_t i = 0; i < 19; ++i) {
        EXPECT_EQ(std::isnan(result.data<float>()[i]), i == 2 || i == 18)
            << op << " at " << i << (choice == KernelChoice::kReference ? ", reference" : ", cpu");
      }
    }
  }
}

// Peers differ here; see activation.h for whom we follow.
TEST(NaN, HasTheGradientsThatActivationsPromise) {
  const Tensor gradient = With(Numbers({19}), 2, 3.0f);
  const Tensor y = With(With(Numbers({19}), 2, kNaN), 18, kNaN);  // in a vector, and in the tail
  struct Promise {
    std::string op;
    AttrList attrs;
    double slope;  // what the gradient is multiplied with
  };
  const Promise promises[] = {
      {"ReluGrad", {}, 0},        {"Relu6Grad", {}, 0},
      {"SigmoidGrad", {}, kNaN},  {"LeakyReluGrad", {{"alpha", 0.25}}, 0.25},
      {"TanhGrad", {}, kNaN},     {"EluGrad", {{"alpha", 1.0}}, kNaN},
      {"SoftplusGrad", {}, kNaN}, {"GeluGrad", {}, kNaN},
  };
  for (const KernelChoice choice : {KernelChoice::kReference, KernelChoice::kCpuOnly}) {
    for (const Promise& promise : promises) {
      const Tensor result = ResultOf(choice, promise.op, {gradient, y}, promise.attrs);
      for (const int64_t i : {2, 18}) {
        const float actual = result.data<float>()[i];
        const float expected = float(promise.slope) * gradient.data<float>()[i];
        EXPECT_TRUE(actual == expected || (std::isnan(actual) && std::isnan(expected)))
            << promise.op << " at " << i << ": " << actual << ", expected " << expected;
      }
    }
  }
}

const char* const kActivations[] = {"", "Relu", "Relu6", "Tanh", "Sigmoid", "Gelu"};

// What a fused node stands for, by the reference kernels.
Tensor Chain(const std::string& op, const std::vector<Tensor>& inputs,
             const std::string& activation) {
  const auto reference = KernelChoice::kReference;
  Tensor y = ResultOf(reference, op, {inputs[0], inputs[1]});
  if (inputs.size() == 3) y = ResultOf(reference, "BiasAdd", {y, inputs[2]});
  return activation.empty() ? y : ResultOf(reference, activation, {y});
}

void ExpectChain(const std::string& op, const std::vector<Tensor>& inputs,
                 const std::string& what) {
  for (const char* activation : kActivations) {
    const AttrList attrs = {{"activation", std::string(activation)}};
    ExpectSame(ResultOf(KernelChoice::kCpuOnly, "_Fused" + op, inputs, attrs),
               Chain(op, inputs, activation), op + " " + activation + " " + what);
  }
}

TEST(NaN, StaysInFusedProducts) {
  // The second is multiplied through packed panels.
  for (const auto& [m, k, n] : {std::tuple{4, 5, 19}, std::tuple{64, 256, 1024}}) {
    const Tensor a = Numbers({m, k}), b = Numbers({k, n}, 1.0f / 16), bias = Numbers({n});
    ExpectChain("MatMul", {a, b, bias}, "of numbers");
    ExpectChain("MatMul", {With(a.Clone(), 3, kNaN), b, bias}, "with NaN in a");
    ExpectChain("MatMul", {a, With(b.Clone(), 18, kNaN), bias}, "with NaN in b");
    ExpectChain("MatMul", {a, b, With(bias.Clone(), 18, kNaN)}, "with NaN in the bias");
    ExpectChain("MatMul", {With(a.Clone(), 3, kNaN), b}, "without a bias");
  }
}

TEST(NaN, StaysInFusedConvolutions) {
  for (const int64_t channels : {1, 3, 16}) {
    const Tensor x = Numbers({2, 5, 6, channels}), filter = Numbers({3, 3, channels, 8}, 0.125f);
    const Tensor bias = Numbers({8});
    ExpectChain("Conv2D", {x, filter, bias}, "of numbers");
    ExpectChain("Conv2D", {With(x.Clone(), 7 * channels, kNaN), filter, bias}, "with NaN in x");
    ExpectChain("Conv2D", {With(x.Clone(), 7 * channels, -kInf), filter, bias}, "with infinity");
    ExpectChain("Conv2D", {x, With(filter.Clone(), 5, kNaN), bias}, "with NaN in the filter");
    ExpectChain("Conv2D", {x, filter, With(bias.Clone(), 5, kNaN)}, "with NaN in the bias");
    ExpectChain("Conv2D", {With(x.Clone(), 7 * channels, kNaN), filter}, "without a bias");
  }
}

TEST(NaN, OverflowIsThatOfTheUnfusedNodes) {
  const Tensor x = Tensor::Of<float>({1, 1, 1, 2}, {1e20f, -1e20f});
  Tensor filter(kFloat32, {1, 1, 2, 8});
  for (float& value : filter.values<float>()) value = 1e20f;
  const auto cpu = KernelChoice::kCpuOnly;
  const Tensor sums = ResultOf(cpu, "Conv2D", {x, filter});
  EXPECT_FALSE(std::isfinite(sums.data<float>()[0]));
  for (const char* activation : {"Relu", "Relu6", "Tanh", "Sigmoid"}) {
    ExpectSame(
        ResultOf(cpu, "_FusedConv2D", {x, filter}, {{"activation", std::string(activation)}}),
        ResultOf(cpu, activation, {sums}), activation);
  }
}

}  // namespace
}  // namespace tutti
