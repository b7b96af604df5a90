// What workers of ps-sync compute together must be what one computes alone on the joined batch.
#include "tutti/train/strategies/ps/sync.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/log_under_test.h"
#include "tutti/train/strategies/ps/async.h"
#include "tutti/train/strategies/ps/models_under_test.h"

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

class PsSync : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  struct Outcome {
    State state;  // as worker 0 sees it at the end
    std::vector<TrainResult> results;
    std::vector<std::string> errors;
  };
  static Outcome Train(int servers, int workers, const ModelFunction& model, int64_t batch,
                       const InputFunction& input, const SyncOptions& options = {},
                       int64_t steps = 100) {
    ServersUnderTest cluster(servers, workers);
    Outcome outcome;
    outcome.results.resize(size_t(workers));
    outcome.errors = cluster.OnWorkers(
        [&](ParameterServers found) { return MakeSyncStrategy(std::move(found), options); },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          Estimator estimator(model, SmallConfig(strategy, batch, steps));
          outcome.results[size_t(rank)] = estimator.Train({.input = input});
          if (rank == 0) outcome.state = Joined(estimator.Variables());
        });
    return outcome;
  }
  static Dataset Input() { return SmallSamples(40).Shuffle(2).Repeat(); }
};

TEST_F(PsSync, FollowsOneModelWithTheJoinedBatch) {
  const State alone = TrainAlone(SmallModel, 12, Input);
  for (const int workers : {1, 2, 3}) {
    const Outcome found = Train(2, workers, SmallModel, 12 / workers, Input);
    EXPECT_THAT(found.errors, Each(std::string())) << workers;
    EXPECT_LT(Distance(found.state, alone), 1e-9) << workers;
  }
}

TEST_F(PsSync, AConvnetInFloat32) {
  const auto input = [] {
    Tensor image(kFloat32, {96, 12, 12, 1}), label(kInt32, {96});
    for (int64_t i = 0; i < image.elements(); ++i) {
      image.data<float>()[i] = std::sin(float((i * 31) % 1009));
    }
    for (int64_t i = 0; i < 96; ++i) label.data<int32_t>()[i] = int32_t(i % 5);
    return Dataset::FromTensors({{"image", image}, {"label", label}}).Shuffle(3).Repeat();
  };
  const auto model = [](const Features& batch, Mode mode) {
    Output h = nn::Conv2d(batch["image"], 8, {3, 3}, {.activation = nn::kRelu});
    h = nn::Dense(nn::Flatten(nn::MaxPool(h, {2, 2})), 32, {.activation = nn::kRelu});
    return MultiClassHead(5).Spec(nn::Dense(h, 5), batch["label"], Sgd({.learning_rate = 0.02}),
                                  mode);
  };
  const State alone = TrainAlone(model, 16, input);
  const Outcome found = Train(2, 2, model, 8, input);
  EXPECT_THAT(found.errors, Each(std::string()));
  EXPECT_LT(Distance(found.state, alone), 1e-4);
  EXPECT_GT(Distance(TrainAlone(model, 8, input), alone), 1e-3) << "the batch does not matter";
}

TEST_F(PsSync, TheNumberOfServersChangesNoBit) {
  const auto train = [](int servers) {
    SyncOptions options;
    options.common.split_bytes = 100;
    return Train(servers, 2, SmallModel, 6, Input, options);
  };
  const Outcome one = train(1), again = train(1);
  EXPECT_THAT(one.errors, Each(std::string()));
  for (const auto& [name, value] : one.state) {
    EXPECT_TRUE(again.state.at(name).BitwiseEquals(value)) << name;
  }
  for (const int servers : {2, 3}) {
    const Outcome found = train(servers);
    EXPECT_THAT(found.errors, Each(std::string()));
    ASSERT_EQ(found.state.size(), one.state.size());
    for (const auto& [name, value] : one.state) {
      EXPECT_TRUE(found.state.at(name).BitwiseEquals(value)) << name << " on " << servers;
    }
  }
}

