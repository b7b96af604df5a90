// What an Estimator refuses, and how it says so.
#include "tutti/train/estimator/estimator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <functional>
#include <limits>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Dataset Samples(int64_t count, const std::string& column = "x") {
  return Dataset::FromTensors({{column, Tensor::Zeros(kFloat32, {count, 3})}});
}

ModelSpec Model(const Features& batch, Mode) {
  ModelSpec spec;
  spec.loss = Mean(Square(nn::Dense(batch["x"], 2)));
  spec.optimizer = std::make_shared<Sgd>();
  return spec;
}

class EstimatorTest : public ::testing::Test {
 protected:
  EstimatorTest() { RegisterCpuKernels(); }

  static RunConfig Config() {
    RunConfig config = ConfigOf(nullptr, 4);
    config.max_steps = 2;
    return config;
  }
  static std::string ErrorOf(const std::function<void()>& act) {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  // What training a model that `change` spoils ends with.
  static std::string ErrorOfModel(const std::function<void(ModelSpec&)>& change) {
    return ErrorOf([&] {
      const auto model = [&](const Features& batch, Mode mode) {
        ModelSpec spec = Model(batch, mode);
        change(spec);
        return spec;
      };
      Estimator estimator(model, Config());
      TrainAndEvaluate(estimator, {.input = [] { return Samples(8).Repeat(); }},
                       {.input = [] { return Samples(8); }});
    });
  }
};

TEST_F(EstimatorTest, HasVariablesOnceTheyAreMade) {
  Estimator estimator(Model, Config());
  EXPECT_THAT(ErrorOf([&] { estimator.Variables(); }),
              HasSubstr("Variables: call Train or Evaluate first"));
}

// An evaluator trains nothing. What it evaluates has the same names and values as a training has
// at its start.
TEST_F(EstimatorTest, EvaluatesWithoutATraining) {
  const auto ones = [] {
    Tensor x(kFloat32, {8, 3});
    for (float& v : x.values<float>()) v = 1;
    return Dataset::FromTensors({{"x", x}});
  };
  const auto still = [](const Features& batch, Mode mode) {
    ModelSpec spec = Model(batch, mode);
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.0});
    return spec;
  };
  Estimator trained(still, Config());
  trained.Train({.input = [&] { return ones().Repeat(); }});
  Estimator alone(still, Config());
  const double loss = alone.Evaluate({.input = ones}).at("loss");
  EXPECT_GT(loss, 0);
  EXPECT_EQ(loss, trained.Evaluate({.input = ones}).at("loss"));
  for (const auto& [name, value] : alone.Variables()) {
    EXPECT_TRUE(value.BitwiseEquals(trained.Variables().at(name))) << name;
  }
  // A training goes on from there, on the same variables.
  const TrainResult result = alone.Train({.input = [&] { return ones().Repeat(); }});
  EXPECT_EQ(result.steps, 2);
  EXPECT_EQ(alone.Variables().size(), trained.Variables().size());
}

TEST_F(EstimatorTest, RefusesAnEvaluationWithoutEnd) {
  Estimator estimator(Model, Config());
  const auto endless = [] { return Samples(8).Repeat(); };
  EXPECT_THAT(ErrorOf([&] { estimator.Evaluate({.input = endless}); }),
              HasSubstr("the dataset repeats for ever, so its evaluation would not end"));
  EXPECT_EQ(estimator.Evaluate({.input = endless, .batch_size = 4, .max_steps = 3}).size(), 1u);
}

TEST_F(EstimatorTest, AStopEndsAnEvaluation) {
  Estimator estimator(Model, Config());
  int batches = 0;
  const auto input = [&] {
    return Samples(64).Map([&](Columns columns) {
      // The first is read to see what the columns are.
      if (++batches == 3) RequestStop(SIGTERM);
      return columns;
    });
  };
  const std::string error = ErrorOf([&] { estimator.Evaluate({.input = input, .batch_size = 4}); });
  RequestStop(0);
  EXPECT_THAT(error, HasSubstr("Evaluate: stopped by signal 15 (Terminated) to worker 0"));
  EXPECT_EQ(batches, 3);
}

// The evaluation is built before the first step: what is wrong with it costs no training.
TEST_F(EstimatorTest, ChecksTheEvaluationBeforeTheFirstStep) {
  const auto error_of = [](const ModelFunction& model, const EvalSpec& eval) {
    Estimator estimator(model, Config());
    const std::string error = ErrorOf(
        [&] { TrainAndEvaluate(estimator, {.input = [] { return Samples(8).Repeat(); }}, eval); });
    EXPECT_THAT(ErrorOf([&] { estimator.Variables(); }), HasSubstr("call Train or Evaluate first"))
        << "a step was made";
    return error;
  };
  const auto vector_metric = [](const Features& batch, Mode mode) {
    ModelSpec spec = Model(batch, mode);
    spec.metrics["rows"] = Mean(batch["x"], {.axes = {1}});
    return spec;
  };
  EXPECT_THAT(error_of(vector_metric, {.input = [] { return Samples(8); }}),
              HasSubstr("the metric \"rows\" that the model function gave"));
  EXPECT_THAT(error_of(Model, {.input = [] { return Samples(8, "y"); }}),
              HasSubstr("the batch has no column \"x\"; the dataset gives \"y\""));
  EXPECT_THAT(error_of(Model, {.input = [] { return Samples(8).Repeat(); }}),
              HasSubstr("repeats for ever"));
}

