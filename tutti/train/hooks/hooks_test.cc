// What hooks see and can do, alone and with several workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/reporting/worker_trace.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Dataset Samples(int64_t count) {
  Tensor x(kFloat32, {count, 3}), y(kFloat32, {count});
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < 3; ++j) x.data<float>()[3 * i + j] = float((i * 7 + j * 3) % 5) - 2;
    y.data<float>()[i] = x.data<float>()[3 * i] - x.data<float>()[3 * i + 2];
  }
  return Dataset::FromTensors({{"x", x}, {"y", y}});
}
Dataset Endless() { return Samples(40).Repeat(); }

ModelSpec Model(const Features& batch, Mode mode) {
  return RegressionHead().Spec(nn::Dense(batch["x"], 1), batch["y"], Sgd({.learning_rate = 0.05}),
                               mode);
}

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class HooksTest : public ::testing::Test {
 protected:
  HooksTest() { RegisterCpuKernels(); }
  static RunConfig Config(int64_t steps = 6) {
    RunConfig config = ConfigOf(nullptr, 4);
    config.max_steps = steps;
    return config;
  }
};

// Writes down what it is told.
class Diary : public Hook {
 public:
  void OnStart(const TrainingStart& start) override { Note("start", start.step); }
  bool BeforeStep(int64_t step) override {
    Note("before", step);
    return false;
  }
  void AfterStep(const StepEnd& end, TrainingControl&) override {
    Note("after", end.step);
    losses.push_back(end.loss);
    samples.push_back(end.samples);
  }
  void AfterEvaluation(const EvaluationEnd& end, TrainingControl&) override {
    Note("evaluated", end.step);
    rmse.push_back(end.metrics.at("rmse"));
  }
  void BeforeSave(int64_t step) override { saves.push_back("before " + std::to_string(step)); }
  void AfterSave(const SaveEnd& end) override {
    saves.push_back("after " + std::to_string(end.step) + end.error);
    EXPECT_TRUE(std::filesystem::exists(end.path)) << end.path;
  }
  void OnEnd(const TrainingEnd& end) override { Note("end", end.step); }

  std::vector<std::string> saves;
  std::vector<std::string> entries;
  std::vector<double> losses, samples, rmse;

 private:
  void Note(const std::string& what, int64_t step) {
    entries.push_back(what + " " + std::to_string(step));
  }
};

TEST_F(HooksTest, AreCalledAroundStepsAndEvaluations) {
  RunConfig config = Config(3);
  config.eval_every = 2;
  auto diary = std::make_shared<Diary>();
  Estimator estimator(Model, config);
  const EvalSpec eval = {.input = [] { return Samples(10); }, .batch_size = 5};
  const TrainResult result =
      estimator.Train({.input = Endless, .evaluation = eval, .hooks = {diary}});
  estimator.Evaluate(eval);
  EXPECT_THAT(diary->entries,
              ElementsAre("start 0", "before 0", "after 1", "before 1", "after 2", "evaluated 2",
                          "before 2", "after 3", "end 3", "evaluated 3"));
  EXPECT_EQ(diary->losses.back(), result.loss);
  EXPECT_THAT(diary->samples, ElementsAre(4, 4, 4));
  EXPECT_LT(diary->rmse[1], diary->rmse[0]);
}

TEST_F(HooksTest, AreCalledAroundSaves) {
  RunConfig config = Config(3);
  config.model_dir = ::testing::TempDir() + "/hooks_test_saves";
  std::filesystem::remove_all(config.model_dir);
  config.save_every = "2";
  config.quiet = true;
  auto diary = std::make_shared<Diary>();
  Estimator(Model, config).Train({.input = Endless, .hooks = {diary}});
  EXPECT_THAT(diary->saves, ElementsAre("before 2", "after 2", "before 3", "after 3"));
  std::filesystem::remove_all(config.model_dir);
}

