#include "tutti/train/strategies/ps/async.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <random>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/strategies/ps/models_under_test.h"

namespace tutti {
namespace {

using ::testing::AnyOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

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
    ServersUnderTest cluster(1, 3);
    std::atomic<QueuePeers*> first = nullptr;  // worker 0's
    // What worker 2 had claimed has been given back.
    const auto await_loss = [&] {
      while (first.load()->Lost().empty()) std::this_thread::yield();
    };
    const auto input = [&](int rank) {
      Tensor id(kInt64, {kSamples});
      for (int64_t i = 0; i < kSamples; ++i) id.data<int64_t>()[i] = i;
      return Dataset::FromTensors({{"id", id}})
          .Shuffle(3)
          .Repeat(kEpochs)
          .Map([&, rank, batches = std::make_shared<int>(0)](Columns columns) {
            ++*batches;
            if (rank == 2 && *batches == 6) {
              cluster.Lose(2);
              dead = true;
              dead.notify_all();
              throw Error(Code::kDataLoss, "it dies");
            }
            if (rank != 2 && *batches == 20) dead.wait(false);
            if (rank != 2 && dead) await_loss();
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
    std::shared_ptr<const Strategy> grave;
    const auto errors = cluster.OnWorkers(
        [&](ParameterServers found) {
          AsyncOptions options;
          options.most_lead = lead;
          return MakeAsyncStrategy(std::move(found), options);
        },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          Estimator estimator(model, SmallConfig(strategy, kBatch, 1000000));
          if (rank == 2) grave = strategy;
          if (rank == 0) first = &dynamic_cast<QueuePeers&>(strategy->peers());
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

// 1e5 is a float32 but no float16.
TEST_F(PsAsync, AGradientThatTheWireMakesInfiniteIsNotApplied) {
  const auto input = [] {
    return Dataset::FromTensors({{"x", Tensor::Zeros(kFloat32, {8, 1})}}).Repeat();
  };
  const auto model = [](const Features& batch, Mode) {
    ModelSpec spec;
    const Output w = nn::GetVariable(batch["x"].graph(), Full({1}, 1.0), "w");
    spec.loss = Mean(Mul(Add(batch["x"], 1e5f), w));
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 1e-6});
    return spec;
  };
  AsyncOptions options;
  options.common.wire = "float16";
  for (const std::string& error : Train(1, 2, options, input, 10, 4, model).errors) {
    EXPECT_THAT(error, HasSubstr("the gradient of \"w\" of worker "));
  }
  options.common.skip_bad = true;
  const Outcome skipped = Train(1, 2, options, input, 10, 4, model);
  EXPECT_THAT(skipped.errors, Each(std::string()));
  EXPECT_EQ(skipped.state.at("w").data<float>()[0], 1.0f);
}

TEST_F(PsAsync, AnIndexOutsideATableIsNamedAndChangesNothing) {
  constexpr int64_t kRows = 100;
  for (const int64_t split : {int64_t{1} << 20, int64_t{100}}) {
    for (const int64_t bad : {kRows, int64_t{-1}}) {
      AsyncOptions options;
      options.common.split_bytes = split;
      ServersUnderTest cluster(2, 1);
      State state;
      const auto errors = cluster.OnWorkers(
          [&](ParameterServers found) { return MakeAsyncStrategy(std::move(found), options); },
          [&](int, std::shared_ptr<const Strategy> strategy) {
            const auto model = [](const Features& batch, Mode) {
              ModelSpec spec;
              const Output b = nn::GetVariable(batch["id"].graph(), Full({1}, 1.0), "b");
              spec.loss = Mean(Square(Add(nn::Embedding(batch["id"], kRows, 2), b)));
              spec.optimizer = std::make_shared<Sgd>();
              return spec;
            };
            Estimator estimator(model, SmallConfig(strategy, 4, 10));
            const auto input = [&](int64_t last) {
              return [last] {
                return Dataset::FromTensors({{"id", Tensor::Vector<int64_t>({1, 2, 60, last})}})
                    .Repeat();
              };
            };
            estimator.Train({.input = input(3), .max_steps = 2});
            const State before = estimator.Variables();
            try {
              estimator.Train({.input = input(bad), .max_steps = 4});
              ADD_FAILURE() << "row " << bad << " was taken";
            } catch (const Error& error) {
              EXPECT_THAT(error.what(), StartsWith("the step of worker 0: "));
              EXPECT_THAT(error.what(), HasSubstr("variable \"embedding/table\""));
              EXPECT_THAT(error.what(), HasSubstr("is [100, 2] and has rows 0 to 99"));
              EXPECT_THAT(error.what(), AnyOf(HasSubstr(fmt::format("is {};", bad)),
                                              HasSubstr(fmt::format("{{{}}}", bad))));
            }
            EXPECT_EQ(Distance(estimator.Variables(), before), 0);
          });
      EXPECT_THAT(errors, Each(std::string()));
    }
  }
}

// Between the read of the variables and the gradient the model counts two updates of others.
TEST_F(PsAsync, StalenessMayDivideTheGradient) {
  const auto input = [] {
    Tensor x(kFloat32, {8, 1});
    std::fill_n(x.data<float>(), 8, 1.0f);
    return Dataset::FromTensors({{"x", x}}).Repeat();
  };
  const auto model = [](int64_t others) {
    return [others](const Features& batch, Mode) {
      Graph& graph = batch["x"].graph();
      const Output w = nn::GetVariable(graph, Full({1}, 1.0), "w");
      const Output step = GlobalStep(graph);
      Output counted;
      {
        const DeviceScope server(graph, step.node->device());
        counted = Cast(AssignAdd(step, others), kFloat32);
      }
      ModelSpec spec;  // the gradient of w is 1
      spec.loss = Mean(Mul(Add(batch["x"], Mul(counted, 0.0f)), w));
      spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.5});
      return spec;
    };
  };
  for (const bool divide : {false, true}) {
    for (const int64_t others : {0, 1, 2, 4}) {
      AsyncOptions options;
      options.divide_by_staleness = divide;
      const Outcome found = Train(1, 1, options, input, 1, 4, model(others));
      EXPECT_THAT(found.errors, Each(std::string()));
      const double factor = divide && others > 1 ? 1.0 / double(others) : 1.0;
      EXPECT_FLOAT_EQ(found.state.at("w").data<float>()[0], float(1 - 0.5 * factor))
          << others << (divide ? " divided" : "");
    }
  }
}

// In every tenth step one of the workers waits until another one leads it by as much as may be.
// Whoever has made a step asks the clock how far the slowest is. The largest lead of any step.
int64_t MostLead(int64_t bound, uint32_t seed) {
  constexpr int kWorkers = 3;
  constexpr int64_t kEvery = 10, kSlowSteps = 60, kSteps = 300;
  EXPECT_LT(bound, kEvery) << "two workers may wait for each other";
  std::mt19937 random(seed);
  std::vector<int> slow;  // the worker that waits, by tenth step
  for (int64_t i = 0; i <= kSteps / kEvery; ++i) slow.push_back(int(random() % kWorkers));
  std::array<std::atomic<int64_t>, kWorkers> made = {};
  std::atomic<int64_t> most = 0;

  struct Watch final : Hook {
    std::function<void()> before, after;
    bool BeforeStep(int64_t) override {
      before();
      return false;
    }
    void AfterStep(const StepEnd&, TrainingControl&) override { after(); }
  };
  AsyncOptions options;
  options.most_lead = bound;
  ServersUnderTest cluster(1, kWorkers);
  const auto errors = cluster.OnWorkers(
      [&](ParameterServers found) { return MakeAsyncStrategy(std::move(found), options); },
      [&](int rank, std::shared_ptr<const Strategy> strategy) {
        SessionOptions same;
        strategy->Configure(same);
        Graph graph;
        Output slowest;
        {
          const NameScope scope(graph, "ps-async_1");
          const DeviceScope device(graph, "/job:local/task:0/cpu:0");
          const Output clock = Clock(graph, kWorkers, "clock");
          slowest = ClockWait(clock, Constant(graph, int64_t{rank}), int64_t{1} << 40);
        }
        Session session(graph, same);
        auto watch = std::make_shared<Watch>();
        watch->before = [&] {
          const int64_t own = made[size_t(rank)];
          if (own == 0 || own % kEvery != 0 || own > kSlowSteps) return;
          if (slow[size_t(own / kEvery)] != rank) return;
          const auto leads = [&](const auto& other) { return other.load() >= own + bound; };
          while (std::none_of(made.begin(), made.end(), leads)) std::this_thread::yield();
        };
        watch->after = [&] {
          const int64_t own = made[size_t(rank)] + 1;
          const int64_t lead = own - session.Run(slowest).scalar<int64_t>();
          EXPECT_LE(lead, bound) << "worker " << rank << ", its step " << own;
          int64_t before = most;
          while (before < lead && !most.compare_exchange_weak(before, lead)) {
          }
          made[size_t(rank)] = own;  // the slow one goes on after the look at the clock
        };
        Estimator estimator(SmallModel, SmallConfig(strategy, 4, kSteps));
        estimator.Train(
            {.input = [] { return SmallSamples(40).Shuffle(2).Repeat(); }, .hooks = {watch}});
      });
  EXPECT_THAT(errors, Each(std::string()));
  return most;
}

TEST_F(PsAsync, NobodyLeadsTheSlowestByMoreThanTheBound) {
  const uint32_t seed = std::random_device{}();
  for (const int64_t bound : {0, 3, 8}) EXPECT_EQ(MostLead(bound, seed), bound) << "seed " << seed;
}

// Worker 1 makes updates between the end of worker 0's step and the save of it.
TEST_F(PsAsync, StepsAreExactAfterACheckpointThatOthersOvertook) {
  constexpr int kOvertake = 5, kMore = 50;
  const testing::TemporaryDirectory folder;
  struct Watch final : Hook {
    std::function<void()> save = [] {}, saved = [] {}, step = [] {};
    void BeforeSave(int64_t) override { save(); }
    void AfterSave(const SaveEnd&) override { saved(); }
    void AfterStep(const StepEnd&, TrainingControl&) override { step(); }
  };
  const auto train = [&](int64_t steps, const std::array<std::shared_ptr<Watch>, 2>& watches) {
    ServersUnderTest cluster(1, 2);
    int64_t made = 0;
    const auto errors = cluster.OnWorkers(
        [](ParameterServers found) { return MakeAsyncStrategy(std::move(found), {}); },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          RunConfig config = SmallConfig(strategy, 4, steps);
          config.model_dir = folder.path();
          config.save_every = "10";
          Estimator estimator(SmallModel, config);
          estimator.Train({.input = Input, .hooks = {watches[size_t(rank)]}});
          if (rank == 0) made = estimator.Variables().at("global_step").scalar<int64_t>();
        });
    return std::pair(made, errors);
  };
  std::atomic<bool> saving = false, saved = false;
  std::atomic<int> overtaken = 0;
  std::array watches = {std::make_shared<Watch>(), std::make_shared<Watch>()};
  const auto end_if_saved = [&] {
    if (saved) throw Error(Code::kAborted, "it ends without another save");
  };
  watches[0]->save = [&] {
    end_if_saved();
    saving = true;
    while (overtaken < kOvertake) std::this_thread::yield();
  };
  watches[0]->saved = [&] { saved = true; };
  watches[0]->step = end_if_saved;
  watches[1]->step = [&] {
    if (!saving || ++overtaken < kOvertake) return;
    while (!saved) std::this_thread::yield();
  };
  EXPECT_THAT(train(1000000, watches).second, Each(HasSubstr("it ends without another save")));
  int64_t step = -1;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    const std::string name = entry.path().filename();
    if (!name.starts_with("checkpoint-")) continue;
    EXPECT_EQ(step, -1) << "there is more than one checkpoint";
    step = std::stoll(name.substr(name.find('-') + 1));
  }
  ASSERT_GE(step, 10);
  const auto [made, errors] =
      train(step + kMore, {std::make_shared<Watch>(), std::make_shared<Watch>()});
  EXPECT_THAT(errors, Each(std::string()));
  EXPECT_EQ(made, step + kMore);
}

