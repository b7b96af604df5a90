#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>

#include "tutti/nn/nn.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/ps/servers_under_test.h"
#include "tutti/train/strategies/strategies.h"

// A small model in float64 and what trainings of it leave, to be compared.
namespace tutti {

inline Dataset SmallSamples(int64_t count) {
  Tensor x(kFloat64, {count, 12}), y(kInt32, {count});
  for (int64_t i = 0; i < x.elements(); ++i) x.data<double>()[i] = double((i * 7919) % 97) / 97;
  for (int64_t i = 0; i < count; ++i) y.data<int32_t>()[i] = int32_t(i % 3);
  return Dataset::FromTensors({{"x", x}, {"y", y}});
}

inline ModelSpec SmallModel(const Features& batch, Mode mode) {
  Output h = nn::Dense(batch["x"], 16, {.activation = nn::kRelu});
  h = nn::Dropout(h, 0.25, {.training = mode == Mode::kTrain});
  return MultiClassHead(3).Spec(nn::Dense(h, 3), batch["y"],
                                Momentum({.learning_rate = 0.05, .momentum = 0.9}), mode);
}

inline RunConfig SmallConfig(std::shared_ptr<const Strategy> strategy, int64_t batch,
                             int64_t steps = 100) {
  RunConfig config;
  config.program = "test";
  config.max_steps = steps;
  config.batch_size = batch;
  config.seed = 5;
  config.strategy = strategy->name();
  config.strategy_object = std::move(strategy);
  return config;
}

inline State TrainAlone(const ModelFunction& model, int64_t batch, const InputFunction& input,
                        int64_t steps = 100) {
  Estimator estimator(model, SmallConfig(MakeLocalStrategy(), batch, steps));
  estimator.Train({.input = input});
  return estimator.Variables();
}

// The L2 distance of two states, relative to the second.
inline double Distance(const State& found, const State& expected) {
  double difference = 0, norm = 0;
  EXPECT_EQ(found.size(), expected.size());
  for (const auto& [name, value] : expected) {
    if (!found.contains(name)) {
      ADD_FAILURE() << name << " is missing";
      continue;
    }
    const Tensor& other = found.at(name);
    if (!IsFloating(value.dtype())) {
      EXPECT_TRUE(other.BitwiseEquals(value)) << name;
      continue;
    }
    for (int64_t i = 0; i < value.elements(); ++i) {
      const bool wide = value.dtype() == kFloat64;
      const double a = wide ? value.data<double>()[i] : double(value.data<float>()[i]);
      const double b = wide ? other.data<double>()[i] : double(other.data<float>()[i]);
      difference += (a - b) * (a - b);
      norm += a * a;
    }
  }
  return std::sqrt(difference / norm);
}

}  // namespace tutti