// The last batch of 41 samples has five, so that of six workers one has none.
TEST_F(PsSync, AWorkerMayHaveNoSample) {
  const auto input = [] { return SmallSamples(41).Repeat(1); };
  const State alone = TrainAlone(SmallModel, 12, input);
  const Outcome found = Train(1, 6, SmallModel, 2, input);
  EXPECT_THAT(found.errors, Each(std::string()));
  EXPECT_LT(Distance(found.state, alone), 1e-9);
  for (const TrainResult& result : found.results) EXPECT_EQ(result.steps, 4);
}

TEST_F(PsSync, StepsAreExact) {
  const Outcome found = Train(1, 3, SmallModel, 4, Input, {}, 17);
  EXPECT_THAT(found.errors, Each(std::string()));
  EXPECT_EQ(found.state.at("global_step").scalar<int64_t>(), 17);
  for (const TrainResult& result : found.results) EXPECT_EQ(result.steps, 17);
}

TEST_F(PsSync, BackupsMakeNoUpdateLarger) {
  SyncOptions options;
  options.backups = 1;
  const Outcome found = Train(2, 3, SmallModel, 4, Input, options, 60);
  EXPECT_THAT(found.errors, Each(std::string()));
  EXPECT_EQ(found.state.at("global_step").scalar<int64_t>(), 60);
}

// --scale-learning-rate multiplies by the batches that an update is made from. The gradient is 1,
// so one update takes the learning rate from the variable.
TEST_F(PsSync, TheLearningRateIsScaledByWorkersWithoutBackups) {
  using Make = std::function<std::shared_ptr<const Strategy>(ParameterServers)>;
  const auto scaled = [](const Make& make) {
    ServersUnderTest cluster(1, 3);
    float value = 0;
    const auto errors =
        cluster.OnWorkers(make, [&](int rank, std::shared_ptr<const Strategy> strategy) {
          RunConfig config = SmallConfig(strategy, 4, 1);
          config.scale_learning_rate = true;
          const auto model = [&config](const Features& batch, Mode) {
            ModelSpec spec;
            const Output w = nn::GetVariable(batch["x"].graph(), Full({1}, 1.0), "w");
            spec.loss = Mean(Mul(Add(batch["x"], 1.0f), w));
            spec.optimizer =
                std::make_shared<Sgd>(SgdConfig{.learning_rate = config.Adjusted(0.125)});
            return spec;
          };
          const auto input = [] {
            return Dataset::FromTensors({{"x", Tensor::Zeros(kFloat32, {12, 1})}}).Repeat();
          };
          Estimator estimator(model, config);
          estimator.Train({.input = input});
          if (rank == 0) value = estimator.Variables().at("w").data<float>()[0];
        });
    EXPECT_THAT(errors, Each(std::string()));
    return (1 - value) / 0.125f;
  };
  for (const int backups : {0, 1}) {
    const auto sync = [&](ParameterServers found) {
      SyncOptions options;
      options.backups = backups;
      return MakeSyncStrategy(std::move(found), options);
    };
    EXPECT_EQ(scaled(sync), float(3 - backups));
  }
  for (const int64_t most_lead : {-1, 2}) {
    const auto async = [&](ParameterServers found) {
      AsyncOptions options;
      options.most_lead = most_lead;
      return MakeAsyncStrategy(std::move(found), options);
    };
    EXPECT_EQ(scaled(async), 1) << most_lead;
  }
}

// Averages of BatchNorm are those of all workers.
TEST_F(PsSync, MovingAveragesAreJoined) {
  const auto model = [](const Features& batch, Mode mode) {
    const Output h = nn::BatchNorm(batch["x"], {.training = mode == Mode::kTrain, .momentum = 0.5});
    return MultiClassHead(3).Spec(nn::Dense(h, 3), batch["y"], Sgd({.learning_rate = 0.01}), mode);
  };
  const State alone = TrainAlone(model, 8, Input, 5);
  const Outcome found = Train(2, 2, model, 4, Input, {}, 5);
  EXPECT_THAT(found.errors, Each(std::string()));
  const Tensor &expected = alone.at("norm/moving_mean"), &mean = found.state.at("norm/moving_mean");
  for (int64_t i = 0; i < expected.elements(); ++i) {
    EXPECT_NEAR(mean.data<double>()[i], expected.data<double>()[i], 1e-12);
  }
}

