// Training loops without an Estimator, alone and with several workers, each with a thread, a graph
// and a device of its own; the variables are on other devices of the same server.
#include "tutti/train/session/training_session.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <sstream>
#include <thread>

#include "tutti/checkpoint/model_directory.h"
#include "tutti/cluster/server.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/initializers.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/session/sync_replicas.h"

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

// y = a * x[0] + b * x[1], with slots of Momentum.
struct Line {
  explicit Line(const std::vector<std::string>& servers = {}, const std::string& device = "") {
    const DeviceScope on(graph, device);
    std::optional<VariablePlacementScope> placement;
    if (!servers.empty()) placement.emplace(PlaceOn(servers));
    x = Placeholder(graph, kFloat64, {-1, 2}, "x");
    y = Placeholder(graph, kFloat64, {-1}, "y");
    weights = Variable(graph, Zeros({1, 2}, kFloat64), "weights");
    bias = Variable(graph, Zeros({1}, kFloat64), "bias");
    loss = Mean(Square(Sub(Add(Sum(Mul(x, weights), {.axes = {1}}), bias), y)));
    GlobalStep(graph);
  }

  std::vector<Feed> Batch(int worker, int64_t number, int64_t rows = 4) const {
    Tensor a(kFloat64, {rows, 2}), b(kFloat64, {rows});
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t sample = (number * 97 + worker * rows + i) * 7;
      a.data<double>()[2 * i] = double(sample % 11) / 11;
      a.data<double>()[2 * i + 1] = double(sample % 13) / 13;
      b.data<double>()[i] = 2 * a.data<double>()[2 * i] - a.data<double>()[2 * i + 1] + 1;
    }
    return {{x, a}, {y, b}};
  }
  std::vector<double> Values(Session& session) const {
    const auto values = session.Run({}, {weights, bias});
    return {values[0].data<double>()[0], values[0].data<double>()[1], values[1].data<double>()[0]};
  }

  Graph graph;
  Output x, y, weights, bias, loss;
};

Momentum Optimizer() { return Momentum({.learning_rate = 0.1, .momentum = 0.9}); }

RunConfig Config(int64_t steps, const std::string& model_dir = "") {
  RunConfig config;
  config.program = "test";
  config.quiet = true;
  config.max_steps = steps;
  config.model_dir = model_dir;
  config.save_every = "5";
  config.start_timeout = 30;
  return config;
}

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class TrainingSessionTest : public ::testing::Test {
 protected:
  TrainingSessionTest() { RegisterCpuKernels(); }

  // Alone, on the joined batch of so many workers.
  static std::vector<double> Alone(int64_t steps, int workers, const std::string& model_dir = "") {
    Line line;
    const Node* train = Optimizer().Minimize(line.loss);
    TrainingSession session(line.graph, {.run = Config(steps, model_dir), .loss = line.loss});
    while (!session.ShouldStop()) {
      session.Run(line.Batch(0, session.step(), 4 * workers), {}, train);
    }
    EXPECT_EQ(session.step(), steps);
    const auto values = line.Values(session.session());
    session.Close();
    return values;
  }
};

TEST_F(TrainingSessionTest, GoesOnFromItsCheckpointWithTheSameBits) {
  const testing::TemporaryDirectory folder;
  const auto unbroken = Alone(20, 1);
  Alone(12, 1, folder.path());
  EXPECT_EQ(Alone(20, 1, folder.path()), unbroken);
  // One that is due while another is being written is left out; the last ones never are.
  const auto steps =
      checkpoint::ListCheckpoints(checkpoint::FileSystem::System(), folder.path()).value();
  EXPECT_EQ(steps.front(), 20);
  EXPECT_THAT(steps, ::testing::Contains(12));
}

TEST_F(TrainingSessionTest, HooksSeeStepsAndEndThem) {
  Line line;
  const Node* train = Optimizer().Minimize(line.loss);
  std::vector<double> losses;
  const auto stop = AfterSteps(1, [&](const StepEnd& end, TrainingControl& control) {
    losses.push_back(end.loss);
    if (end.step == 3) control.Stop("enough");
  });
  TrainingSession session(line.graph, {.run = Config(100), .loss = line.loss, .hooks = {stop}});
  std::vector<double> fetched;
  while (!session.ShouldStop()) {
    const std::vector<Feed> batch = line.Batch(0, session.step());
    const Output fetches[] = {line.loss};
    fetched.push_back(session.Run(batch, fetches, train)[0].scalar<double>());
  }
  session.Close();
  EXPECT_EQ(losses.size(), 3u);
  EXPECT_EQ(losses, fetched);
  EXPECT_LT(losses.back(), losses.front());
}

std::string TextOf(const std::string& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

size_t CountOf(std::string_view part, std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != text.npos; ++at) ++count;
  return count;
}

