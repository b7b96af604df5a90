// Towers of one graph compute what one model computes alone on the whole batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tutti/base/error.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using State = std::map<std::string, Tensor>;

class Mirrored : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
};

Dataset Samples(int64_t count, DType dtype) {
  Tensor x(kFloat32, {count, 12}), y(kInt32, {count});
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = float((i * 7919) % 97) / 97;
  for (int64_t i = 0; i < count; ++i) y.data<int32_t>()[i] = int32_t(i % 3);
  if (dtype == kFloat64) {
    Tensor wide(kFloat64, x.shape());
    for (int64_t i = 0; i < x.elements(); ++i) wide.data<double>()[i] = x.data<float>()[i];
    x = wide;
  }
  return Dataset::FromTensors({{"x", x}, {"y", y}});
}

ModelSpec Mlp(const Features& batch, Mode mode) {
  Output h = nn::Dense(batch["x"], 16, {.activation = nn::kRelu});
  h = nn::Dropout(h, 0.25, {.training = mode == Mode::kTrain});
  return MultiClassHead(3).Spec(nn::Dense(h, 3), batch["y"],
                                Momentum({.learning_rate = 0.05, .momentum = 0.9}), mode);
}

State Train(const ModelFunction& model, const std::string& strategy, int64_t batch,
            const InputFunction& input, int64_t steps = 100) {
  Estimator estimator(model,
                      {.max_steps = steps, .batch_size = batch, .seed = 5, .strategy = strategy});
  estimator.Train({.input = input});
  return estimator.Variables();
}

double Distance(const State& found, const State& expected) {
  double difference = 0, norm = 0;
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    if (!IsFloating(value.dtype())) {
      EXPECT_TRUE(found.at(name).BitwiseEquals(value)) << name;
      continue;
    }
    for (int64_t i = 0; i < value.elements(); ++i) {
      const bool wide = value.dtype() == kFloat64;
      const double a = wide ? value.data<double>()[i] : value.data<float>()[i];
      const double b = wide ? found.at(name).data<double>()[i] : found.at(name).data<float>()[i];
      difference += (a - b) * (a - b);
      norm += a * a;
    }
  }
  return std::sqrt(difference / norm);
}

TEST_F(Mirrored, FollowsOneModelWithTheJoinedBatch) {
  const auto input = [] { return Samples(40, kFloat64).Shuffle(2).Repeat(); };
  const State alone = Train(Mlp, "local", 12, input);
  EXPECT_LT(Distance(Train(Mlp, "mirrored:2", 6, input), alone), 1e-9);
  EXPECT_LT(Distance(Train(Mlp, "mirrored:3", 4, input), alone), 1e-9);
  EXPECT_GT(Distance(Train(Mlp, "local", 6, input), alone), 1e-3) << "the batch does not matter";
}

// The last batch of 41 samples is one of five: a tower has one sample, two have none.
TEST_F(Mirrored, TowersMayHaveNoSample) {
  const auto input = [] { return Samples(41, kFloat64).Repeat(1); };
  const State alone = Train(Mlp, "local", 12, input);
  EXPECT_LT(Distance(Train(Mlp, "mirrored:6", 2, input), alone), 1e-9);
}

TEST_F(Mirrored, AConvnetInFloat32) {
  const auto input = [] {
    Tensor image(kFloat32, {96, 12, 12, 1}), label(kInt32, {96});
    for (int64_t i = 0; i < image.elements(); ++i) {
      image.data<float>()[i] = std::sin(float((i * 31) % 1009));
    }
    for (int64_t i = 0; i < 96; ++i) label.data<int32_t>()[i] = int32_t(i % 5);
    return Dataset::FromTensors({{"image", image}, {"label", label}}).Shuffle(3).Repeat();
  };
  const auto model = [](const Features& batch, Mode mode) {
    Output h = nn::Conv2d(batch["image"], 8, {3, 3}, {.activation = nn::kRelu});
    h = nn::Dense(nn::Flatten(nn::MaxPool(h, {2, 2})), 32, {.activation = nn::kRelu});
    return MultiClassHead(5).Spec(nn::Dense(h, 5), batch["label"], Sgd({.learning_rate = 0.02}),
                                  mode);
  };
  EXPECT_LT(Distance(Train(model, "mirrored:2", 8, input), Train(model, "local", 16, input)), 1e-4);
}

// Each tower normalises its own part; the averages move by the mean of what the towers found.
TEST_F(Mirrored, MovingAveragesAreThoseOfAllTowers) {
  const auto input = [] { return Samples(40, kFloat64).Repeat(); };
  const auto model = [](const Features& batch, Mode mode) {
    const Output h = nn::BatchNorm(batch["x"], {.training = mode == Mode::kTrain, .momentum = 0.5});
    ModelSpec spec =
        MultiClassHead(3).Spec(nn::Dense(h, 3), batch["y"], Sgd({.learning_rate = 0.01}), mode);
    return spec;
  };
  const State alone = Train(model, "local", 8, input, 5);
  const State towers = Train(model, "mirrored:2", 4, input, 5);
  // Means over parts of one size have the mean of the whole as their mean; variances do not.
  const Tensor &expected = alone.at("norm/moving_mean"), &found = towers.at("norm/moving_mean");
  for (int64_t i = 0; i < expected.elements(); ++i) {
    EXPECT_NEAR(found.data<double>()[i], expected.data<double>()[i], 1e-12);
  }
}

TEST_F(Mirrored, RowsOfTablesAreJoined) {
  const auto input = [] {
    Tensor id(kInt64, {30}), y(kFloat32, {30});
    for (int64_t i = 0; i < 30; ++i) {
      id.data<int64_t>()[i] = (i * 7) % 10;
      y.data<float>()[i] = float(i % 4);
    }
    return Dataset::FromTensors({{"id", id}, {"y", y}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    const Output rows = nn::Embedding(batch["id"], 10, 4);
    ModelSpec spec;
    spec.loss = Mean(Square(Sub(Sum(rows, {.axes = {1}}), batch["y"])));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.1});
    return spec;
  };
  EXPECT_LT(Distance(Train(model, "mirrored:2", 4, input), Train(model, "local", 8, input)), 1e-5);
}

TEST_F(Mirrored, SaysWhichArgumentItWants) {
  const auto error_of = [](const std::string& strategy) -> std::string {
    try {
      FindStrategy(strategy);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  for (const char* wrong : {"mirrored", "mirrored:", "mirrored:0", "mirrored:-1", "mirrored:2x",
                            "mirrored:1025", "mirrored:99999999999999999999"}) {
    EXPECT_THAT(error_of(wrong), HasSubstr(std::string("the strategy is \"") + wrong +
                                           "\"; expected mirrored:N with N devices, 1 to 1024"));
  }
  EXPECT_EQ(error_of("mirrored:2"), "no error");
  EXPECT_THAT(error_of("local:2"), HasSubstr("the strategy is \"local:2\"; expected local, which "
                                             "takes nothing behind its name"));
  EXPECT_THAT(error_of("magic:2"), HasSubstr("expected one of allreduce, local, mirrored:N"));
}

}  // namespace
}  // namespace tutti
