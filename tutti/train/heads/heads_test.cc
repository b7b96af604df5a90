// Each head trains a model that can solve its task, alone and on uneven workers.
#include "tutti/train/heads/heads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "tutti/graph/ops/shape.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Points in the plane; their labels follow from them.
Dataset Points(int64_t count) {
  Tensor x(kFloat32, {count, 2}), quadrant(kInt32, {count}), right(kUInt8, {count});
  Tensor both(kInt32, {count, 2}), sum(kFloat64, {count});
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int64_t i = 0; i < count; ++i) {
    const float a = normal(random), b = normal(random);
    x.data<float>()[2 * i] = a, x.data<float>()[2 * i + 1] = b;
    both.data<int32_t>()[2 * i] = a > 0, both.data<int32_t>()[2 * i + 1] = b > 0;
    quadrant.data<int32_t>()[i] = (a > 0) * 2 + (b > 0);
    right.data<uint8_t>()[i] = a > 0;
    sum.data<double>()[i] = a + 2 * b;
  }
  return Dataset::FromTensors(
      {{"x", x}, {"quadrant", quadrant}, {"right", right}, {"both", both}, {"sum", sum}});
}

Adam Fast() { return Adam({.learning_rate = 0.05}); }

ModelSpec Quadrants(const Features& batch, Mode mode) {
  return MultiClassHead(4, {.top_k = 2})
      .Spec(nn::Dense(batch["x"], 4), batch["quadrant"], Fast(), mode);
}
ModelSpec Right(const Features& batch, Mode mode) {
  return BinaryHead().Spec(nn::Dense(batch["x"], 1), batch["right"], Fast(), mode);
}
ModelSpec Both(const Features& batch, Mode mode) {
  return MultiLabelHead(2).Spec(nn::Dense(batch["x"], 2), batch["both"], Fast(), mode);
}
ModelSpec SumOf(const Features& batch, Mode mode) {
  return RegressionHead().Spec(nn::Dense(batch["x"], 1), batch["sum"], Fast(), mode);
}
ModelSpec Tasks(const Features& batch, Mode mode) {
  const Output h = nn::Dense(batch["x"], 8);
  return JoinHeads({{"sum", RegressionHead().Spec(nn::Dense(h, 1), batch["sum"], mode)},
                    {"right", BinaryHead().Spec(nn::Dense(h, 1), batch["right"], mode), 0.5}},
                   Fast(), mode);
}

Metrics Trained(const ModelFunction& model, RunConfig config) {
  Estimator estimator(model, config);
  estimator.Train({.input = [] { return Points(512).Shuffle(3).Repeat(); }, .max_steps = 150});
  return estimator.Evaluate({.input = [] { return Points(203); }, .batch_size = 50});
}

class HeadsTest : public ::testing::Test {
 protected:
  HeadsTest() { RegisterCpuKernels(); }
};

TEST_F(HeadsTest, SolveTheirTasks) {
  const RunConfig alone = ConfigOf(nullptr, 64);
  const Metrics quadrants = Trained(Quadrants, alone);
  EXPECT_GT(quadrants.at("accuracy"), 0.95);
  EXPECT_GE(quadrants.at("top_2_accuracy"), quadrants.at("accuracy"));
  for (const ModelFunction& model : {ModelFunction(Right), ModelFunction(Both)}) {
    const Metrics found = Trained(model, alone);
    for (const char* name : {"accuracy", "precision", "recall", "auc"}) {
      EXPECT_GT(found.at(name), 0.95) << name;
    }
  }
  const Metrics sum = Trained(SumOf, alone);
  EXPECT_LT(sum.at("rmse"), 0.05);
  EXPECT_NEAR(sum.at("rmse") * sum.at("rmse"), sum.at("loss"), 1e-6);
  const Metrics tasks = Trained(Tasks, alone);
  EXPECT_LT(tasks.at("sum/rmse"), 0.1);
  EXPECT_GT(tasks.at("right/auc"), 0.95);
  EXPECT_NEAR(tasks.at("loss"), tasks.at("sum/loss") + 0.5 * tasks.at("right/loss"), 1e-6);
}

// 203 samples in batches of 50 over 3 workers: parts of 17, 17 and 16, and at the end 3.
TEST_F(HeadsTest, EvaluateTheSameOnUnevenWorkers) {
  for (const ModelFunction& model : {ModelFunction(Quadrants), ModelFunction(Tasks)}) {
    Estimator alone(model, ConfigOf(nullptr, 4));
    const EvalSpec spec = {.input = [] { return Points(203); }, .batch_size = 50};
    const Metrics expected = alone.Evaluate(spec);
    std::vector<Metrics> found(3);
    const auto errors = OnRanks(3, [&](int r, std::shared_ptr<collective::Communicator> c) {
      Estimator estimator(model, ConfigOf(c, 4));
      found[size_t(r)] = estimator.Evaluate(spec);
    });
    for (size_t r = 0; r < 3; ++r) {
      EXPECT_EQ(errors[r], "");
      ASSERT_EQ(found[r].size(), expected.size());
      for (const auto& [name, value] : expected) {
        EXPECT_NEAR(found[r].at(name), value, 1e-6) << name;
      }
      EXPECT_EQ(found[r], found[0]);
    }
  }
}

std::string ErrorOf(const ModelFunction& model) {
  try {
    Trained(model, ConfigOf(nullptr, 4));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(HeadsTest, SayWhatDoesNotFit) {
  EXPECT_THAT(ErrorOf([](const Features& b, Mode m) {
                return MultiClassHead(5).Spec(nn::Dense(b["x"], 4), b["quadrant"], Fast(), m);
              }),
              HasSubstr("are [?, 4]; expected 5 classes in the last dimension"));
  EXPECT_THAT(ErrorOf([](const Features& b, Mode m) {
                return BinaryHead().Spec(nn::Dense(b["x"], 2), b["right"], Fast(), m);
              }),
              HasSubstr("BinaryHead: logits"));
  EXPECT_THAT(ErrorOf([](const Features& b, Mode m) {
                return MultiLabelHead(3).Spec(nn::Dense(b["x"], 2), b["both"], Fast(), m);
              }),
              HasSubstr("expected 3 questions in the last dimension"));
  EXPECT_THAT(ErrorOf([](const Features& b, Mode m) {
                return RegressionHead().Spec(nn::Dense(b["x"], 1), Output(), Fast(), m);
              }),
              HasSubstr("RegressionHead: the labels are empty"));
  EXPECT_THAT(ErrorOf([](const Features& b, Mode m) {
                const ModelSpec spec = RegressionHead().Spec(nn::Dense(b["x"], 1), b["sum"], m);
                return JoinHeads({{"a", spec}, {"a", spec}}, Fast(), m);
              }),
              HasSubstr("a task is called \"a\"; expected a name of its own for each"));
  EXPECT_THAT(ErrorOf([](const Features& b, Mode m) {
                const ModelSpec spec = RegressionHead().Spec(nn::Dense(b["x"], 1), b["sum"], m);
                return JoinHeads({{"a", spec, -1}}, Fast(), m);
              }),
              HasSubstr("the weight of \"a\" is -1; expected at least 0"));
}

}  // namespace
}  // namespace tutti
