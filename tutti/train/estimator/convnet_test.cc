// The passes over products, convolutions and layouts change how a network is computed, not what:
// its loss and gradients are the same with and without them, on one core and on two.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "tutti/autodiff/gradients.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/conv.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/pool.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"

namespace tutti {
namespace {

Tensor Numbers(const Shape& shape, int seed) {
  Tensor tensor(kFloat32, shape);
  uint32_t state = uint32_t(seed) * 2654435761u + 1;
  for (float& value : tensor.values<float>()) {
    state = state * 1664525u + 1013904223u;
    value = (float(state >> 8) / float(1 << 23) - 1) / 2;
  }
  return tensor;
}

TEST(Convnet, PassesKeepLossAndGradients) {
  RegisterCpuKernels();
  Graph graph;
  std::vector<Feed> feeds;
  std::vector<Output> weights;
  const auto input = [&](const Shape& shape) {
    const Output output = Placeholder(graph, kFloat32, shape);
    feeds.push_back({output, Numbers(shape, int(feeds.size()) + 1)});
    return output;
  };
  const auto weight = [&](const Shape& shape) {
    weights.push_back(input(shape));
    return weights.back();
  };
  const Output x = input({4, 12, 12, 1});
  Output h = Relu(BiasAdd(Conv2D(x, weight({3, 3, 1, 32})), weight({32})));
  h = MaxPool(h);
  const Output skip = h;
  h = Relu(BiasAdd(Conv2D(h, weight({3, 3, 32, 32})), weight({32})));
  h = Add(h, skip);
  h = Tanh(Conv2D(h, weight({1, 1, 32, 20}), {.strides = {2, 2}}));
  h = AvgPool(h, {.window = {2, 2}, .strides = {1, 1}, .padding = Padding::kSame});
  const Output flat = Reshape(h, Shape{4, 3 * 3 * 20});
  h = Relu(Add(MatMul(flat, weight({180, 16})), weight({16})));
  const Output loss = Sum(Square(MatMul(h, weight({16, 5}))));
  std::vector<Output> fetches = Gradients(loss, weights);
  fetches.push_back(loss);
  fetches.push_back(Sum(GlobalAvgPool(skip)));

  Session plain(graph, {.cores_per_device = 1, .optimize = false});
  const std::vector<Tensor> expected = plain.Run(feeds, fetches);
  for (const int cores : {1, 2}) {
    Session session(graph, {.cores_per_device = cores});
    for (int step = 0; step < 2; ++step) {
      const std::vector<Tensor> actual = session.Run(feeds, fetches);
      for (size_t i = 0; i < expected.size(); ++i) {
        ASSERT_EQ(actual[i].shape(), expected[i].shape());
        double largest = 1;
        for (const float v : expected[i].values<float>()) {
          largest = std::max(largest, std::abs(double(v)));
        }
        for (int64_t j = 0; j < expected[i].elements(); ++j) {
          ASSERT_NEAR(actual[i].data<float>()[j], expected[i].data<float>()[j], 1e-4 * largest)
              << "fetch " << i << " at " << j << " on " << cores << " cores";
        }
      }
    }
  }
}

// Values of which many are equal, with NaN and -0 among them.
Tensor WithTies(const Shape& shape, int seed) {
  Tensor tensor = Numbers(shape, seed);
  for (float& value : tensor.values<float>()) {
    const int number = int(value * 40);
    value = number == 19   ? std::numeric_limits<float>::quiet_NaN()
            : number == 18 ? -0.0f
                           : float(number / 4);
  }
  return tensor;
}

bool SameBits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// What is masked before a pooling's gradient, and put by positions, is what was masked behind it.
TEST(Convnet, PassesKeepEveryBitOfPooledGradients) {
  RegisterCpuKernels();
  std::mt19937 random(1);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + int64_t(random() % uint64_t(high - low + 1));
  };
  for (int round = 0; round < 100; ++round) {
    const PoolOptions options = {
        .window = {draw(1, 3), draw(1, 3)},
        .strides = {draw(1, 3), draw(1, 3)},
        .padding = draw(0, 1) == 0 ? Padding::kSame : Padding::kValid,
    };
    const Shape shape = {draw(1, 3), draw(3, 9), draw(3, 9), draw(1, 17)};
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, shape);
    const Output scale = Placeholder(graph, kFloat32, {});
    const Output before = Mul(x, scale);
    const Output y = draw(0, 1) == 0 ? Relu(before) : Relu6(before);
    const Output pooled = MaxPool(y, options);
    const Output weights = Placeholder(graph, kFloat32, pooled.shape());
    // Sometimes the pooled image is not all that reads y.
    Output loss = Sum(Mul(pooled, weights));
    if (draw(0, 3) == 0) loss = Add(loss, Sum(Square(y)));
    const std::vector<Output> gradients = Gradients(loss, {x, before});
    // A fetched gradient takes another way than one that stays inside.
    const std::vector<Output> fetches(gradients.begin(), gradients.begin() + draw(1, 2));
    const std::vector<Feed> feeds = {{x, WithTies(shape, round)},
                                     {scale, Tensor::Scalar(2.0f)},
                                     {weights, Numbers(pooled.shape(), round + 1)}};
    Session plain(graph, {.cores_per_device = 1, .optimize = false});
    Session session(graph, {.cores_per_device = int(draw(1, 2))});
    const std::vector<Tensor> expected = plain.Run(feeds, fetches);
    const std::vector<Tensor> actual = session.Run(feeds, fetches);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_TRUE(SameBits(actual[i], expected[i]))
          << "round " << round << ", fetch " << i << ": " << actual[i].ToString(100)
          << ", expected " << expected[i].ToString(100);
    }
  }
}