// The metric is best in the middle; what is kept is the state of that step.
TEST_F(HooksTest, TheBestCheckpointOfATrainingIsKept) {
  const auto model = [](const Features& batch, Mode mode) {
    ModelSpec spec = Model(batch, mode);
    const Output step = Cast(GlobalStep(batch["x"].graph()), kFloat32);
    spec.metrics["score"] = Sub(10.0f, Abs(Sub(step, 6.0f)));
    return spec;
  };
  for (const char* save_every : {"0", "1", "3"}) {
    const testing::TemporaryDirectory folder;
    RunConfig config = Config(12);
    config.model_dir = folder.path();
    config.save_every = save_every;
    config.keep = 1;
    config.keep_best = "score";
    config.eval_every = 2;
    Estimator estimator(model, config);
    TrainAndEvaluate(estimator, {.input = Endless}, {.input = [] { return Samples(10); }});
    auto& files = checkpoint::FileSystem::System();
    const auto best = checkpoint::ReadBest(files, folder.path()).value();
    ASSERT_TRUE(best) << save_every;
    EXPECT_EQ(best->step, 6) << save_every;
    EXPECT_EQ(best->value, 10) << save_every;
    EXPECT_THAT(checkpoint::ListCheckpoints(files, folder.path()).value(), ElementsAre(12, 6));
    const auto saved = checkpoint::SavedCheckpoint::Open(
        files, folder.path() + "/" + checkpoint::CheckpointName(6));
    ASSERT_TRUE(saved.ok()) << saved.status();
    checkpoint::SavedCheckpoint::Request request = {"global_step", 0, Tensor(kInt64, {})};
    ASSERT_TRUE(saved->Read(std::span(&request, 1)).ok());
    EXPECT_EQ(request.target.scalar<int64_t>(), 6);
  }
}

TEST_F(HooksTest, ALambdaCanEndTheTraining) {
  Estimator estimator(Model, Config(100));
  ::testing::internal::CaptureStderr();
  const TrainResult result = estimator.Train(
      {.input = Endless, .hooks = {AfterSteps(5, [](const StepEnd& end, TrainingControl& control) {
                           if (end.step == 10) control.Stop("it is enough");
                         })}});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.steps, 11);  // one more, by which other workers would learn of it
  EXPECT_FALSE(result.stopped);
  EXPECT_EQ(result.stop_reason, "it is enough");
  EXPECT_THAT(said, HasSubstr("test: stopped after step 11 of 100 by a hook of worker 0: it is "
                              "enough"));
}

TEST_F(HooksTest, OneWorkersHookEndsAll) {
  std::vector<TrainResult> results(2);
  const auto errors = OnRanks(2, [&](int r, std::shared_ptr<collective::Communicator> c) {
    RunConfig config = ConfigOf(c, 4);
    Estimator estimator(Model, config);
    TrainSpec spec = {.input = Endless};
    if (r == 1) {
      spec.hooks.push_back(AfterSteps(1, [](const StepEnd& end, TrainingControl& control) {
        if (end.step == 3) control.Stop("worker 1 has seen enough");
      }));
    }
    results[size_t(r)] = estimator.Train(spec);
  });
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(errors[r], "");
    EXPECT_EQ(results[r].steps, 4);
    EXPECT_EQ(results[r].stop_reason, "worker 1 has seen enough");
  }
}

TEST_F(HooksTest, ErrorsOfAHookEndTheTraining) {
  Estimator estimator(Model, Config());
  EXPECT_THAT(ErrorOf([&] {
                estimator.Train({.input = Endless, .hooks = {AfterSteps(2, [](auto&, auto&) {
                                                     throw Error(Code::kDataLoss, "the dog ate it");
                                                   })}});
              }),
              HasSubstr("the dog ate it"));
  EXPECT_THAT(ErrorOf([] { AfterSteps(0, [](auto&, auto&) {}); }), HasSubstr("every is 0"));
}

TEST_F(HooksTest, EarlyStopWaitsForPatience) {
  const auto still = [](const Features& batch, Mode mode) {
    return RegressionHead().Spec(nn::Dense(batch["x"], 1), batch["y"], Sgd({.learning_rate = 0.0}),
                                 mode);
  };
  RunConfig config = Config(100);
  config.eval_every = 2;
  config.early_stop = "rmse:3";
  config.quiet = true;
  Estimator estimator(still, config);
  const TrainResult result = estimator.Train(
      {.input = Endless, .evaluation = EvalSpec{.input = [] { return Samples(10); }}});
  EXPECT_EQ(result.steps, 8);  // the first evaluation is the best one; three more are waited for
  EXPECT_THAT(result.stop_reason, HasSubstr("rmse has not become better than "));
  EXPECT_THAT(result.stop_reason, HasSubstr("(step 2) in 3 evaluations"));

  config.early_stop = "beauty:1";
  const auto diary = std::make_shared<Diary>();
  const auto refused = [&] {
    Estimator wrong(still, config);
    return ErrorOf([&] {
      wrong.Train({.input = Endless,
                   .evaluation = EvalSpec{.input = [] { return Samples(10); }},
                   .hooks = {diary}});
    });
  };
  EXPECT_THAT(refused(),
              HasSubstr("--early-stop: there is no metric \"beauty\"; the evaluation has loss, "
                        "mean_absolute_error, rmse"));
  config.early_stop = "";
  config.keep_best = "truth";
  EXPECT_THAT(refused(), HasSubstr("--keep-best: there is no metric \"truth\""));
  EXPECT_TRUE(diary->losses.empty());  // before the first step
}