TEST_F(TrainingSessionTest, HasTheBuiltInHooks) {
  const testing::TemporaryDirectory folder;
  Line line;
  const Node* train = Optimizer().Minimize(line.loss);
  RunConfig config = Config(20, folder.path());
  config.quiet = false;
  config.log_every = 10;
  config.summary_every = 5;
  config.histograms = true;
  config.trace = "3..5:" + folder.path() + "/trace.json";
  ::testing::internal::CaptureStderr();
  TrainingSession session(line.graph, {.run = config, .loss = line.loss});
  while (!session.ShouldStop()) session.Run(line.Batch(0, session.step()), {}, train);
  session.Close();
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(CountOf("\nstep 10 loss ", "\n" + said), 1u) << said;
  EXPECT_EQ(CountOf("\nstep 20 loss ", "\n" + said), 1u) << said;
  EXPECT_THAT(said, HasSubstr("step 20/20")) << "progress";
  const std::string metrics = TextOf(folder.path() + "/metrics.jsonl");
  EXPECT_EQ(CountOf("\"kind\":\"train\"", metrics), 4u) << metrics;
  EXPECT_THAT(metrics, HasSubstr("\"steps_per_second\":"));
  EXPECT_EQ(CountOf("\"samples_per_second\":", metrics), 0u) << "nobody counts samples here";
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    if (entry.path().filename().string().starts_with("events.")) events += TextOf(entry.path());
  }
  EXPECT_EQ(CountOf("weights/bias", events), 4u) << "a histogram of each variable";
  const std::string trace = TextOf(folder.path() + "/trace.json");
  EXPECT_EQ(CountOf("\"name\":\"train/AssignAdd\"", trace), 3u) << trace;
}

TEST_F(TrainingSessionTest, EndsWhenTheLossIsNoNumber) {
  Line line;
  const Node* train = Optimizer().Minimize(line.loss);
  TrainingSession session(line.graph, {.run = Config(20), .loss = line.loss});
  session.Run(line.Batch(0, 0), {}, train);
  std::vector<Feed> batch = line.Batch(0, 1);
  batch[0].second.data<double>()[3] = std::nan("");
  EXPECT_THAT(ErrorOf([&] { session.Run(batch, {}, train); }),
              HasSubstr("step 2: the loss of worker 0 is not finite; the first bad tensor is "));
}

class SyncReplicasTest : public TrainingSessionTest {
 protected:
  struct Outcome {
    std::vector<double> values;  // as the chief sees them at the end
    std::vector<int64_t> steps;
    std::vector<std::string> errors;
    explicit Outcome(int workers) : steps(size_t(workers)), errors(size_t(workers)) {}
  };

  static std::string Device(int index) { return fmt::format("/job:local/task:0/cpu:{}", index); }

  void MakeServer(int workers) {
    if (server_ != nullptr) return;
    server_ =
        std::make_unique<Server>(ServerOptions{.devices = 2 + workers, .cores_per_device = 1});
  }

  // One worker up to a step, -1: to the end. One that stops before it is gone without a word.
  // `before` is called with the step before each run.
  void Work(
      int worker, int workers, int aggregate, int64_t steps, const std::string& model_dir,
      int64_t gone_at, Outcome& outcome, double patience_seconds = 600,
      const std::function<void(int64_t)>& before = [](int64_t) {}) {
    outcome.errors[size_t(worker)] = ErrorOf([&] {
      Line line({Device(0), Device(1)}, Device(2 + worker));
      SyncReplicas sync(
          Optimizer(),
          {.aggregate = aggregate, .total = workers, .patience_seconds = patience_seconds});
      const Node* train = nullptr;
      {
        const DeviceScope on(line.graph, Device(2 + worker));
        const VariablePlacementScope placement(PlaceOn({Device(0), Device(1)}));
        train = sync.Minimize(line.loss);
      }
      TrainingSession session(line.graph, {.run = Config(steps, worker == 0 ? model_dir : ""),
                                           .session = {.server = server_.get()},
                                           .is_chief = worker == 0,
                                           .worker = worker,
                                           .workers = workers,
                                           .hooks = {sync.MakeHook()}});
      while (!session.ShouldStop()) {
        if (session.step() == gone_at) return;
        before(session.step());
        session.Run(line.Batch(worker, session.step()), {}, train);
      }
      outcome.steps[size_t(worker)] = session.step();
      if (worker == 0) outcome.values = line.Values(session.session());
      session.Close();
    });
  }

  Outcome Train(int workers, int aggregate, int64_t steps) {
    MakeServer(workers);
    Outcome outcome(workers);
    std::vector<std::thread> threads;
    // The chief comes last.
    for (int worker = workers - 1; worker >= 0; --worker) {
      threads.emplace_back(
          [&, worker] { Work(worker, workers, aggregate, steps, "", -1, outcome); });
    }
    for (std::thread& thread : threads) thread.join();
    return outcome;
  }

  std::unique_ptr<Server> server_;
};

TEST_F(SyncReplicasTest, FollowsOneModelWithTheJoinedBatch) {
  for (const int workers : {1, 2, 3}) {
    server_ = nullptr;
    const auto alone = Alone(30, workers);
    const Outcome found = Train(workers, 0, 30);
    EXPECT_THAT(found.errors, Each("no error"));
    EXPECT_THAT(found.steps, Each(30));
    ASSERT_EQ(found.values.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(found.values[i], alone[i], 1e-12) << workers;
    }
  }
}