// Behind a branch the gradient's shape is known only when the step runs, while the convolution's
// result has channels in blocks.
TEST(Convnet, PooledGradientsMayComeOutOfABranch) {
  RegisterCpuKernels();
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 8, 8, 8});
  const Output filter = Placeholder(graph, kFloat32, {3, 3, 8, 16});
  const Output choice = Placeholder(graph, kBool, {});
  const Output pooled = MaxPool(Conv2D(x, filter));
  const Output chosen = If(
      choice, [&] { return std::vector{Mul(pooled, 2.0f)}; },
      [&] { return std::vector{Neg(pooled)}; })[0];
  const std::vector<Output> fetches = Gradients(Sum(Square(chosen)), {x, filter});
  for (const bool chosen_now : {true, false}) {
    const std::vector<Feed> feeds = {{x, Numbers({4, 8, 8, 8}, 1)},
                                     {filter, Numbers(filter.shape(), 2)},
                                     {choice, Tensor::Scalar(chosen_now)}};
    const std::vector<Tensor> expected =
        Session(graph, {.cores_per_device = 1, .optimize = false}).Run(feeds, fetches);
    const std::vector<Tensor> actual = Session(graph, {.cores_per_device = 1}).Run(feeds, fetches);
    for (size_t i = 0; i < expected.size(); ++i) {
      for (int64_t e = 0; e < expected[i].elements(); ++e) {
        const float wanted = expected[i].data<float>()[e];
        ASSERT_NEAR(actual[i].data<float>()[e], wanted, 1e-4 * (1 + std::abs(wanted))) << i;
      }
    }
  }
}

// The first convolution's result, by far the largest value, is dead when its gradient is made.
TEST(Convnet, AConvolutionThatIsPooledDiesBeforeItsGradientIsMade) {
  RegisterCpuKernels();
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 28, 28, 1});
  const Output filter = Placeholder(graph, kFloat32, {3, 3, 1, 32});
  const Output image = Relu(Conv2D(x, filter));
  const Output loss = Sum(Square(MaxPool(image)));
  const std::vector<Output> fetches = Gradients(loss, {filter});
  const std::vector<Feed> feeds = {{x, Numbers(x.shape(), 1)},
                                   {filter, Numbers(filter.shape(), 2)}};
  const auto bytes = [&](bool optimize) {
    Session session(graph, {.cores_per_device = 1, .optimize = optimize});
    RunTrace trace;
    session.Run(feeds, fetches, {}, {.trace = true, .trace_result = &trace});
    return trace.arena_bytes;
  };
  const int64_t image_bytes = image.shape().elements() * 4;
  EXPECT_GE(bytes(false), 2 * image_bytes);
  EXPECT_LT(bytes(true), 2 * image_bytes);
}

}  // namespace
}  // namespace tutti
