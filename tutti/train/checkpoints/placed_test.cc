// A model that the cost model spreads over devices is saved and goes on like one on one device.
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

Dataset Samples() {
  Tensor x(kFloat32, {64, 96}), y(kFloat32, {64});
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = float((i * 7919) % 97) / 97;
  for (int64_t i = 0; i < 64; ++i) y.data<float>()[i] = float(i % 2);
  return Dataset::FromTensors({{"x", x}, {"y", y}}).Shuffle(2).Repeat();
}

Output Tower(Output x) {
  for (int i = 0; i < 3; ++i) x = nn::Dense(x, 96, {.activation = nn::kRelu});
  return x;
}

ModelSpec TwoTowers(const Features& batch, Mode mode) {
  const Output score = Mean(Tower(batch["x"]) * Tower(batch["x"]), {.axes = {1}});
  return BinaryHead().Spec(score, batch["y"], Adam({.learning_rate = 1e-2}), mode);
}

class PlacedTest : public ::testing::Test {
 protected:
  PlacedTest() { RegisterCpuKernels(); }

  // Trains up to `max_steps` and returns all variables.
  static std::map<std::string, Tensor> Train(const std::string& folder, const std::string& method,
                                             int64_t max_steps) {
    RunConfig config = ConfigOf(nullptr, 64);
    config.max_steps = max_steps;
    config.model_dir = folder;
    config.devices = method == "manual" ? 1 : 2;
    config.placement = method;
    Estimator estimator(TwoTowers, config);
    estimator.Train({.input = Samples});
    std::map<std::string, Tensor> values;
    for (const auto& [name, value] : estimator.Variables()) values.emplace(name, value);
    return values;
  }

  static void ExpectEqual(const std::map<std::string, Tensor>& a,
                          const std::map<std::string, Tensor>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (const auto& [name, value] : a) EXPECT_TRUE(value.BitwiseEquals(b.at(name))) << name;
  }
};

// Fewer steps than are measured before a step is placed anew: the placement is the same in both
// runs, and so are all bits.
TEST_F(PlacedTest, GoesOnWhereItStopped) {
  const checkpoint::TemporaryDirectory whole, parts;
  const std::map<std::string, Tensor> expected = Train(whole.path(), "search", 8);
  Train(parts.path(), "search", 3);
  ExpectEqual(Train(parts.path(), "search", 8), expected);
  // And onto one device, where nothing is left to train.
  ExpectEqual(Train(parts.path(), "manual", 8), expected);
}

TEST_F(PlacedTest, WhatDoesNotFitIsAnError) {
  RunConfig config = ConfigOf(nullptr, 64);
  config.max_steps = 1;
  config.devices = 2;
  config.placement = "search";
  config.device_memory = "10KB";
  Estimator estimator(TwoTowers, config);
  try {
    estimator.Train({.input = Samples});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("does not fit into the memory of"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
