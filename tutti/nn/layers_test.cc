#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/testing/error_of.h"

namespace tutti::nn {
namespace {

using ::tutti::testing::ErrorOf;

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Layers : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  Output Floats(const Shape& shape, const char* name = "x") {
    return Placeholder(graph_, kFloat32, shape, name);
  }
  std::vector<std::string> VariableNames() {
    std::vector<std::string> names;
    for (const Output& variable : Variables(graph_)) names.push_back(variable.name());
    return names;
  }
  Graph graph_;
};

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

Tensor Normal(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor values(kFloat32, shape);
  for (float& value : values.values<float>()) value = normal(random);
  return values;
}

InitializerOf Exactly(Tensor value) {
  return [value](const Shape& shape, DType) {
    EXPECT_EQ(shape, value.shape());
    return Value(value);
  };
}

TEST_F(Layers, DenseMultipliesAddsAndActivates) {
  const Output x = Floats({-1, 2});
  const Output y = Dense(x, 3,
                         {.activation = kRelu,
                          .weights = Exactly(Tensor::Of<float>({2, 3}, {1, 2, 3, 4, 5, 6})),
                          .biases = Exactly(Tensor::Vector<float>({0, 1, -100}))});
  EXPECT_EQ(y.shape(), Shape({-1, 3}));
  EXPECT_THAT(VariableNames(), ElementsAre("dense/weights", "dense/bias"));
  Session session(graph_);
  session.Initialize();
  const Tensor result = session.Run({{x, Tensor::Of<float>({1, 2}, {1, 10})}}, y);
  EXPECT_THAT(FloatsOf(result), ElementsAre(41, 53, 0));
}

TEST_F(Layers, DenseKeepsLeadingDimensions) {
  EXPECT_EQ(Dense(Floats({4, 5, 2}, "a"), 3).shape(), Shape({4, 5, 3}));
  EXPECT_EQ(Dense(Floats({-1, 5, 2}, "b"), 3).shape(), Shape({-1, 5, 3}));
  EXPECT_EQ(Dense(Floats({2}, "c"), 3).shape(), Shape({3}));
  const Output x = Floats({-1, -1, 2}, "d");
  const Output y = Dense(x, 1, {.weights = Ones}, "sum");
  Session session(graph_);
  session.Initialize();
  const Tensor result = session.Run({{x, Tensor::Of<float>({3, 1, 2}, {1, 2, 3, 4, 5, 6})}}, y);
  EXPECT_EQ(result.shape(), Shape({3, 1, 1}));
  EXPECT_THAT(FloatsOf(result), ElementsAre(3, 7, 11));
}

TEST_F(Layers, TheLastDimensionIsKnownWhenSeveralLeadingOnesAreNot) {
  const Output x = Floats({-1, -1, 8});
  const Output y = Dense(x, 3);
  EXPECT_EQ(y.shape(), Shape({-1, -1, 3}));
  EXPECT_EQ(Dense(y, 5).shape(), Shape({-1, -1, 5}));
  const Output attended = MultiHeadAttention(x, {.heads = 2});
  EXPECT_EQ(attended.shape(), Shape({-1, -1, 8}));
  EXPECT_EQ(Dense(attended, 5).shape(), Shape({-1, -1, 5}));
  const Output deep = Floats({-1, 4, -1, 8}, "deep");
  EXPECT_EQ(Dense(deep, 3).shape(), Shape({-1, 4, -1, 3}));
}

TEST_F(Layers, ErrorsNameTheLayerTheNodeAndTheLine) {
  const Output x = Floats({4, -1});
  const std::string error = ErrorOf([&] { Dense(x, 3); });
  EXPECT_THAT(error, HasSubstr("Dense (layers_test.cc:"));
  EXPECT_THAT(error, HasSubstr("dimension -1 of the input Placeholder \"x\""));
  EXPECT_THAT(error, HasSubstr("must be known; its shape is [4, ?]"));
  EXPECT_THAT(ErrorOf([&] { Dense(Floats({2, 2}, "y"), 0); }), HasSubstr("units is 0"));
  EXPECT_THAT(ErrorOf([&] { Dense(1.0f, 3); }), HasSubstr("the input is a literal or empty"));
  EXPECT_THAT(ErrorOf([&] { Dense(Output{}, 3); }), HasSubstr("the input is a literal or empty"));
  EXPECT_THAT(ErrorOf([&] { Flatten(Floats({-1, -1, 2}, "z")); }), HasSubstr("must be known"));
  EXPECT_THAT(ErrorOf([&] { nn::Dropout(x, 1.0); }), HasSubstr("rate is 1; expected"));
  EXPECT_THAT(ErrorOf([&] {
                MultiHeadAttention(Floats({1, 2, 6}, "s"), {.heads = 4});
              }),
              HasSubstr("4 heads do not divide the width 6"));
}

TEST_F(Layers, AConvolutionalNetworkHasTheShapesAndNamesItShould) {
  Output h = Floats({-1, 28, 28, 1});
  h = Conv2d(h, 32, {3, 3}, {.activation = kRelu});
  EXPECT_EQ(h.shape(), Shape({-1, 28, 28, 32}));
  h = nn::MaxPool(h, {2, 2});
  EXPECT_EQ(h.shape(), Shape({-1, 14, 14, 32}));
  h = Conv2d(h, 64, {5, 5}, {.strides = {2, 2}, .padding = Padding::kValid, .bias = false});
  EXPECT_EQ(h.shape(), Shape({-1, 5, 5, 64}));
  EXPECT_EQ(nn::GlobalAvgPool(h).shape(), Shape({-1, 64}));
  EXPECT_EQ(Flatten(h).shape(), Shape({-1, 1600}));
  EXPECT_EQ(nn::AvgPool(h, {2, 2}, {.strides = {1, 1}}).shape(), Shape({-1, 4, 4, 64}));
  EXPECT_THAT(VariableNames(), ElementsAre("conv/filter", "conv/bias", "conv_1/filter"));
  EXPECT_EQ(CountParameters(TrainableVariables(graph_)), 9 * 32 + 32 + 25 * 32 * 64);
}

TEST_F(Layers, EmbeddingLooksUpRows) {
  const Output ids = Placeholder(graph_, kInt32, {-1, 2}, "ids");
  const Output y =
      Embedding(ids, 3, 2, {.table = Exactly(Tensor::Of<float>({3, 2}, {0, 1, 10, 11, 20, 21}))});
  EXPECT_EQ(y.shape(), Shape({-1, 2, 2}));
  Session session(graph_);
  session.Initialize();
  const Tensor result = session.Run({{ids, Tensor::Of<int32_t>({1, 2}, {2, 0})}}, y);
  EXPECT_THAT(FloatsOf(result), ElementsAre(20, 21, 0, 1));
  EXPECT_THROW(session.Run({{ids, Tensor::Of<int32_t>({1, 2}, {3, 0})}}, y), Error);
}

TEST_F(Layers, DropoutIsOnlyForTraining) {
  const Output x = Floats({1000});
  EXPECT_EQ(nn::Dropout(x, 0.5, {.training = false}), x);
  EXPECT_EQ(nn::Dropout(x, 0), x);
  const Output y = nn::Dropout(x, 0.25);
  Session session(graph_);
  Tensor ones(kFloat32, {1000});
  for (float& value : ones.values<float>()) value = 1;
  const Tensor result = session.Run({{x, ones}}, y);
  int zeros = 0;
  for (const float value : result.values<float>()) {
    if (value == 0) {
      ++zeros;
    } else {
      EXPECT_FLOAT_EQ(value, 1 / 0.75f);
    }
  }
  EXPECT_NEAR(zeros, 250, 70);
  EXPECT_FALSE(session.Run({{x, ones}}, y).BitwiseEquals(result));
}

TEST_F(Layers, LayerNormBringsRowsToMeanZeroAndVarianceOne) {
  const Output x = Floats({-1, 4});
  const Output y = nn::LayerNorm(x);
  EXPECT_THAT(VariableNames(), ElementsAre("norm/scale", "norm/offset"));
  Session session(graph_);
  session.Initialize();
  const Tensor result =
      session.Run({{x, Tensor::Of<float>({2, 4}, {1, 2, 3, 4, -10, 0, 0, 10})}}, y);
  for (int row = 0; row < 2; ++row) {
    double sum = 0;
    double squares = 0;
    for (int i = 0; i < 4; ++i) {
      const double value = result.data<float>()[row * 4 + i];
      sum += value;
      squares += value * value;
    }
    EXPECT_NEAR(sum, 0, 1e-5);
    EXPECT_NEAR(squares / 4, 1, 1e-4);
  }
}

// Attention as its definition reads, for one sequence and head by head.
std::vector<float> PlainAttention(const Tensor& x, const Tensor& keys, const Tensor* weights,
                                  int heads, bool causal) {
  const int64_t width = x.shape()[2];
  const int64_t queries = x.shape()[1];
  const int64_t length = keys.shape()[1];
  const auto project = [&](const float* in, int64_t rows, const Tensor& w) {
    std::vector<double> out(size_t(rows * width), 0);
    const int64_t inner = w.shape()[0];
    for (int64_t i = 0; i < rows; ++i) {
      for (int64_t k = 0; k < inner; ++k) {
        for (int64_t j = 0; j < width; ++j) {
          out[size_t(i * width + j)] += double(in[i * inner + k]) * w.data<float>()[k * width + j];
        }
      }
    }
    return out;
  };
  const auto q = project(x.data<float>(), queries, weights[0]);
  const auto k = project(keys.data<float>(), length, weights[1]);
  const auto v = project(keys.data<float>(), length, weights[2]);
  const int64_t size = width / heads;
  std::vector<float> context(size_t(queries * width), 0);
  for (int h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < queries; ++i) {
      std::vector<double> scores(static_cast<size_t>(length), 0.0);
      double total = 0;
      for (int64_t j = 0; j < length; ++j) {
        double dot = 0;
        for (int64_t d = 0; d < size; ++d) {
          dot += q[size_t(i * width + h * size + d)] * k[size_t(j * width + h * size + d)];
        }
        scores[size_t(j)] = causal && j > i ? 0 : std::exp(dot / std::sqrt(double(size)));
        total += scores[size_t(j)];
      }
      for (int64_t j = 0; j < length; ++j) {
        for (int64_t d = 0; d < size; ++d) {
          context[size_t(i * width + h * size + d)] +=
              float(scores[size_t(j)] / total * v[size_t(j * width + h * size + d)]);
        }
      }
    }
  }
  const auto out = project(context.data(), queries, weights[3]);
  return {out.begin(), out.end()};
}