TEST_F(EstimatorTest, SaysThatTheDataEnded) {
  RunConfig config = Config();
  config.max_steps = 1000;
  Estimator estimator(Model, config);
  ::testing::internal::CaptureStderr();
  const TrainResult result = estimator.Train({.input = [] { return Samples(8); }});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.steps, 2);
  EXPECT_THAT(said, HasSubstr("the data ended after step 2 of 1000: 8 samples, 4 a step; "
                              "Dataset::Repeat() goes through them again"));
  EXPECT_THAT(said, Not(HasSubstr(" left")));
}

TEST_F(EstimatorTest, OneWorkerHasNoTableOfCommunication) {
  Estimator estimator(Model, Config());
  ::testing::internal::CaptureStderr();
  estimator.Train({.input = [] { return Samples(8).Repeat(); }, .max_steps = 1});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("1 step in "));
  EXPECT_THAT(said, HasSubstr("waiting for input "));
  EXPECT_THAT(said, Not(HasSubstr("comm")));
}

// A step tells the loss before its update, so no step tells what the last one did.
TEST_F(EstimatorTest, TheLastUpdateIsChecked) {
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    spec.loss = Mean(Square(nn::Dense(Add(batch["x"], 1.0f), 2)));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 1e38});
    return spec;
  };
  Estimator estimator(model, Config());
  const std::string error = ErrorOf(
      [&] { estimator.Train({.input = [] { return Samples(8).Repeat(); }, .max_steps = 1}); });
  EXPECT_THAT(error,
              HasSubstr("step 1: the loss of worker 0 is not finite after the update; the first "
                        "bad tensor is "));
}

TEST_F(EstimatorTest, WantsAModelAndInput) {
  EXPECT_THAT(ErrorOf([] { Estimator(nullptr, Config()); }),
              HasSubstr("the model function is empty"));
  Estimator estimator(Model, Config());
  EXPECT_THAT(ErrorOf([&] { estimator.Train({}); }), HasSubstr("TrainSpec::input is empty"));
  EXPECT_THAT(ErrorOf([&] { estimator.Evaluate({}); }), HasSubstr("EvalSpec::input is empty"));
}

TEST_F(EstimatorTest, NamesTheColumnThatLaterDataLacks) {
  Estimator estimator(Model, Config());
  estimator.Train({.input = [] { return Samples(8).Repeat(); }, .max_steps = 1});
  EXPECT_THAT(
      ErrorOf([&] { estimator.Train({.input = [] { return Samples(8, "y"); }, .max_steps = 2}); }),
      HasSubstr("a column \"x\", which is missing"));
}

TEST_F(EstimatorTest, NothingCannotBeEvaluated) {
  Estimator estimator(Model, Config());
  estimator.Train({.input = [] { return Samples(8).Repeat(); }});
  const auto nothing = [] { return Samples(0); };
  EXPECT_THAT(ErrorOf([&] { estimator.Evaluate({.input = nothing}); }),
              HasSubstr("the dataset is empty"));
  estimator.Evaluate({.input = [] { return Samples(8); }});
  EXPECT_THAT(ErrorOf([&] { estimator.Evaluate({.input = nothing}); }),
              HasSubstr("the dataset is empty"));
}

TEST_F(EstimatorTest, RefusesBatchesBeyondCounting) {
  for (const int64_t batch : {std::numeric_limits<int64_t>::max(), int64_t{1} << 40}) {
    RunConfig config = Config();
    config.batch_size = batch;
    Estimator estimator(Model, config);
    EXPECT_THAT(ErrorOf([&] { estimator.Train({.input = [] { return Samples(8).Repeat(); }}); }),
                HasSubstr("samples; expected 1 to 2147483647"));
  }
}

TEST_F(EstimatorTest, SaysWhatIsWrongWithAModel) {
  EXPECT_THAT(ErrorOfModel([](ModelSpec& spec) { spec.loss = Output(); }),
              HasSubstr("gave an empty loss"));
  EXPECT_THAT(ErrorOfModel([](ModelSpec& spec) { spec.loss = Cast(spec.loss, kFloat16); }),
              HasSubstr("is float16 []; expected a float32 or float64 scalar"));
  EXPECT_THAT(
      ErrorOfModel([](ModelSpec& spec) { spec.metrics["count"] = Cast(spec.loss, kInt32); }),
      HasSubstr("the metric \"count\" that the model function gave"));
  for (const double norm : {-1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THAT(ErrorOfModel([&](ModelSpec& spec) { spec.clip_norm = norm; }),
                HasSubstr("gave a clip_norm of "));
  }
  EXPECT_EQ(ErrorOfModel([](ModelSpec&) {}), "no error");
}

}  // namespace
}  // namespace tutti
