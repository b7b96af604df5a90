// A training that was broken off goes on with the same bits, on as many workers or others.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <functional>

#include "tutti/base/error.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/conv.h"
#include "tutti/nn/dense.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/flatten.h"
#include "tutti/nn/norm.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using checkpoint::FileSystem;
using checkpoint::TemporaryDirectory;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using Values = std::map<std::string, Tensor>;

Dataset Samples() {
  constexpr int64_t kCount = 50;
  Tensor images(kFloat32, {kCount, 6, 6, 1});
  Tensor labels(kInt32, {kCount});
  for (int64_t i = 0; float& v : images.values<float>()) v = float((i++ * 37) % 101) / 101;
  for (int32_t i = 0; int32_t & v : labels.values<int32_t>()) v = (i++ * 7) % 3;
  return Dataset::FromTensors({{"image", images}, {"label", labels}}).Shuffle(3).Repeat();
}

// A CNN with dropout, moving averages, Adam and a learning rate that falls.
ModelSpec Model(const Features& batch, Mode mode, int classes = 3) {
  Output h = nn::Conv2d(batch["image"], 4, {3, 3}, {.activation = nn::kRelu});
  h = nn::BatchNorm(h, {.training = mode == Mode::kTrain});
  h = nn::Flatten(h);
  if (mode == Mode::kTrain) h = nn::Dropout(h, 0.4);
  const Output logits = nn::Dense(h, classes);
  return MultiClassHead(classes).Spec(
      logits, batch["label"], Adam({.learning_rate = CosineDecay({.initial = 1e-2, .steps = 20})}),
      mode);
}
ModelSpec ThreeClasses(const Features& batch, Mode mode) { return Model(batch, mode); }

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() { RegisterCpuKernels(); }

  // Trains with so many workers (0: strategy local), and gives the values that worker 0 ends with.
  Values Train(int workers, int64_t max_steps, const std::string& model_dir,
               const std::function<void(RunConfig&)>& change = {}) {
    Values values;
    const auto train = [&](int rank, std::shared_ptr<collective::Communicator> communicator) {
      RunConfig config = ConfigOf(std::move(communicator), 4);
      config.max_steps = max_steps;
      config.model_dir = rank == 0 ? model_dir : "";
      config.save_every = "0";
      config.keep = 0;
      if (change) change(config);
      Estimator estimator(ThreeClasses, config);
      const TrainResult result = estimator.Train({.input = Samples});
      if (rank == 0) {
        values = estimator.Variables();
        steps_ = result.steps;
        save_error_ = result.save_error;
      }
    };
    ::testing::internal::CaptureStderr();
    std::string error;
    if (workers == 0) {
      try {
        train(0, nullptr);
      } catch (const Error& caught) {
        error = caught.what();
      }
    } else {
      for (const std::string& text : OnRanks(workers, train)) error += text;
    }
    said_ = ::testing::internal::GetCapturedStderr();
    error_ = error;
    return values;
  }

  // The checkpoints after `step` were never written.
  void BreakOffAfter(int64_t step) const {
    for (const int64_t found : Steps()) {
      if (found > step) fs::remove_all(folder_ / checkpoint::CheckpointName(found));
    }
  }
  std::vector<int64_t> Steps() const {
    return checkpoint::ListCheckpoints(FileSystem::System(), folder_.path()).value();
  }

  static void ExpectSame(const Values& a, const Values& b) {
    ASSERT_EQ(a.size(), b.size());
    ASSERT_GT(a.size(), 10u);
    for (const auto& [name, value] : a) EXPECT_TRUE(value.BitwiseEquals(b.at(name))) << name;
  }

  TemporaryDirectory folder_;
  std::string said_, error_, save_error_;
  int64_t steps_ = 0;
};

class ResumeOnWorkers : public ResumeTest, public ::testing::WithParamInterface<int> {};

TEST_P(ResumeOnWorkers, TheSameCommandEndsWithTheSameBits) {
  const int workers = GetParam();
  const Values unbroken = Train(workers, 13, "");
  Train(workers, 3, folder_.path());
  Train(workers, 9, folder_.path());
  EXPECT_EQ(steps_, 6);
  EXPECT_THAT(Steps(), ElementsAre(9, 3));
  for (const int64_t step : {9, 3}) {
    BreakOffAfter(step);
    ExpectSame(Train(workers, 13, folder_.path()), unbroken);
    EXPECT_EQ(error_, "");
    EXPECT_EQ(steps_, 13 - step);
    EXPECT_THAT(said_, HasSubstr(fmt::format("goes on from step {} of 13", step)));
    EXPECT_THAT(said_, Not(HasSubstr("not bit-reproducible")));
  }
}