TEST_F(PsSync, RowsTravelAsRows) {
  const auto input = [] {
    Tensor id(kInt64, {30}), y(kFloat32, {30});
    for (int64_t i = 0; i < 30; ++i) {
      id.data<int64_t>()[i] = (i * 7) % 10;
      y.data<float>()[i] = float(i % 4);
    }
    return Dataset::FromTensors({{"id", id}, {"y", y}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    const Output rows = nn::Embedding(batch["id"], 10, 4);
    ModelSpec spec;
    spec.loss = Mean(Square(Sub(Sum(rows, {.axes = {1}}), batch["y"])));
    spec.optimizer = std::make_shared<Adam>(AdamConfig{.learning_rate = 0.1});
    return spec;
  };
  const State alone = TrainAlone(model, 8, input);
  for (const int64_t split : {1 << 20, 40}) {
    SyncOptions options;
    options.common.split_bytes = split;
    const Outcome found = Train(2, 2, model, 4, input, options);
    EXPECT_THAT(found.errors, Each(std::string()));
    EXPECT_LT(Distance(found.state, alone), 1e-4) << split;
  }
}

// The table has ten rows, on two servers. Worker 1 asks for a twelfth in its second step.
TEST_F(PsSync, AnIndexOutsideATableIsNamedAndNothingIsApplied) {
  const auto input = [] {
    Tensor id(kInt64, {16}), y(kFloat32, {16});
    for (int64_t i = 0; i < 16; ++i) {
      id.data<int64_t>()[i] = i == 13 ? 12 : (i * 7) % 10;
      y.data<float>()[i] = float(i % 4);
    }
    return Dataset::FromTensors({{"id", id}, {"y", y}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    const Output rows = nn::Embedding(batch["id"], 10, 4, {}, "words");
    ModelSpec spec;
    spec.loss = Mean(Square(Sub(Sum(rows, {.axes = {1}}), batch["y"])));
    spec.optimizer = std::make_shared<Momentum>(MomentumConfig{.learning_rate = 0.1});
    return spec;
  };
  SyncOptions options;
  options.common.split_bytes = 40;
  const Outcome before = Train(2, 2, model, 4, input, options, 1);
  EXPECT_THAT(before.errors, Each(std::string()));
  ServersUnderTest cluster(2, 2);
  State after;
  const auto errors = cluster.OnWorkers(
      [&](ParameterServers found) { return MakeSyncStrategy(std::move(found), options); },
      [&](int rank, std::shared_ptr<const Strategy> strategy) {
        Estimator estimator(model, SmallConfig(strategy, 4, 2));
        try {
          estimator.Train({.input = input});
        } catch (const Error&) {
          if (rank == 0) after = Joined(estimator.Variables());
          throw;
        }
      });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("worker 1"));
    EXPECT_THAT(error, HasSubstr("12"));
    EXPECT_THAT(error, HasSubstr("words"));
  }
  ASSERT_EQ(after.size(), before.state.size());
  for (const auto& [name, value] : before.state) {
    EXPECT_TRUE(after.at(name).BitwiseEquals(value)) << name;
  }
}

TEST_F(PsSync, GradientsMayTravelInHalf) {
  const auto input = [] {
    Tensor x(kFloat32, {40, 4});
    for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = float((i * 7919) % 97) / 97;
    return Dataset::FromTensors({{"x", x}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    spec.loss = Mean(Square(Sub(nn::Dense(batch["x"], 2), 1.0f)));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.05});
    return spec;
  };
  const State alone = TrainAlone(model, 8, input, 50);
  SyncOptions options;
  options.common.wire = "bfloat16";
  const double distance = Distance(Train(1, 2, model, 4, input, options, 50).state, alone);
  EXPECT_GT(distance, 1e-6);
  EXPECT_LT(distance, 1e-2);
}

// log(0) where only worker 1's samples are: its loss is finite only by chance of a product.
TEST_F(PsSync, AGradientThatIsNotFiniteIsNamedAndNotApplied) {
  const auto input = [] {
    Tensor x(kFloat32, {8, 1});
    for (int64_t i = 0; i < 8; ++i) x.data<float>()[i] = i < 4 ? 1.0f : 0.0f;
    return Dataset::FromTensors({{"x", x}}).Repeat();
  };
  // d sqrt(x w) / dw = x / (2 sqrt(x w)): 0 / 0 for the samples of worker 1.
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    const Output w = nn::GetVariable(batch["x"].graph(), Full({1}, 1.0), "w");
    spec.loss = Mean(Sqrt(Mul(batch["x"], w)));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.05});
    return spec;
  };
  const Outcome stopped = Train(1, 2, model, 4, input, {}, 3);
  for (const std::string& error : stopped.errors) {
    EXPECT_THAT(error, HasSubstr("step 1: the gradient of \"w\" of worker 1 is not finite"));
  }
  SyncOptions options;
  options.common.skip_bad = true;
  const Outcome skipped = Train(1, 2, model, 4, input, options, 3);
  EXPECT_THAT(skipped.errors, Each(std::string()));
  EXPECT_EQ(skipped.state.at("w").data<float>()[0], 1.0f);
}

