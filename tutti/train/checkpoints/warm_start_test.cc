#include "tutti/train/checkpoints/warm_start.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/train/checkpoints/save_schedule.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(NameMapTest, MapsNamesAndBeginnings) {
  const NameMap map("head/kernel=classifier/w,encoder/*=bert/encoder/*");
  EXPECT_EQ(map.OldName("head/kernel"), "classifier/w");
  EXPECT_EQ(map.OldName("encoder/0/q"), "bert/encoder/0/q");
  EXPECT_EQ(map.OldName("other"), "other");
  EXPECT_EQ(NameMap("").OldName("w"), "w");
  for (const char* wrong : {"a", "a=", "=b", "a*=b", "a=b*", "a*c=b*c", "a=b,c"}) {
    EXPECT_THROW(NameMap{wrong}, Error) << wrong;
  }
}

TEST(SaveScheduleTest, CountsStepsOrSeconds) {
  SaveSchedule steps("5");
  EXPECT_TRUE(steps.Due(10, 0));
  steps.Begin(10, 0);
  EXPECT_FALSE(steps.Due(11, 0));
  SaveSchedule seconds("60s");
  seconds.Begin(0, 1'000'000'000);
  EXPECT_FALSE(seconds.Due(1, 60'999'999'999));
  EXPECT_TRUE(seconds.Due(1, 61'000'000'000));
  const SaveSchedule never("0");
  EXPECT_FALSE(never.Due(5, int64_t{1} << 60));
  for (const char* wrong : {"", "s", "0s", "-1", "5m", "1.5s", "99999999999999999999", " 5"}) {
    EXPECT_NE(SaveSchedule::Check(wrong), "") << wrong;
  }
}

Dataset Samples() {
  Tensor x(kFloat32, {8, 3});
  for (float k = 0; float& v : x.values<float>()) v = k++ / 24;
  return Dataset::FromTensors({{"x", x}}).Repeat();
}

ModelFunction Net(const std::string& body, int outputs) {
  return [=](const Features& batch, Mode) {
    ModelSpec spec;
    const Output h = nn::Dense(batch["x"], 4, {}, body);
    spec.loss = Mean(Square(nn::Dense(h, outputs, {}, "head")));
    spec.optimizer = std::make_shared<Adam>();
    return spec;
  };
}

class WarmStartTest : public ::testing::Test {
 protected:
  WarmStartTest() {
    RegisterCpuKernels();
    RunConfig config = ConfigOf(nullptr, 4);
    config.max_steps = 5;
    config.model_dir = folder_.path();
    Estimator estimator(Net("body", 2), config);
    estimator.Train({.input = Samples});
    before_ = estimator.Variables();
  }
  // Takes what it can and makes no step.
  std::map<std::string, Tensor> Take(const ModelFunction& model, const std::string& map) {
    RunConfig config = ConfigOf(nullptr, 4);
    config.warm_start = folder_.path();
    config.warm_start_map = map;
    Estimator estimator(model, config);
    ::testing::internal::CaptureStderr();
    error_.clear();
    try {
      estimator.Evaluate({.input = [] { return Samples().Repeat(1); }});
    } catch (const Error& error) {
      error_ = error.what();
    }
    said_ = ::testing::internal::GetCapturedStderr();
    return error_.empty() ? estimator.Variables() : std::map<std::string, Tensor>();
  }

  const checkpoint::TemporaryDirectory folder_;
  std::map<std::string, Tensor> before_;
  std::string said_, error_;
};

TEST_F(WarmStartTest, TakesWhatFitsAndListsTheRest) {
  const auto values = Take(Net("trunk", 7), "trunk/*=body/*");
  ASSERT_EQ(error_, "");
  EXPECT_TRUE(values.at("trunk/weights").BitwiseEquals(before_.at("body/weights")));
  EXPECT_TRUE(values.at("trunk/bias").BitwiseEquals(before_.at("body/bias")));
  EXPECT_EQ(values.at("head/weights").shape(), (Shape{4, 7}));
  EXPECT_THAT(said_, HasSubstr("2 variables taken, 2 missing, 2 left over"));
  EXPECT_THAT(said_, HasSubstr("taken      trunk/weights from body/weights"));
  EXPECT_THAT(said_,
              HasSubstr("missing    head/weights: float32 [4, 7] here, float32 [4, 2] there"));
  EXPECT_THAT(said_, HasSubstr("left over  head/bias"));
}

TEST_F(WarmStartTest, RefusesToTakeNothing) {
  Take(Net("trunk", 7), "");
  EXPECT_THAT(error_, HasSubstr("--warm-start: nothing of "));
  EXPECT_THAT(error_, HasSubstr("trunk/weights: not there"));
}

}  // namespace
}  // namespace tutti
