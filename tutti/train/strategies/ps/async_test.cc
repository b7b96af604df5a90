#include "tutti/train/strategies/ps/async.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <map>
#include <mutex>

#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/train/strategies/ps/models_under_test.h"

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

class PsAsync : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  struct Outcome {
    State state;
    std::vector<std::string> errors;
  };
  static Outcome Train(int servers, int workers, const AsyncOptions& options,
                       const InputFunction& input, int64_t steps, int64_t batch = 4,
                       const ModelFunction& model = SmallModel) {
    ServersUnderTest cluster(servers, workers);
    Outcome outcome;
    outcome.errors = cluster.OnWorkers(
        [&](ParameterServers found) { return MakeAsyncStrategy(std::move(found), options); },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          Estimator estimator(model, SmallConfig(strategy, batch, steps));
          estimator.Train({.input = input});
          // All have ended when worker 0's report has been gathered.
          if (rank == 0) outcome.state = Joined(estimator.Variables());
        });
    return outcome;
  }
  static Dataset Input() { return SmallSamples(40).Shuffle(2).Repeat(); }
};

// Nobody is in the way of one worker.
TEST_F(PsAsync, OneWorkerFollowsLocal) {
  const State alone = TrainAlone(SmallModel, 4, Input);
  for (const int64_t lead : {-1, 0}) {
    AsyncOptions options;
    options.most_lead = lead;
    options.common.split_bytes = 100;
    const Outcome found = Train(2, 1, options, Input, 100);
    EXPECT_THAT(found.errors, Each(std::string()));
    EXPECT_LT(Distance(found.state, alone), 1e-12) << lead;
  }
}

TEST_F(PsAsync, WorkersLearnTogether) {
  for (const int64_t lead : {-1, 0, 3}) {
    AsyncOptions options;
    options.most_lead = lead;
    const Outcome found = Train(2, 3, options, Input, 200);
    EXPECT_THAT(found.errors, Each(std::string()));
    const int64_t steps = found.state.at("global_step").scalar<int64_t>();
    EXPECT_EQ(steps, 200) << "every batch makes one step";
  }
}

// Batches are claimed: an epoch has every sample once, whoever takes it.
TEST_F(PsAsync, AnEpochHasEverySampleOnce) {
  constexpr int64_t kSamples = 97, kEpochs = 3;
  std::mutex mutex;
  std::map<int64_t, int> seen;
  const auto input = [&] {
    Tensor id(kInt64, {kSamples});
    for (int64_t i = 0; i < kSamples; ++i) id.data<int64_t>()[i] = i;
    return Dataset::FromTensors({{"id", id}}).Shuffle(3).Repeat(kEpochs);
  };
  const auto counted = [&] {
    return input().Map([&](Columns columns) {
      const std::lock_guard lock(mutex);
      for (const int64_t id : columns.at("id").values<int64_t>()) ++seen[id];
      return columns;
    });
  };
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    spec.loss = Mean(Square(nn::Embedding(batch["id"], kSamples, 2)));
    spec.optimizer = std::make_shared<Sgd>();
    return spec;
  };
  const Outcome found = Train(1, 3, {}, counted, 1000000, 4, model);
  EXPECT_THAT(found.errors, Each(std::string()));
  // Each worker looks at one sample beforehand to learn the types.
  int looks = 0;
  for (int64_t id = 0; id < kSamples; ++id) {
    looks += seen[id] - kEpochs;
    EXPECT_GE(seen[id], kEpochs) << id;
  }
  EXPECT_EQ(looks, 3);
}