TEST_F(Layers, AttentionIsWhatItsDefinitionSays) {
  for (const bool cross : {false, true}) {
    for (const bool causal : {false, true}) {
      for (const bool known : {false, true}) {
        Graph graph;
        const Tensor x_value = Normal({1, 5, 6}, 1);
        const Tensor key_value = cross ? Normal({1, 7, 4}, 2) : x_value;
        const int64_t key_width = cross ? 4 : 6;
        const Output x =
            Placeholder(graph, kFloat32, known ? Shape{1, 5, 6} : Shape{-1, -1, 6}, "x");
        const Output keys = Placeholder(graph, kFloat32, {-1, -1, key_width}, "keys");
        const Output y =
            MultiHeadAttention(x, {.heads = 2, .keys = cross ? keys : Output{}, .causal = causal});
        Session session(graph);
        session.Initialize();
        std::vector<Tensor> weights;
        for (const char* name : {"query", "key", "value", "output"}) {
          weights.push_back(
              session.Run(graph.FindOutput(std::string("attention/") + name + "/weights")));
        }
        const std::vector<Feed> feeds = {{x, x_value}, {keys, key_value}};
        const Tensor result = session.Run(feeds, std::span(&y, 1))[0];
        EXPECT_EQ(result.shape(), Shape({1, 5, 6}));
        const auto expected = PlainAttention(x_value, key_value, weights.data(), 2, causal);
        for (size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(result.data<float>()[i], expected[i], 1e-4) << cross << causal << known;
        }
      }
    }
  }
}