// Saves that are written while the training goes on change nothing.
TEST_P(ResumeOnWorkers, SavesBesideTheTrainingChangeNothing) {
  const Values unbroken = Train(GetParam(), 13, "");
  const auto often = [](RunConfig& config) { config.save_every = "1"; };
  ExpectSame(Train(GetParam(), 13, folder_.path(), often), unbroken);
  // However many there were, any of them is a step to go on from.
  const std::vector<int64_t> steps = Steps();
  EXPECT_EQ(steps.front(), 13);
  ASSERT_GT(steps.size(), 1u);
  BreakOffAfter(steps[1]);
  ExpectSame(Train(GetParam(), 13, folder_.path(), often), unbroken);
  EXPECT_EQ(steps_, 13 - steps[1]);
}

INSTANTIATE_TEST_SUITE_P(Workers, ResumeOnWorkers, ::testing::Values(0, 1, 2, 3));

TEST_F(ResumeTest, RestoresOntoAnotherNumberOfWorkersAndStrategy) {
  const Values of_two = Train(2, 6, folder_.path());
  // Nothing to train: the values are those that were restored.
  for (const int workers : {0, 1, 2, 3}) {
    ExpectSame(Train(workers, 6, folder_.path()), of_two);
    EXPECT_EQ(error_, "");
    EXPECT_EQ(steps_, 0);
    EXPECT_THAT(said_, HasSubstr("is of step 6, and --max-steps is 6: there is nothing to train"));
  }
  // And they train on, from the sample at which the two left off.
  for (const int workers : {3, 0}) {
    Train(workers, 9, folder_.path());
    EXPECT_EQ(error_, "");
    EXPECT_THAT(said_, HasSubstr("this run is not bit-reproducible from here on: "));
    EXPECT_THAT(said_, HasSubstr(workers == 3 ? "workers is 3, was 2" : "workers is 1, was 2"));
    const auto saved = checkpoint::OpenCheckpoint(FileSystem::System(), folder_.path());
    EXPECT_EQ(saved->manifest().step, 9);
    EXPECT_EQ(saved->manifest().position, 6 * 2 * 4 + 3 * std::max(workers, 1) * 4);
    BreakOffAfter(6);
  }
}

TEST_F(ResumeTest, ADamagedCheckpointIsPutAsideAndTheOneBeforeIsUsed) {
  for (const int64_t step : {9, 12}) Train(0, step, folder_.path());
  const Values unbroken = Train(0, 13, folder_.path());
  for (const int64_t step : {13, 12}) {
    const std::string shard =
        folder_ / (checkpoint::CheckpointName(step) + "/shard-00000.safetensors");
    std::string content = checkpoint::ContentOf(shard);
    content[content.size() - 1] ^= 1;
    checkpoint::SetContent(shard, content);
  }
  ExpectSame(Train(0, 13, folder_.path()), unbroken);
  EXPECT_THAT(said_, HasSubstr("checkpoint-000013 cannot be used: "));
  EXPECT_THAT(said_, HasSubstr("is damaged: its CRC32C is "));
  EXPECT_THAT(said_, HasSubstr("checkpoint-000012 cannot be used: "));
  EXPECT_THAT(said_, HasSubstr("goes on from step 9 of 13"));
  EXPECT_THAT(Steps(), ElementsAre(13, 9));
  EXPECT_TRUE(fs::exists(folder_ / "damaged-checkpoint-000013"));
  // When none is left, the training does not begin anew by itself.
  for (const int64_t step : Steps()) {
    checkpoint::SetContent(folder_ / (checkpoint::CheckpointName(step) + "/manifest.json"), "{}");
  }
  Train(0, 13, folder_.path());
  EXPECT_THAT(error_, HasSubstr("no checkpoint in it can be used; remove them to begin anew: "));
}

// Under its own name it would be kept as the newest, and good ones be removed for it.
TEST_F(ResumeTest, ADamagedCheckpointThatCannotBePutAsideEndsTheTraining) {
  for (const int64_t step : {9, 12}) Train(0, step, folder_.path());
  checkpoint::SetContent(folder_ / "checkpoint-000012/manifest.json", "{}");
  checkpoint::SetContent(folder_ / "damaged-checkpoint-000012", "in the way");
  Train(0, 13, folder_.path());
  EXPECT_THAT(error_, HasSubstr("--model-dir: cannot list " +
                                (folder_ / "damaged-checkpoint-000012") + ": Not a directory"));
  EXPECT_THAT(Steps(), ElementsAre(12, 9));
  fs::remove(folder_ / "damaged-checkpoint-000012");
  Train(0, 13, folder_.path());
  EXPECT_EQ(error_, "");
  EXPECT_THAT(Steps(), ElementsAre(13, 9));
}

TEST_F(ResumeTest, ACheckpointOfAnotherModelIsRefused) {
  Train(0, 3, folder_.path());
  RunConfig config = ConfigOf(nullptr, 4);
  config.model_dir = folder_.path();
  Estimator other([](const Features& batch, Mode mode) { return Model(batch, mode, 5); }, config);
  try {
    other.Train({.input = Samples});
    FAIL() << "trained";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("is a checkpoint of another model: \"dense/weights\": "
                          "float32 [144, 5] here, float32 [144, 3] there; \"dense/bias\": "));
    EXPECT_THAT(error.what(), Not(HasSubstr("dense/weights/m")));
  }
}

