// Mirrors of one model on several workers: what float32 models with state of their own become.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using State = std::map<std::string, Tensor>;

// Images of ten kinds, each a wave of its own, with some noise.
Dataset Images(int64_t count) {
  constexpr int64_t kSide = 28;
  Tensor images(kFloat32, {count, kSide, kSide, 1}), labels(kInt32, {count});
  uint32_t noise = 1;
  for (int64_t i = 0; i < count; ++i) {
    const auto kind = int32_t(i % 10);
    labels.data<int32_t>()[i] = kind;
    for (int64_t p = 0; p < kSide * kSide; ++p) {
      noise = noise * 1664525u + 1013904223u;
      const double wave = std::sin(double(p % kSide) * (kind + 1) * 0.15) +
                          std::cos(double(p / kSide) * (10 - kind) * 0.15);
      images.data<float>()[i * kSide * kSide + p] =
          float(wave / 2 + double(noise >> 8) / double(1 << 24) - 0.5);
    }
  }
  return Dataset::FromTensors({{"image", images}, {"label", labels}});
}

ModelSpec Convnet(const Features& batch, Mode mode) {
  Output h = nn::Conv2d(batch["image"], 32, {3, 3}, {.activation = nn::kRelu});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Conv2d(h, 64, {3, 3}, {.activation = nn::kRelu});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Dense(nn::Flatten(h), 128, {.activation = nn::kRelu});
  return MultiClassHead(10).Spec(nn::Dense(h, 10), batch["label"],
                                 Momentum({.learning_rate = 0.01, .momentum = 0.9}), mode);
}

ModelSpec Normalised(const Features& batch, Mode mode) {
  Output h = nn::MaxPool(batch["image"], {4, 4});
  h = nn::Conv2d(h, 8, {3, 3});
  h = Relu(nn::BatchNorm(h, {.training = mode == Mode::kTrain, .momentum = 0.9}));
  return MultiClassHead(10).Spec(nn::Dense(nn::Flatten(h), 10), batch["label"],
                                 Sgd({.learning_rate = 0.05}), mode);
}

Dataset ManyImages() { return Images(240).Shuffle(5).Repeat(); }

State Train(const ModelFunction& model, const RunConfig& config,
            const InputFunction& input = ManyImages) {
  Estimator estimator(model, config);
  estimator.Train({.input = input});
  return estimator.Variables();
}

std::vector<State> TrainOn(int ranks, const ModelFunction& model, int64_t batch,
                           const InputFunction& input = ManyImages) {
  std::vector<State> trained(static_cast<size_t>(ranks));
  const auto errors = OnRanks(ranks, [&](int rank, auto communicator) {
    trained[size_t(rank)] = Train(model, ConfigOf(communicator, batch), input);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return trained;
}

void ExpectAllAlike(const std::vector<State>& trained) {
  for (size_t r = 1; r < trained.size(); ++r) {
    ASSERT_EQ(trained[r].size(), trained[0].size());
    for (const auto& [name, value] : trained[0]) {
      EXPECT_TRUE(trained[r].at(name).BitwiseEquals(value)) << name << " of worker " << r;
    }
  }
}

// The norm of the difference of all float32 variables whose names have `part` in them, by that of
// the expected ones.
double Distance(const State& found, const State& expected, const std::string& part = "") {
  double difference = 0, norm = 0;
  for (const auto& [name, value] : expected) {
    if (value.dtype() != kFloat32 || name.find(part) == std::string::npos) continue;
    const Tensor& other = found.at(name);
    for (int64_t i = 0; i < value.elements(); ++i) {
      const double e = value.data<float>()[i], f = other.data<float>()[i];
      difference += (f - e) * (f - e);
      norm += e * e;
    }
  }
  return std::sqrt(difference / norm);
}

class Replicas : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
};

TEST_F(Replicas, AConvnetFollowsOneProcessWithTheJoinedBatch) {
  constexpr int64_t kJoined = 12;
  const State alone = Train(Convnet, ConfigOf(nullptr, kJoined));
  for (const int ranks : {2, 3}) {
    const std::vector<State> trained = TrainOn(ranks, Convnet, kJoined / ranks);
    ExpectAllAlike(trained);
    const double distance = Distance(trained[0], alone);
    EXPECT_LT(distance, 1e-4) << ranks << " workers";
    EXPECT_GT(distance, 0) << "nothing was summed";
  }
}

TEST_F(Replicas, MovingAveragesAreAlikeAndOverAllSamples) {
  const State alone = Train(Normalised, ConfigOf(nullptr, 120));
  const std::vector<State> trained = TrainOn(3, Normalised, 40);
  ExpectAllAlike(trained);
  // Workers normalise by 40 samples each where one process does by 120: alike, but not the same.
  EXPECT_LT(Distance(trained[0], alone, "moving_"), 0.05);
}

// Dropout on images, on a batch merged with another dimension, and on attention weights.
ModelSpec WithDropout(const Features& batch, Mode mode) {
  const bool training = mode == Mode::kTrain;
  Output h = nn::MaxPool(nn::Dropout(batch["image"], 0.3, {.training = training}), {4, 4});
  h = nn::Dense(Reshape(h, {-1, 7}), 8, {.activation = nn::kRelu});
  h = Reshape(nn::Dropout(h, 0.4, {.training = training}), {-1, 7, 8});
  h = nn::MultiHeadAttention(h, {.heads = 2, .dropout = 0.5, .training = training});
  return MultiClassHead(10).Spec(nn::Dense(nn::Flatten(h), 10), batch["label"],
                                 Sgd({.learning_rate = 0.05}), mode);
}

TEST_F(Replicas, DropoutFollowsTheSampleWhicheverWorkerHasIt) {
  constexpr int64_t kJoined = 12;
  const State alone = Train(WithDropout, ConfigOf(nullptr, kJoined));
  for (const int ranks : {2, 3}) {
    const std::vector<State> trained = TrainOn(ranks, WithDropout, kJoined / ranks);
    ExpectAllAlike(trained);
    EXPECT_LT(Distance(trained[0], alone), 1e-4) << ranks << " workers";
  }
}

// The second training begins at step 50 of the first one's data, in runs of a session that has
// evaluated in between.
TEST_F(Replicas, DropoutFollowsTheGlobalStepAndNotTheRuns) {
  const State whole = Train(WithDropout, ConfigOf(nullptr, 12));
  Estimator estimator(WithDropout, ConfigOf(nullptr, 12));
  estimator.Train({.input = ManyImages, .max_steps = 50});
  estimator.Evaluate({.input = [] { return Images(30); }});
  estimator.Train({.input = ManyImages, .max_steps = 100});
  const State resumed = estimator.Variables();
  for (const auto& [name, value] : whole) {
    EXPECT_TRUE(resumed.at(name).BitwiseEquals(value)) << name;
  }
}

// A worker that has no samples knows no averages, and must not spoil those of the others.
TEST_F(Replicas, AWorkerWithoutSamplesMovesNoAverage) {
  // Four samples for three workers that take two each.
  const std::vector<State> trained = TrainOn(3, Normalised, 2, [] { return Images(4); });
  ExpectAllAlike(trained);
  int averages = 0;
  for (const auto& [name, value] : trained[0]) {
    if (name.find("moving_") == std::string::npos) continue;
    for (const float v : value.values<float>()) EXPECT_TRUE(std::isfinite(v)) << name;
    averages += value.values<float>()[0] != (name.find("mean") == std::string::npos ? 1 : 0);
  }
  EXPECT_EQ(averages, 2) << "both have moved";
}

}  // namespace
}  // namespace tutti
