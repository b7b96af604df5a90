// What an Estimator refuses, and how it says so.
#include "tutti/train/estimator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/train/optimizers.h"
#include "tutti/train/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

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

TEST_F(EstimatorTest, WantsTrainingFirst) {
  Estimator estimator(Model, Config());
  EXPECT_THAT(ErrorOf([&] { estimator.Variables(); }), HasSubstr("Variables: call Train first"));
  EXPECT_THAT(ErrorOf([&] { estimator.Evaluate({.input = [] { return Samples(8); }}); }),
              HasSubstr("Evaluate: call Train first"));
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