TEST_F(HooksTest, EarlyStopIsAMetricAndANumber) {
  EXPECT_EQ(ParseEarlyStop("a/accuracy:3").patience, 3);
  EXPECT_FALSE(ParseEarlyStop("a/accuracy:3").smaller_is_better);
  EXPECT_TRUE(ParseEarlyStop("a/loss:1").smaller_is_better);
  for (const char* text : {"", "loss", "loss:", "loss:0", "loss:x", ":3", "loss:3x"}) {
    EXPECT_THAT(ErrorOf([&] { ParseEarlyStop(text); }), HasSubstr("expected METRIC:PATIENCE"))
        << text;
  }
}

TEST_F(HooksTest, TheLogShowsWhatIsAskedFor) {
  RunConfig config = Config(2);
  config.log_every = 2;
  config.show = "learning-rate,gradient-norm,metrics";
  Estimator estimator(Model, config);
  ::testing::internal::CaptureStderr();
  estimator.Train({.input = Endless});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("step 2 loss "));
  EXPECT_THAT(said, HasSubstr(" learning_rate 0.05 "));
  EXPECT_THAT(said, HasSubstr(" gradient_norm "));
  EXPECT_THAT(said, HasSubstr(" train_rmse "));
  config.show = "";
  Estimator plain(Model, config);
  ::testing::internal::CaptureStderr();
  plain.Train({.input = Endless});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), Not(HasSubstr("learning_rate")));
}

TEST_F(HooksTest, QuietSaysNothing) {
  RunConfig config = Config(30);
  config.log_every = 1;
  config.quiet = true;
  Estimator estimator(Model, config);
  ::testing::internal::CaptureStderr();
  ::testing::internal::CaptureStdout();
  TrainAndEvaluate(estimator, {.input = [] { return Samples(40); }},
                   {.input = [] { return Samples(10); }});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST_F(HooksTest, TheSummaryListsLayers) {
  RunConfig config = Config(1);
  config.summary = true;
  Estimator estimator(
      [](const Features& batch, Mode mode) {
        const Output h = nn::Dense(batch["x"], 100, {.activation = nn::kRelu}, "wide");
        ModelSpec spec = RegressionHead().Spec(nn::Dense(h, 1, {}, "narrow"), batch["y"],
                                               Sgd({.learning_rate = 0.05}), mode);
        spec.trains = [](std::string_view name) { return name.starts_with("narrow"); };
        return spec;
      },
      config);
  ::testing::internal::CaptureStderr();
  estimator.Train({.input = Endless});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, ::testing::ContainsRegex("  layer +output +parameters +bytes +operations\n"
                                             "  wide +\\[\\?, 100\\] +400 +1\\.6 KB +800\n"
                                             "  narrow +\\[\\?, 1\\] +101 +404 B +201\n"
                                             "  loss +\\[\\] +0 +0 B +2\n"
                                             "  total +501 "));
  EXPECT_THAT(said, HasSubstr("101 of the parameters are trained"));
}

TEST_F(HooksTest, TracesTheStepsThatAreAskedFor) {
  const std::string path = ::testing::TempDir() + "/hooks_test_trace.json";
  RunConfig config = Config(9);
  config.trace = "3..5:" + path;
  Estimator estimator(Model, config);
  estimator.Train({.input = Endless});
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  size_t count = 0;
  for (size_t at = 0;
       (at = text.str().find("\"name\":\"train/AssignAdd\"", at)) != std::string::npos;) {
    ++count, ++at;
  }
  EXPECT_EQ(count, 3u) << text.str();
}

TEST(TraceRequestTest, IsAFileOrARange) {
  EXPECT_EQ(ParseTraceRequest("a.json").first, 11);
  EXPECT_EQ(ParseTraceRequest("../a.json").path, "../a.json");
  EXPECT_EQ(ParseTraceRequest("5..7").last, 7);
  EXPECT_EQ(ParseTraceRequest("5..7").path, "trace.json");
  EXPECT_EQ(ParseTraceRequest("5..7:b/c.json").path, "b/c.json");
  EXPECT_EQ(ParseTraceRequest("").first, 0);
  for (const char* text : {"0..3", "7..5", "5..", "5..x", "5..7:", "5..7b", "1..5000"}) {
    EXPECT_THAT(ErrorOf([&] { ParseTraceRequest(text); }),
                HasSubstr("expected FILE, A..B or A..B:FILE with 1 <= A <= B"))
        << text;
  }
}

}  // namespace
}  // namespace tutti