// Worker 1 computes all the time, worker 0 never.
TEST_F(PsAsync, WhoIsWaitedForIsNamedWithinABound) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/report.json";
  const auto report = [&](int64_t lead) {
    AsyncOptions options;
    options.most_lead = lead;
    ServersUnderTest cluster(1, 2);
    const auto errors = cluster.OnWorkers(
        [&](ParameterServers found) {
          found.load = [rank = found.rank](int) {
            return TaskLoad{.task = "a task",
                            .busy_nanos = rank == 1 ? NowNanos() : 0,
                            .bytes_received = NowNanos()};
          };
          return MakeAsyncStrategy(std::move(found), options);
        },
        [&](int, std::shared_ptr<const Strategy> strategy) {
          RunConfig config = SmallConfig(strategy, 4, 40);
          config.report = path;
          Estimator estimator(SmallModel, config);
          estimator.Train({.input = Input});
        });
    EXPECT_THAT(errors, Each(std::string()));
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_THAT(report(0), HasSubstr("\"waiting_for\":1"));
  EXPECT_THAT(report(-1), Not(HasSubstr("\"waiting_for\":1")));
}

TEST_F(PsAsync, WorkersMustFit) {
  const auto errors_of = [](const std::function<ModelFunction(int)>& model, int64_t more) {
    ServersUnderTest cluster(1, 2);
    return cluster.OnWorkers(
        [](ParameterServers found) { return MakeAsyncStrategy(std::move(found), {}); },
        [&](int rank, std::shared_ptr<const Strategy> strategy) {
          Estimator estimator(model(rank), SmallConfig(strategy, 4 + rank * more));
          estimator.Train({.input = Input});
        });
  };
  const auto same = [](int) { return SmallModel; };
  for (const std::string& error : errors_of(same, 1)) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: batch-size is 5, expected 4"));
  }
  const auto wider = [](int rank) {
    return [rank](const Features& batch, Mode mode) {
      return MultiClassHead(3).Spec(nn::Dense(nn::Dense(batch["x"], 16 + rank), 3), batch["y"],
                                    Sgd({.learning_rate = 0.05}), mode);
    };
  };
  for (const std::string& error : errors_of(wider, 0)) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: "));
    EXPECT_THAT(error, HasSubstr("[12, 17]"));
    EXPECT_THAT(error, HasSubstr("expected"));
    EXPECT_THAT(error, HasSubstr("[12, 16]"));
  }
}

}  // namespace
}  // namespace tutti