TEST_F(SyncReplicasTest, BackupsMakeNoUpdateMore) {
  const Outcome found = Train(3, 2, 40);
  EXPECT_THAT(found.errors, Each("no error"));
  EXPECT_EQ(found.steps[0], 40);
  EXPECT_NEAR(found.values[0], 2, 0.5);
}

// The servers keep gates, accumulators and tokens of what was broken off, and the steps since the
// last checkpoint are made again. Only the worker that is lost is started again; the other one
// waits for an update that nobody makes, or that waits for the lost one.
TEST_F(SyncReplicasTest, AWorkerOrTheChiefMayBeLost) {
  const auto alone = Alone(30, 2);
  for (const int lost : {0, 1}) {
    const testing::TemporaryDirectory folder;
    server_ = nullptr;
    MakeServer(2);
    Outcome found(2);
    std::thread stays([&] { Work(1 - lost, 2, 0, 30, folder.path(), -1, found); });
    Work(lost, 2, 0, 30, folder.path(), 13, found);
    EXPECT_EQ(found.errors[size_t(lost)], "no error");
    Work(lost, 2, 0, 30, folder.path(), -1, found);
    stays.join();
    EXPECT_THAT(found.errors, Each("no error"));
    EXPECT_THAT(found.steps, Each(30)) << lost;
    ASSERT_EQ(found.values.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      EXPECT_NEAR(found.values[i], alone[i], 1e-12) << "worker " << lost << " was lost";
    }
  }
}

// A worker that is started again pushes to the step that it was lost in. The chief holds that step
// back until two lives of the worker have pushed to it and given up.
TEST_F(SyncReplicasTest, WhatAWorkerPushesAgainCountsOnce) {
  const auto alone = Alone(30, 2);
  MakeServer(2);
  Outcome found(2);
  std::promise<void> pushed;
  std::thread chief([&] {
    Work(0, 2, 0, 30, "", -1, found, 600, [&](int64_t step) {
      if (step == 5) pushed.get_future().wait();
    });
  });
  for (int life = 0; life < 2; ++life) {
    Work(1, 2, 0, 30, "", -1, found, /*patience_seconds=*/0.5);
    EXPECT_THAT(found.errors[1], HasSubstr("did not finish within its timeout")) << life;
  }
  pushed.set_value();
  Work(1, 2, 0, 30, "", -1, found);
  chief.join();
  EXPECT_THAT(found.errors, Each("no error"));
  EXPECT_THAT(found.steps, Each(30));
  ASSERT_EQ(found.values.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_NEAR(found.values[i], alone[i], 1e-12);
}

// 1e5 is a float32 but no float16.
TEST_F(SyncReplicasTest, AGradientThatTheWireMakesInfiniteIsNotApplied) {
  for (const std::string wire : {"as-is", "float16"}) {
    Graph graph;
    const Output w = Variable(graph, Full({1}, 1.0), "w");
    SyncReplicas sync(Sgd({.learning_rate = 1e-6}), {.total = 1, .wire = wire});
    const Node* train = sync.Minimize(Sum(Mul(w, 1e5f)));
    TrainingSession session(graph, {.run = Config(3), .hooks = {sync.MakeHook()}});
    while (!session.ShouldStop()) session.Run({}, {}, train);
    EXPECT_EQ(session.step(), 3);
    const float value = session.session().Run(w).data<float>()[0];
    EXPECT_NEAR(value, wire == "float16" ? 1.0f : 0.7f, 1e-5) << wire;
    session.Close();
  }
}

TEST_F(SyncReplicasTest, WhoeverWaitsInVainSaysForWhat) {
  Server server({.devices = 1});
  Line line({Device(0)});
  RunConfig config = Config(10);
  config.start_timeout = 0.1;
  EXPECT_EQ(
      ErrorOf([&] {
        TrainingSession(line.graph, {.run = config,
                                     .session = {.server = &server},
                                     .is_chief = false,
                                     .worker = 1,
                                     .workers = 2});
      }),
      "after 0.1 s the chief has given no value to 3 of 3 variables, the first of them weights "
      "on \"/job:local/task:0/cpu:0\"; is it running, and are all variables on tasks that all "
      "workers share?");
}

TEST_F(SyncReplicasTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(ErrorOf([] { SyncReplicas(Optimizer(), {.aggregate = 3, .total = 2}); }),
              HasSubstr("aggregate is 3 and total 2; expected 1 <= aggregate <= total"));
  EXPECT_THAT(ErrorOf([] { SyncReplicas(Optimizer(), {.total = 1}).MakeHook(); }),
              HasSubstr("call Minimize or Apply first"));
  Line line;
  EXPECT_THAT(ErrorOf([&] { TrainingSession(line.graph, {.worker = 2, .workers = 2}); }),
              HasSubstr("worker is 2 of 2; expected 0 <= worker < workers"));
  EXPECT_THAT(ErrorOf([&] { TrainingSession(line.graph, {.loss = line.y}); }),
              HasSubstr("expected a scalar of float32 or float64"));
}

}  // namespace
}  // namespace tutti