TEST_F(Layers, AMaskHidesKeys) {
  const Output x = Floats({2, 3, 4});
  const Output mask = Placeholder(graph_, kBool, {2, 1, 1, 3}, "mask");
  const Output y = MultiHeadAttention(x, {.heads = 2, .mask = mask});
  Session session(graph_);
  session.Initialize();
  Tensor value = Normal({2, 3, 4}, 3);
  Tensor seen(kBool, {2, 1, 1, 3});
  for (bool& see : seen.values<bool>()) see = true;
  seen.data<bool>()[2] = false;  // the last key of the first sequence
  const Tensor before = session.Run({{x, value}, {mask, seen}}, y);
  Tensor changed = value.Clone();
  for (int i = 8; i < 12; ++i) changed.data<float>()[i] += 1;
  const Tensor after = session.Run({{x, changed}, {mask, seen}}, y);
  // Queries 0 and 1 cannot tell; query 2 asks differently.
  for (int i = 0; i < 8; ++i) EXPECT_FLOAT_EQ(before.data<float>()[i], after.data<float>()[i]);
  EXPECT_NE(before.data<float>()[8], after.data<float>()[8]);
}

TEST_F(Layers, LossesAreWhatTheyAreCalled) {
  const Output a = Constant(graph_, Tensor::Vector<float>({1, 2, 5}));
  const Output b = Constant(graph_, Tensor::Vector<float>({1, 3, 1}));
  const Output logits = Constant(graph_, Tensor::Of<float>({2, 2}, {0, 0, 3, -1}));
  const Output labels = Constant(graph_, Tensor::Vector<int32_t>({0, 1}));
  const Output dense = Constant(graph_, Tensor::Of<float>({2, 2}, {1, 0, 0, 1}));
  Session session(graph_);
  const auto value = [&](Output output) { return session.Run(output).scalar<float>(); };
  EXPECT_FLOAT_EQ(value(MeanSquaredError(a, b)), 17 / 3.0f);
  EXPECT_FLOAT_EQ(value(MeanAbsoluteError(a, b)), 5 / 3.0f);
  EXPECT_FLOAT_EQ(value(HuberLoss(a, b, 2)), (0 + 0.5f + (2 + 2 * 2)) / 3);
  const float cross = (std::log(2.0f) + 3 + std::log(1 + std::exp(-4.0f)) + 1) / 2;
  EXPECT_FLOAT_EQ(value(SparseSoftmaxLoss(logits, labels)), cross);
  EXPECT_FLOAT_EQ(value(SoftmaxLoss(logits, dense)), cross);
  EXPECT_FLOAT_EQ(value(SigmoidLoss(a, b)),
                  (std::log1p(std::exp(-1.0f)) + (2 - 6 + std::log1p(std::exp(-2.0f))) +
                   std::log1p(std::exp(-5.0f))) /
                      3);
  EXPECT_FLOAT_EQ(value(Accuracy(logits, labels)), 0.5f);
  const Output values[] = {a, b};
  EXPECT_FLOAT_EQ(value(L2Penalty(values, 0.1)), 0.1f * (30 + 11) / 2);
}

