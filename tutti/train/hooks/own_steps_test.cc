// Hooks, saves and evaluations where workers make steps of their own (ps-async), so that those of a
// worker jump over numbers; and with ps-sync, where a worker has only its own gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <sstream>

#include "tutti/base/status.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/strategies/ps/async.h"
#include "tutti/train/strategies/ps/models_under_test.h"
#include "tutti/train/strategies/ps/sync.h"

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kTurns = 3;

// After every step of worker 0, worker 1 makes kTurns steps: so those of worker 0 are 1, 5, 9 and
// so on, and nobody makes one while worker 0 saves or evaluates.
class Turns {
 public:
  void Give() {
    std::unique_lock lock(mutex_);
    left_ = kTurns;
    changed_.notify_all();
    changed_.wait(lock, [&] { return left_ == 0 || over_; });
  }
  void AwaitOne() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return left_ > 0 || over_; });
  }
  void Made() {
    const std::lock_guard lock(mutex_);
    --left_;
    changed_.notify_all();
  }
  void End() {
    const std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t left_ = 0;
  bool over_ = false;
};

class TurnsHook final : public Hook {
 public:
  TurnsHook(Turns& turns, int rank) : turns_(turns), rank_(rank) {}
  bool BeforeStep(int64_t /*step*/) override {
    if (rank_ == 1) turns_.AwaitOne();
    return false;
  }
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    steps.push_back(end.step);
    rank_ == 0 ? turns_.Give() : turns_.Made();
  }
  void BeforeSave(int64_t step) override { saves.push_back(step); }
  void AfterEvaluation(const EvaluationEnd& end, TrainingControl& /*control*/) override {
    evaluations.push_back(end.step);
  }
  void OnEnd(const TrainingEnd& /*end*/) override { turns_.End(); }

  std::vector<int64_t> steps, saves, evaluations;

 private:
  Turns& turns_;
  const int rank_;
};

size_t CountOf(std::string_view part, std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
  return count;
}

Dataset Input() { return SmallSamples(40).Shuffle(2).Repeat(); }
Dataset OnePass() { return SmallSamples(12); }

class OwnStepsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  // Trains with ps-async and two workers, which take turns. `change` sets what the configuration of
  // a worker has besides.
  void Train(int64_t steps, const std::function<void(int, RunConfig&)>& change,
             const ModelFunction& model = SmallModel) {
    ServersUnderTest cluster(1, 2);
    Turns turns;
    ::testing::internal::CaptureStderr();
    const auto errors = cluster.OnWorkers(
        [&](ParameterServers found) { return MakeAsyncStrategy(std::move(found), {}); },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          RunConfig config = SmallConfig(std::move(strategy), 4, steps);
          config.keep = 0;
          config.save_every = "0";
          change(rank, config);
          auto hook = hooks_[rank] = std::make_shared<TurnsHook>(turns, rank);
          const auto due = AfterSteps(
              10, [&, rank](const StepEnd& end, auto&) { after_[rank].push_back(end.step); });
          Estimator estimator(model, config);
          results_[rank] = estimator.Train(
              {.input = Input, .evaluation = EvalSpec{.input = OnePass}, .hooks = {due, hook}});
        });
    said_ = ::testing::internal::GetCapturedStderr();
    EXPECT_THAT(errors, Each(std::string()));
  }

  std::shared_ptr<TurnsHook> hooks_[2];
  std::vector<int64_t> after_[2];  // when AfterSteps(10) was called
  TrainResult results_[2];
  std::string said_;
};

TEST_F(OwnStepsTest, WhatIsDueEverySoManyStepsIsNotSkipped) {
  const testing::TemporaryDirectory folder;
  Train(100, [&](int rank, RunConfig& config) {
    if (rank == 0) config.model_dir = folder.path();
    config.save_every = "20";
    config.log_every = 10;
    config.summary_every = 20;
    config.histograms = true;
  });
  // Worker 0 makes steps 1, 5, 9, 13: no multiple of 10 is among them, unless it makes the last
  // one.
  std::erase(after_[0], 100);
  EXPECT_THAT(after_[0], ElementsAre(13, 21, 33, 41, 53, 61, 73, 81, 93));
  EXPECT_THAT(said_, HasSubstr("step 13 loss "));
  EXPECT_THAT(said_, HasSubstr("step 93 loss "));
  // A save that is due while another is being written is told of and left out; the last one, of the
  // end, never is.
  EXPECT_EQ(hooks_[0]->saves.size() + CountOf("no checkpoint of step ", said_), 5u) << said_;
  EXPECT_EQ(hooks_[0]->saves.front(), 24) << "the step of worker 0 is 21, and 3 more were made";
  EXPECT_EQ(hooks_[0]->saves.back(), 100);
  EXPECT_THAT(hooks_[1]->saves, IsEmpty());
  std::ifstream log(folder.path() + "/metrics.jsonl");
  std::vector<std::string> lines;
  for (std::string line; std::getline(log, line);) lines.push_back(line);
  EXPECT_THAT(lines, SizeIs(4)) << ::testing::PrintToString(lines);
  for (const int64_t step : hooks_[0]->saves) {
    const auto saved = ValueOrThrow(checkpoint::SavedCheckpoint::Open(
        checkpoint::FileSystem::System(), folder.path() + "/" + checkpoint::CheckpointName(step)));
    Tensor count(kInt64, {});
    checkpoint::SavedCheckpoint::Request request = {"global_step", 0, count};
    ThrowIfError(saved.Read(std::span(&request, 1)));
    EXPECT_EQ(count.scalar<int64_t>(), step);
    EXPECT_EQ(saved.manifest().position, 4 * step);
  }
}