// The sum over a worker's 4 samples is 8e4: a float32 but no float16.
TEST_F(PsSync, AGradientThatTheWireMakesInfiniteIsNotApplied) {
  const auto input = [] {
    return Dataset::FromTensors({{"x", Tensor::Zeros(kFloat32, {8, 1})}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    const Output w = nn::GetVariable(batch["x"].graph(), Full({1}, 1.0), "w");
    spec.loss = Mean(Mul(Add(batch["x"], 2e4f), w));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 1e-6});
    return spec;
  };
  for (const int backups : {0, 1}) {
    SyncOptions options = {.backups = backups};
    options.common.wire = "float16";
    for (const std::string& error : Train(1, 2, model, 4, input, options, 3).errors) {
      EXPECT_THAT(error, HasSubstr("the gradient of \"w\" of worker "));
    }
    options.common.skip_bad = true;
    const Outcome skipped = Train(1, 2, model, 4, input, options, 3);
    EXPECT_THAT(skipped.errors, Each(std::string()));
    EXPECT_EQ(skipped.state.at("w").data<float>()[0], 1.0f);
  }
}

// Worker 1 is alive, and makes its first step when worker 0 has warned of it twice.
TEST_F(PsSync, WarnsAgainAndAgainOfWhoIsLate) {
  testing::LogUnderTest log;
  ServersUnderTest cluster(1, 2);
  const auto errors = cluster.OnWorkers(
      [](ParameterServers found) {
        found.late_seconds = 0.1;
        return MakeSyncStrategy(std::move(found));
      },
      [&](int rank, std::shared_ptr<const Strategy> strategy) {
        Estimator estimator(SmallModel, SmallConfig(strategy, 4, 3));
        const auto input = [&] {
          return Input().Map([&, rank, batches = std::make_shared<int>(0)](Columns columns) {
            // The first is looked at to learn the types.
            if (rank == 1 && ++*batches == 3) {
              for (int i = 0; i < 2; ++i) {
                log.Await("s for worker 1 (/job:worker/task:1); it is alive");
              }
            }
            return columns;
          });
        };
        estimator.Train({.input = input});
      });
  EXPECT_THAT(errors, Each(std::string()));
}

TEST_F(PsSync, WorkersMustFit) {
  ServersUnderTest cluster(1, 2);
  const auto errors =
      cluster.OnWorkers([](ParameterServers found) { return MakeSyncStrategy(std::move(found)); },
                        [](int rank, std::shared_ptr<const Strategy> strategy) {
                          Estimator estimator(SmallModel, SmallConfig(strategy, 4 + rank));
                          estimator.Train({.input = Input});
                        });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: batch-size is 5, expected 4"));
  }
}

TEST_F(PsSync, RefusesWhatCannotWork) {
  ServersUnderTest cluster(1, 2);
  const auto error_of = [](ParameterServers servers, int backups) -> std::string {
    SyncOptions options;
    options.backups = backups;
    try {
      MakeSyncStrategy(std::move(servers), options);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_THAT(error_of(cluster.For(0), 2),
              HasSubstr("ps-sync:backup=2: there are 2 workers; expected 0 to 1"));
  ParameterServers none = cluster.For(0);
  none.devices.clear();
  EXPECT_THAT(error_of(none, 0), HasSubstr("keeps its variables on tasks of job ps, and the "
                                           "cluster has none"));
}

}  // namespace
}  // namespace tutti