TEST_F(Layers, ReuseScopeBuildsTheModelAgainOnTheSameVariables) {
  const Output x = Floats({-1, 4});
  const auto model = [&](bool training) {
    NameScope scope(graph_, "model");
    Output h = Dense(Dense(x, 3), 3);
    return nn::BatchNorm(h, {.training = training});
  };
  model(true);
  const auto names = VariableNames();
  {
    ReuseScope reuse(graph_);
    const Output y = model(false);
    EXPECT_THAT(y.name(), ::testing::StartsWith("reuse/model/"));
    EXPECT_EQ(y.node->op(), "BatchNormInference");
  }
  EXPECT_EQ(VariableNames(), names);
  {
    ReuseScope reuse(graph_);
    EXPECT_THAT(ErrorOf([&] { Dense(x, 3); }),
                HasSubstr("ReuseScope: there is no variable \"dense/weights\""));
    EXPECT_THAT(ErrorOf([&] {
                  NameScope scope(graph_, "model");
                  Dense(x, 5);
                }),
                HasSubstr("the variable \"model/dense/weights\" is float32 [4, 3]"));
  }
  EXPECT_THAT(Dense(x, 3).shape(), Shape({-1, 3}));
}

TEST_F(Layers, MovingAveragesAreNotTrainable) {
  nn::BatchNorm(Floats({-1, 4}));
  std::vector<std::string> names;
  for (const Output& variable : TrainableVariables(graph_)) names.push_back(variable.name());
  EXPECT_THAT(names, ElementsAre("norm/scale", "norm/offset"));
  std::vector<const Node*> users;
  EXPECT_EQ(StateUpdates(graph_, &users).size(), 2u);
  EXPECT_EQ(users[0]->op(), "BatchNorm");
}

}  // namespace
}  // namespace tutti::nn
