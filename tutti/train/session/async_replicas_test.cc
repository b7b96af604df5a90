// Steps of workers on their own that are run again after a failure.
#include "tutti/train/session/async_replicas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stop_token>
#include <thread>

#include "tutti/cluster/server.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/initializers.h"
#include "tutti/testing/error_of.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/session/training_session.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

RunConfig Config(int64_t steps) {
  RunConfig config;
  config.program = "test";
  config.quiet = true;
  config.max_steps = steps;
  return config;
}

// Two variables on two devices. A step adds 1 to each; the second takes its gradient from a queue.
struct TwoVariables {
  TwoVariables() : async(Sgd({.learning_rate = 1}), {.total = 1}) {
    {
      const DeviceScope on(graph, Device(0));
      first = Variable(graph, Zeros({}), "first");
      GlobalStep(graph);
    }
    const DeviceScope on(graph, Device(1));
    second = Variable(graph, Zeros({}), "second");
    const Output queue = FIFOQueue(graph, {{kFloat32, Shape{}}}, {.capacity = 100}, "gradients");
    give = Enqueue(queue, {Constant(graph, -1.0f)});
    const std::vector<GradientAndVariable> list = {{{Constant(graph, -1.0f), {}, {}}, first},
                                                   {{Dequeue(queue)[0], {}, {}}, second}};
    train = async.Apply(list);
    const Output signals = FIFOQueue(graph, {{kFloat32, Shape{}}}, {.capacity = 100}, "signals");
    {
      const ControlScope after(graph, {FirstIsDone()});
      signal = Enqueue(signals, {Constant(graph, 1.0f)});
    }
    await = Dequeue(signals)[0];
  }

  // What runs last for the first variable.
  const Node* FirstIsDone() const {
    const Node* done = nullptr;
    for (const auto& node : graph.nodes()) {
      const bool updates = node->op().starts_with("Apply") && node->input(0) == first;
      const bool confirms = node->op() == "LedgerConfirm" && node->control_inputs()[0] == done;
      if (updates || confirms) done = node.get();
    }
    return done;
  }
  static std::string Device(int index) {
    return index == 0 ? "/job:local/task:0/cpu:0" : "/job:local/task:0/cpu:1";
  }

  Graph graph;
  Output first, second, await;
  AsyncReplicas async;
  const Node* train = nullptr;
  const Node* give = nullptr;    // a gradient for the second variable
  const Node* signal = nullptr;  // the first variable has been updated
};

// Breaks one step off, and says that a task was lost.
class BrokenStep : public Hook {
 public:
  enum When { kBetweenUpdates, kAfterUpdates };
  BrokenStep(const TwoVariables& model, Server& server, When when)
      : model_(model), server_(server), when_(when) {}

  void BeforeRun(SessionRun& run) override {
    if (++runs_ != 3) {
      GiveGradient();
    } else if (when_ == kBetweenUpdates) {
      run.targets.push_back(model_.signal);
      run.options.stop = stop_.get_token();
      watch_ = std::jthread([this] {
        Session session(const_cast<Graph&>(model_.graph), {.server = &server_});
        session.Run(model_.await);
        stop_.request_stop();
      });
    } else {
      GiveGradient();
    }
  }
  void AfterRun(SessionRun& /*run*/, std::span<const Tensor> /*fetched*/) override {
    if (runs_ == 3) throw Error(Code::kUnavailable, "the answer was lost");
  }
  void OnRunError(const Error& /*error*/) override {
    watch_.join();
    throw Error(Code::kUnavailable, "the second server was lost");
  }

 private:
  void GiveGradient() {
    Session session(const_cast<Graph&>(model_.graph), {.server = &server_});
    session.RunTargets({}, {model_.give});
  }
  const TwoVariables& model_;
  Server& server_;
  const When when_;
  int runs_ = 0;
  std::stop_source stop_;
  std::jthread watch_;
};

class AsyncReplicasTest : public ::testing::Test {
 protected:
  AsyncReplicasTest() { RegisterCpuKernels(); }

  struct Outcome {
    float first = 0, second = 0;
    int64_t counted = 0, told = 0;  // steps: in the variable, and by the session
  };
  static Outcome Train(BrokenStep::When when) {
    Server server({.devices = 2, .cores_per_device = 1});
    TwoVariables model;
    std::vector<std::shared_ptr<Hook>> hooks = {std::make_shared<BrokenStep>(model, server, when)};
    hooks.push_back(model.async.MakeHook());
    TrainingSession session(model.graph,
                            {.run = Config(100), .session = {.server = &server}, .hooks = hooks});
    for (int i = 0; i < 5; ++i) session.Run({}, {}, model.train);
    const auto values = session.session().Run({}, {model.first, model.second});
    const auto counted = session.session().Run(GlobalStep(model.graph)).scalar<int64_t>();
    return {values[0].scalar<float>(), values[1].scalar<float>(), counted, session.step()};
  }
};

TEST_F(AsyncReplicasTest, AStepThatIsRunAgainCountsOnce) {
  for (const auto when : {BrokenStep::kBetweenUpdates, BrokenStep::kAfterUpdates}) {
    const Outcome found = Train(when);
    EXPECT_EQ(found.first, 5) << when;
    EXPECT_EQ(found.second, 5) << when;
    EXPECT_EQ(found.counted, 5) << when;
    EXPECT_EQ(found.told, 5) << when;
  }
}

// A worker that is started again has other batches; none of its pushes is taken for an old one.
TEST_F(AsyncReplicasTest, AWorkerThatIsStartedAgainIsHeard) {
  Server server({.devices = 2, .cores_per_device = 1});
  for (const int64_t steps : {3, 7}) {
    TwoVariables model;
    TrainingSession session(
        model.graph,
        {.run = Config(steps), .session = {.server = &server}, .hooks = {model.async.MakeHook()}});
    while (!session.ShouldStop()) {
      Session other(model.graph, {.server = &server});
      other.RunTargets({}, {model.give});
      session.Run({}, {}, model.train);
    }
    const auto values = session.session().Run({}, {model.first, model.second});
    EXPECT_EQ(values[0].scalar<float>(), float(steps));
    EXPECT_EQ(values[1].scalar<float>(), float(steps));
  }
}

TEST_F(AsyncReplicasTest, RefusesWhatMakesNoSense) {
  EXPECT_THAT(testing::ErrorOf([] { AsyncReplicas(Sgd({.learning_rate = 1}), {.total = 0}); }),
              HasSubstr("total is 0; expected 1 or more workers"));
  EXPECT_THAT(
      testing::ErrorOf([] { AsyncReplicas(Sgd({.learning_rate = 1}), {.total = 1}).MakeHook(); }),
      HasSubstr("call Minimize or Apply first"));
}

}  // namespace
}  // namespace tutti