// A worker dies in the middle of a batch: the others take over what it had claimed.
TEST_F(PsAsync, ADeathTouchesNobodyElse) {
  constexpr int64_t kSamples = 97, kEpochs = 3, kBatch = 4;
  for (const int64_t lead : {-1, 1}) {
    std::mutex mutex;
    std::map<int64_t, int> seen;
    std::atomic<bool> dead = false;
    // Worker 0 looks at 1 and 2 in turn; by the last of so many looks the loss has been dealt with.
    std::latch dealt_with(10);
    const auto input = [&](int rank) {
      Tensor id(kInt64, {kSamples});
      for (int64_t i = 0; i < kSamples; ++i) id.data<int64_t>()[i] = i;
      return Dataset::FromTensors({{"id", id}})
          .Shuffle(3)
          .Repeat(kEpochs)
          .Map([&, rank, batches = std::make_shared<int>(0)](Columns columns) {
            ++*batches;
            if (rank == 2 && *batches == 6) {
              dead = true;
              dead.notify_all();
              throw Error(Code::kDataLoss, "it dies");
            }
            if (rank != 2 && *batches == 20) dead.wait(false);
            if (rank != 2 && dead) dealt_with.wait();
            const std::lock_guard lock(mutex);
            for (const int64_t sample : columns.at("id").values<int64_t>()) ++seen[sample];
            return columns;
          });
    };
    const auto model = [](const Features& batch, Mode) {
      ModelSpec spec;
      spec.loss = Mean(Square(nn::Embedding(batch["id"], kSamples, 2)));
      spec.optimizer = std::make_shared<Sgd>();
      return spec;
    };
    ServersUnderTest cluster(1, 3);
    std::shared_ptr<const Strategy> grave;
    const auto errors = cluster.OnWorkers(
        [&](ParameterServers found) {
          found.look = [&](int rank) {
            const bool lost = rank == 2 && dead;
            if (rank == 1 && dead && !dealt_with.try_wait()) dealt_with.count_down();
            return WorkerState{rank, "", lost ? uint64_t{0} : 1, lost ? "it does not answer" : ""};
          };
          AsyncOptions options;
          options.most_lead = lead;
          return MakeAsyncStrategy(std::move(found), options);
        },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          Estimator estimator(model, SmallConfig(strategy, kBatch, 1000000));
          if (rank == 2) grave = strategy;
          try {
            estimator.Train({.input = [&, rank] { return input(rank); }});
          } catch (const Error&) {
            if (rank != 2) throw;
          }
        });
    EXPECT_THAT(errors, Each(std::string())) << lead;
    EXPECT_TRUE(dead);
    // It is too late for anybody to hear of it, but nobody is waited for in the end.
    grave->peers().Abort(Code::kAborted, "dead");
    int64_t more = 0;
    for (int64_t id = 0; id < kSamples; ++id) {
      more += seen[id] - kEpochs;
      EXPECT_GE(seen[id], kEpochs) << id;
    }
    // Each worker looks at one sample beforehand to learn the types.
    EXPECT_LE(more, 3 + 2 * kBatch) << lead;
  }
}

TEST_F(PsAsync, ABadGradientOfOneEndsAllByName) {
  const auto input = [] {
    return Dataset::FromTensors({{"x", Tensor::Zeros(kFloat32, {8, 1})}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    const Output w = nn::GetVariable(batch["x"].graph(), Full({1}, 1.0), "w");
    spec.loss = Mean(Sqrt(Mul(batch["x"], w)));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.05});
    return spec;
  };
  const Outcome stopped = Train(1, 2, {}, input, 10, 4, model);
  for (const std::string& error : stopped.errors) {
    EXPECT_THAT(error, HasSubstr("the gradient of \"w\" of worker "));
  }
  AsyncOptions options;
  options.common.skip_bad = true;
  const Outcome skipped = Train(1, 2, options, input, 10, 4, model);
  EXPECT_THAT(skipped.errors, Each(std::string()));
  EXPECT_EQ(skipped.state.at("w").data<float>()[0], 1.0f);
}

TEST_F(PsAsync, StalenessMayDivideTheGradient) {
  AsyncOptions options;
  options.divide_by_staleness = true;
  const State alone = TrainAlone(SmallModel, 4, Input);
  const Outcome found = Train(1, 1, options, Input, 100);
  EXPECT_THAT(found.errors, Each(std::string()));
  EXPECT_LT(Distance(found.state, alone), 1e-6) << "a fresh gradient is not divided";
  EXPECT_THAT(Train(1, 3, options, Input, 100).errors, Each(std::string()));
}

}  // namespace
}  // namespace tutti
