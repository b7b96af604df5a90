// What a ModelSpec says about the update: which variables train, decay, accumulation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/embedding.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

Dataset Words(int64_t count) {
  Tensor word(kInt32, {count}), y(kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    word.data<int32_t>()[i] = int32_t(i * 5 % 7);
    y.data<int32_t>()[i] = int32_t(i * 5 % 7 % 3);
  }
  return Dataset::FromTensors({{"word", word}, {"y", y}});
}

// With a look-up table, whose gradients are rows, and dropout, which knows a sample's place.
ModelSpec Model(const Features& batch, Mode mode) {
  Output h = nn::Embedding(batch["word"], 10, 6, {}, "table");
  h = nn::Dense(h, 8, {.activation = nn::kRelu}, "wide");
  h = nn::Dropout(h, 0.3, {.training = mode == Mode::kTrain});
  return MultiClassHead(3).Spec(nn::Dense(h, 3, {}, "logits"), batch["y"],
                                Momentum({.learning_rate = 0.1}), mode);
}

using Change = std::function<void(ModelSpec&)>;
using Values = std::map<std::string, Tensor>;

Values Trained(const Change& change, RunConfig config, int64_t steps) {
  Estimator estimator(
      [&](const Features& batch, Mode mode) {
        ModelSpec spec = Model(batch, mode);
        change(spec);
        return spec;
      },
      config);
  estimator.Train({.input = [] { return Words(50).Shuffle(3).Repeat(); }, .max_steps = steps});
  return estimator.Variables();
}

double Distance(const Tensor& a, const Tensor& b) {
  double most = 0;
  for (int64_t i = 0; i < a.elements(); ++i) {
    most = std::max(most, std::abs(double(a.data<float>()[i]) - double(b.data<float>()[i])));
  }
  return most;
}

class ModelSpecTest : public ::testing::Test {
 protected:
  ModelSpecTest() { RegisterCpuKernels(); }
  static RunConfig Config(int64_t batch) {
    RunConfig config = ConfigOf(nullptr, batch);
    config.quiet = true;
    return config;
  }
};

TEST_F(ModelSpecTest, TrainsTheVariablesThatItSays) {
  const Values all = Trained([](ModelSpec&) {}, Config(12), 20);
  const auto only_logits = [](ModelSpec& spec) {
    spec.trains = [](std::string_view name) { return name.starts_with("logits/"); };
  };
  const Values start = Trained(
      [](ModelSpec& spec) {
        spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.0});
      },
      Config(12), 1);
  const Values some = Trained(only_logits, Config(12), 20);
  EXPECT_EQ(Distance(some.at("wide/weights"), start.at("wide/weights")), 0);
  EXPECT_EQ(Distance(some.at("table/table"), start.at("table/table")), 0);
  EXPECT_GT(Distance(some.at("logits/weights"), start.at("logits/weights")), 0.01);
  EXPECT_GT(Distance(all.at("wide/weights"), start.at("wide/weights")), 0.01);
  EXPECT_FALSE(some.contains("wide/weights/momentum"));
  EXPECT_TRUE(all.contains("wide/weights/momentum"));
}

// Two parts of 6 samples make the update of one batch of 12, up to rounding; dropout included.
TEST_F(ModelSpecTest, AccumulationEqualsALargerBatch) {
  const Values whole = Trained([](ModelSpec&) {}, Config(12), 30);
  for (const int64_t parts : {2, 3, 12}) {
    const Values split =
        Trained([&](ModelSpec& spec) { spec.accumulate = parts; }, Config(12 / parts), 30);
    for (const auto& [name, value] : whole) {
      if (value.dtype() != kFloat32) continue;
      EXPECT_LT(Distance(value, split.at(name)), 1e-4) << name << " in " << parts << " parts";
    }
    EXPECT_EQ(split.at("global_step").scalar<int64_t>(), 30);
  }
}

TEST_F(ModelSpecTest, AccumulatesOnSeveralWorkers) {
  const Values whole = Trained([](ModelSpec&) {}, Config(12), 30);
  Values split;
  const auto errors = OnRanks(2, [&](int r, std::shared_ptr<collective::Communicator> c) {
    RunConfig config = ConfigOf(c, 3);
    config.quiet = true;
    const Values values = Trained([&](ModelSpec& spec) { spec.accumulate = 2; }, config, 30);
    if (r == 0) split = values;
  });
  EXPECT_EQ(errors[0] + errors[1], "");
  for (const auto& [name, value] : whole) {
    if (value.dtype() != kFloat32) continue;
    EXPECT_LT(Distance(value, split.at(name)), 1e-4) << name;
  }
}

// Adam with decay beside it is AdamW, on tables too.
TEST_F(ModelSpecTest, DecayBesideAdamIsAdamW) {
  const Values expected = Trained(
      [](ModelSpec& spec) {
        spec.optimizer =
            std::make_shared<AdamW>(AdamWConfig{.learning_rate = 0.01, .weight_decay = 0.1});
      },
      Config(12), 30);
  const auto decays = [](std::function<bool(std::string_view)> excluded) {
    return [excluded](ModelSpec& spec) {
      spec.optimizer = std::make_shared<Adam>(AdamConfig{.learning_rate = 0.01});
      spec.weight_decay = {.rate = 0.1, .excluded = excluded};
    };
  };
  const Values found = Trained(decays([](std::string_view) { return false; }), Config(12), 30);
  for (const auto& [name, value] : expected) {
    if (value.dtype() != kFloat32) continue;
    EXPECT_LT(Distance(value, found.at(name)), 1e-5) << name;
  }
  const Values none = Trained(decays([](std::string_view) { return true; }), Config(12), 30);
  EXPECT_GT(Distance(none.at("wide/weights"), found.at("wide/weights")), 1e-3);
}

// By default biases do not decay.
TEST_F(ModelSpecTest, DecayLeavesBiasesAlone) {
  const auto model = [](double rate) {
    return [rate](const Features& batch, Mode) {
      ModelSpec spec;
      const Output y =
          nn::Dense(Cast(Reshape(batch["word"], {-1, 1}), kFloat32), 2, {.biases = Ones}, "layer");
      spec.loss = Mul(Mean(y), 0.0f);
      spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.5});
      spec.weight_decay.rate = rate;
      return spec;
    };
  };
  Values values[2];
  for (const int i : {0, 1}) {
    Estimator estimator(model(i * 0.5), Config(4));
    estimator.Train({.input = [] { return Words(50).Repeat(); }, .max_steps = 2});
    values[i] = estimator.Variables();
  }
  for (int64_t i = 0; i < 2; ++i) {
    const float start = values[0].at("layer/weights").data<float>()[i];
    EXPECT_NEAR(values[1].at("layer/weights").data<float>()[i], start * 0.75 * 0.75, 1e-6);
  }
  EXPECT_EQ(Distance(values[0].at("layer/bias"), values[1].at("layer/bias")), 0);
}

TEST_F(ModelSpecTest, SaysWhatIsWrong) {
  const auto error = [](const Change& change) -> std::string {
    try {
      Trained(change, Config(4), 1);
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_THAT(error([](ModelSpec& spec) { spec.accumulate = 0; }),
              HasSubstr("gave an accumulate of 0; expected 1 to "));
  EXPECT_THAT(error([](ModelSpec& spec) { spec.weight_decay.rate = -1; }),
              HasSubstr("weight decay: the rate is -1"));
  EXPECT_THAT(error([](ModelSpec& spec) { spec.trains = [](std::string_view) { return false; }; }),
              HasSubstr("ModelSpec::trains leaves none of the 5 trainable variables"));
}

}  // namespace
}  // namespace tutti