TEST_F(OwnStepsTest, WorkerZeroEvaluatesAlone) {
  Train(100, [](int, RunConfig& config) { config.eval_every = 20; });
  EXPECT_THAT(hooks_[0]->evaluations, ElementsAre(21, 41, 61, 81));
  EXPECT_THAT(hooks_[1]->evaluations, IsEmpty());
  EXPECT_THAT(said_, HasSubstr("step 21 evaluation: accuracy "));
}

TEST_F(OwnStepsTest, EarlyStopEndsAllWorkers) {
  const auto still = [](const Features& batch, Mode mode) {
    return MultiClassHead(3).Spec(nn::Dense(batch["x"], 3), batch["y"], Sgd({.learning_rate = 0.0}),
                                  mode);
  };
  const auto change = [](int, RunConfig& config) {
    config.eval_every = 10;
    config.early_stop = "loss:2";
  };
  Train(10000, change, still);
  EXPECT_THAT(hooks_[0]->evaluations, ElementsAre(13, 21, 33));
  for (const TrainResult& result : results_) {
    EXPECT_THAT(result.stop_reason, HasSubstr("(step 13) in 2 evaluations"));
    EXPECT_LT(result.steps, 50);
  }
}

TEST_F(OwnStepsTest, TheBestCheckpointIsKept) {
  const testing::TemporaryDirectory folder;
  // Better and better until step 45, then worse.
  const auto model = [](const Features& batch, Mode mode) {
    ModelSpec spec = SmallModel(batch, mode);
    const Output step = Cast(GlobalStep(batch["x"].graph()), kFloat32);
    spec.metrics["score"] = Sub(100.0f, Abs(Sub(step, 45.0f)));
    return spec;
  };
  const auto change = [&](int rank, RunConfig& config) {
    if (rank == 0) config.model_dir = folder.path();
    config.eval_every = 10;
    config.keep = 1;
    config.keep_best = "score";
  };
  Train(100, change, model);
  const auto best = checkpoint::ReadBest(checkpoint::FileSystem::System(), folder.path()).value();
  ASSERT_TRUE(best);
  EXPECT_EQ(best->step, 44);  // worker 0 evaluates after its step 41, and 3 more were made
  EXPECT_EQ(best->value, 99);
  EXPECT_THAT(checkpoint::ListCheckpoints(checkpoint::FileSystem::System(), folder.path()).value(),
              ElementsAre(100, 44));
}

TEST_F(OwnStepsTest, WorkerZeroIsTraced) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/trace.json";
  Train(40, [&](int, RunConfig& config) { config.trace = "10..20:" + path; });
  EXPECT_THAT(said_, HasSubstr("--trace: worker 0 alone is traced"));
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  EXPECT_EQ(CountOf("\"name\":\"dense/MatMul\"", text.str()), 3u)
      << "those of its steps 13, 17 and 21: " << text.str();
}

// The norms of the gradients of each step as a hook sees them.
std::vector<double> NormsOf(RunConfig config, const ModelFunction& model = SmallModel) {
  std::vector<double> norms;
  config.show = "gradient-norm";
  config.quiet = true;
  Estimator(model, config)
      .Train({.input = Input, .hooks = {AfterSteps(1, [&](const StepEnd& end, auto&) {
                                norms.push_back(end.values.at("gradient_norm"));
                              })}});
  return norms;
}

// With one worker and 6 steps, by ps-sync or ps-async.
std::vector<std::string> OnServers(bool in_step,
                                   const std::function<void(const RunConfig&)>& body) {
  ServersUnderTest cluster(1, 1);
  return cluster.OnWorkers(
      [&](ParameterServers servers) {
        return in_step ? MakeSyncStrategy(std::move(servers), {})
                       : MakeAsyncStrategy(std::move(servers), {});
      },
      [&](int, std::shared_ptr<const Strategy> strategy) {
        body(SmallConfig(std::move(strategy), 4, 6));
      });
}

TEST_F(OwnStepsTest, TheGradientNormIsThatOfTheMean) {
  const auto alone = NormsOf(SmallConfig(MakeLocalStrategy(), 4, 6));
  ASSERT_THAT(alone, SizeIs(6));
  for (const bool in_step : {true, false}) {
    std::vector<double> found;
    EXPECT_THAT(OnServers(in_step, [&](const RunConfig& config) { found = NormsOf(config); }),
                Each(std::string()));
    ASSERT_EQ(found.size(), alone.size());
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_NEAR(found[i], alone[i], 1e-5 * alone[i]) << "step " << i << ", ps-sync " << in_step;
    }
  }
}

TEST_F(OwnStepsTest, AccumulationIsRefused) {
  const auto model = [](const Features& batch, Mode mode) {
    ModelSpec spec = SmallModel(batch, mode);
    spec.accumulate = 2;
    return spec;
  };
  for (const bool in_step : {true, false}) {
    EXPECT_THAT(OnServers(in_step, [&](const RunConfig& config) { NormsOf(config, model); }),
                Each(HasSubstr("an accumulate of 2, and strategy ps-")));
  }
}

}  // namespace
}  // namespace tutti