TEST_F(ResumeTest, EvaluatesTheNewestCheckpoint) {
  const auto data = [] { return Samples().Repeat(1); };
  const auto config = [&] {
    RunConfig made = ConfigOf(nullptr, 4);
    made.max_steps = 6;
    made.model_dir = folder_.path();
    made.keep_best = "accuracy";
    return made;
  };
  double loss = 0;
  {
    Estimator trained(ThreeClasses, config());
    trained.Train({.input = Samples});
    loss = trained.Evaluate({.input = data}).at("loss");
    EXPECT_EQ(checkpoint::ReadBest(FileSystem::System(), folder_.path()).value()->step, 6);
    // Beside the training, which holds the lock.
    Estimator evaluator(ThreeClasses, config());
    EXPECT_EQ(evaluator.Evaluate({.input = data}).at("loss"), loss);
    Estimator second(ThreeClasses, config());
    try {
      second.Train({.input = Samples});
      FAIL() << "two jobs in one directory";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("is in use by another job (test, process "));
    }
  }
  Estimator later(ThreeClasses, config());
  EXPECT_EQ(later.Evaluate({.input = data}).at("loss"), loss);
  EXPECT_EQ(later.Train({.input = Samples}).steps, 0);
  EXPECT_EQ(later.Evaluate({.input = data}).at("loss"), loss);
}

TEST_F(ResumeTest, ASignalSavesTheStepAndAnotherStartGoesOn) {
  const Values unbroken = Train(0, 13, "");
  RunConfig config = ConfigOf(nullptr, 4);
  config.max_steps = 13;
  config.model_dir = folder_.path();
  {
    Estimator estimator(ThreeClasses, config);
    int batches = 0;
    const auto input = [&] {
      return Samples().Map([&](Columns columns) {
        if (++batches == 6) RequestStop(SIGTERM);
        return columns;
      });
    };
    const TrainResult result = estimator.Train({.input = input});
    RequestStop(0);
    EXPECT_TRUE(result.stopped);
    EXPECT_LT(result.steps, 13);
    EXPECT_THAT(Steps(), ElementsAre(result.steps));
  }
  ExpectSame(Train(0, 13, folder_.path()), unbroken);
}

// Whatever becomes of the directory, the training goes on, and says so each time.
TEST_F(ResumeTest, ASaveThatFailsDoesNotEndTheTraining) {
  const Values unbroken = Train(0, 13, "");
  const std::string path = folder_ / "models";
  int batches = 0;
  RunConfig config = ConfigOf(nullptr, 4);
  config.max_steps = 13;
  config.save_every = "3";
  config.model_dir = path;
  Estimator estimator(ThreeClasses, config);
  const auto input = [&] {
    return Samples().Map([&](Columns columns) {
      if (++batches == 2) fs::remove_all(path);
      return columns;
    });
  };
  ::testing::internal::CaptureStderr();
  const TrainResult result = estimator.Train({.input = input});
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(result.steps, 13);
  for (const int step : {3, 6, 9, 12, 13}) {
    const std::string expected = fmt::format("the checkpoint of step {} failed: cannot make", step);
    const std::string busy = fmt::format("no checkpoint of step {}", step);
    EXPECT_TRUE(said.find(expected) != said.npos || said.find(busy) != said.npos) << said;
  }
  EXPECT_THAT(result.save_error, HasSubstr("No such file or directory"));
  ExpectSame(estimator.Variables(), unbroken);
}

// Every step has a checkpoint, or it was told that an earlier one was still being written.
TEST_F(ResumeTest, OneSaveAtATime) {
  Train(0, 60, folder_.path(), [](RunConfig& config) { config.save_every = "1"; });
  const std::vector<int64_t> saved = Steps();
  int64_t last = 0;
  for (int64_t step = 1; step <= 60; ++step) {
    if (std::find(saved.begin(), saved.end(), step) != saved.end()) {
      last = step;
      continue;
    }
    EXPECT_THAT(
        said_, AnyOf(HasSubstr(fmt::format(
                         "no checkpoint of step {}: that of step {} is still being written\n", step,
                         last)),
                     HasSubstr(fmt::format(
                         "no checkpoint of step {}: those before step {} are still being removed\n",
                         step, last))));
  }
  EXPECT_EQ(saved.front(), 60);
}

TEST_F(ResumeTest, KeepsAsManyAsItShould) {
  for (const int64_t step : {3, 5, 7, 9}) {
    Train(0, step, folder_.path(), [](RunConfig& config) { config.keep = 2; });
  }
  EXPECT_THAT(Steps(), ElementsAre(9, 7));
}

}  // namespace
}  // namespace tutti
