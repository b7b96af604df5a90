// The passes over products, convolutions and layouts change how a network is computed, not what:
// its loss and gradients are the same with and without them, on one core and on two.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/autodiff/gradients.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/activation.h"
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

}  // namespace
}  // namespace tutti
