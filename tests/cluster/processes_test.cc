// Clusters of real processes on this host: `tutti server`, and this process as the client.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <thread>

#include "tutti/base/status.h"
#include "tutti/cluster/target.h"
#include "tutti/launch/local_cluster.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr const char* kPs0 = "/job:ps/task:0";
constexpr const char* kChief = "/job:chief/task:0";
constexpr const char* kPs1 = "/job:ps/task:1";
constexpr const char* kWorker = "/job:worker/task:0";

struct Failure {
  Code code = Code::kOk;
  std::string text;
};

Failure FailureOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

std::vector<TaskStatus> StatusesOf(const std::string& target) {
  return ValueOrThrow(StatusOfTarget({.target = target}));
}

Output VariableOn(Graph& graph, const std::string& device, Tensor value, const std::string& name) {
  DeviceScope there(graph, device);
  return Variable(graph,
                  {.dtype = value.dtype(),
                   .shape = value.shape(),
                   .build = [value](Graph& g) { return Constant(g, value); }},
                  name);
}

Tensor Ramp(int64_t n) {
  Tensor tensor(kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) tensor.data<float>()[i] = float(i % 1000);
  return tensor;
}

// A value of a queue that nobody fills.
Output NeverOn(Graph& graph, const std::string& device) {
  DeviceScope there(graph, device);
  return Dequeue(FIFOQueue(graph, {{kFloat32, Shape{}}}))[0];
}

class ProcessesTest : public ::testing::Test {
 protected:
  ProcessesTest() { RegisterCpuKernels(); }
};

TEST_F(ProcessesTest, AGraphOverThreeTasks) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 2}, {"worker", 1}}});
  Graph graph;
  const Output a = VariableOn(graph, kPs0, Tensor::Of<float>({2}, {1, 2}), "a");
  const Output b = VariableOn(graph, kPs1, Tensor::Of<float>({2}, {10, 20}), "b");
  const Output x = Placeholder(graph, kFloat32, {2});
  const Output y = a * x + b;
  Session session(graph, {.target = cluster.target(kWorker)});
  session.Initialize();
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(session.Run({{x, Tensor::Of<float>({2}, {3, float(i)})}}, y).ToString(),
              Tensor::Of<float>({2}, {13, 2 * float(i) + 20}).ToString());
  }
  // The same cluster, between-graph: another client with a graph of its own shares the variables.
  Graph other;
  const Output shared = VariableOn(other, kPs0, Tensor::Of<float>({2}, {0, 0}), "a");
  Session second(other, {.target = cluster.target(kPs0)});
  EXPECT_EQ(second.Run(shared).ToString(), "float32 [2] {1, 2}");
}

// Five steps of a small network whose layers live on different tasks: weights and losses. `place`
// gives the device of each layer.
std::vector<Tensor> TrainNetwork(const std::function<std::string(int)>& place,
                                 const SessionOptions& options) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 20}, "x");
  std::vector<Output> weights;
  Output hidden = x;
  const std::vector<int64_t> widths = {20, 16, 12, 4};
  for (int layer = 0; layer < 3; ++layer) {
    DeviceScope there(graph, place(layer));
    Tensor first(kFloat32, {widths[size_t(layer)], widths[size_t(layer) + 1]});
    for (int64_t i = 0; i < first.elements(); ++i) {
      first.data<float>()[i] = float((i * 7919 + layer) % 101) / 101 - 0.5f;
    }
    weights.push_back(VariableOn(graph, place(layer), first, "w" + std::to_string(layer)));
    hidden = Relu(MatMul(hidden, weights.back()));
  }
  const Output loss = Mean(hidden * hidden);
  const std::vector<Output> gradients = Gradients(loss, weights);
  std::vector<const Node*> updates;
  for (size_t i = 0; i < weights.size(); ++i) {
    DeviceScope there(graph, place(int(i)));
    updates.push_back(AssignSub(weights[i], gradients[i] * 0.1f).node);
  }
  Session session(graph, options);
  session.Initialize();
  std::vector<Tensor> results;
  Tensor input(kFloat32, {8, 20});
  for (int step = 0; step < 5; ++step) {
    for (int64_t i = 0; i < input.elements(); ++i) {
      input.data<float>()[i] = float((i * 31 + step * 17) % 23) / 23;
    }
    const std::vector<Feed> feeds = {{x, input}};
    const Output fetches[] = {loss};
    results.push_back(session.Run(feeds, fetches, updates)[0]);
  }
  for (const Output& weight : weights) results.push_back(session.Run(weight));
  return results;
}

TEST_F(ProcessesTest, TrainingIsTheSameOnOneTwoAndFourProcesses) {
  const std::vector<Tensor> expected =
      TrainNetwork([](int) { return ""; }, {.cores_per_device = 1});
  for (const int ps : {1, 3}) {
    LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", ps}, {"worker", 1}}});
    const std::vector<Tensor> results =
        TrainNetwork([&](int layer) { return "/job:ps/task:" + std::to_string(layer % ps); },
                     {.target = cluster.target(kWorker)});
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].ToString(1000), expected[i].ToString(1000)) << i << ", " << ps << " ps";
    }
  }
}

TEST_F(ProcessesTest, AQueueBetweenProducerAndConsumerOnDifferentTasks) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 2}}});
  Graph graph;
  Output queue;
  {
    DeviceScope on_ps(graph, kPs0);
    queue = FIFOQueue(graph, {{kFloat32, Shape{2}}}, {.capacity = 2}, "queue");
  }
  const Output x = Placeholder(graph, kFloat32, {2});
  Output doubled;
  {
    DeviceScope on_producer(graph, "/job:worker/task:0");
    doubled = x * 2.0f;
  }
  const Node* const put = Enqueue(queue, {doubled});
  const Output element = Dequeue(queue)[0];
  Output taken;
  {
    DeviceScope on_consumer(graph, "/job:worker/task:1");
    taken = element + 1.0f;
  }
  Session producer(graph, {.target = cluster.target("/job:worker/task:0")});
  Session consumer(graph, {.target = cluster.target("/job:worker/task:1")});
  constexpr int kElements = 50;
  auto puts = std::async(std::launch::async, [&] {
    for (int i = 0; i < kElements; ++i) {
      producer.RunTargets({{x, Tensor::Of<float>({2}, {float(i), 1})}}, {put});
    }
  });
  for (int i = 0; i < kElements; ++i) {
    EXPECT_EQ(consumer.Run(taken).ToString(),
              Tensor::Of<float>({2}, {2 * float(i) + 1, 3}).ToString());
  }
  puts.get();
}

TEST_F(ProcessesTest, LargeTensorsCrossWhole) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  Graph graph;
  const int64_t n = 3'000'001;
  const Tensor ramp = Ramp(n);
  const Output v = VariableOn(graph, kPs0, ramp, "v");
  const Output x = Placeholder(graph, kFloat32, {n});
  const Output y = v + x;
  Session session(graph, {.target = cluster.target(kWorker)});
  session.Initialize();
  for (int i = 0; i < 3; ++i) {
    const Tensor result = session.Run({{x, ramp}}, y);
    for (int64_t k = 0; k < n; ++k) ASSERT_EQ(result.data<float>()[k], 2 * float(k % 1000)) << k;
  }
}

TEST_F(ProcessesTest, ATracedStepHasNodesOfAllTasks) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  Graph graph;
  const Output v = VariableOn(graph, kPs0, Tensor::Scalar(2.0f), "v");
  const Output y = v * v;
  Session session(graph, {.target = cluster.target(kWorker)});
  session.Initialize();
  session.Run(y);
  RunTrace trace;
  session.Run({}, y, {.trace = true, .trace_result = &trace});
  const NodeTrace* send = nullptr;
  const NodeTrace* receive = nullptr;
  for (const NodeTrace& node : trace.nodes) {
    if (node.op == "Send") send = &node;
    if (node.op == "Recv") receive = &node;
  }
  ASSERT_NE(send, nullptr);
  ASSERT_NE(receive, nullptr);
  EXPECT_THAT(send->device, HasSubstr(kPs0));
  EXPECT_THAT(receive->device, HasSubstr(kWorker));
  EXPECT_FALSE(send->transfer.empty());
  EXPECT_EQ(send->transfer, receive->transfer);
  EXPECT_LE(send->start_nanos, receive->end_nanos) << "clocks are aligned";
}

TEST_F(ProcessesTest, AKilledTaskIsNamedAndOthersGoOn) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 2}, {"worker", 1}}});
  Graph graph;
  const Output never = NeverOn(graph, kPs0);
  const Output doubled = never * 2.0f;
  const Output other = VariableOn(graph, kPs1, Tensor::Scalar(5.0f), "other");
  Session session(graph, {.target = cluster.target(kWorker)});
  Session bystander(graph, {.target = cluster.target(kPs1)});
  session.Initialize();
  auto run =
      std::async(std::launch::async, [&] { return FailureOf([&] { session.Run(doubled); }); });
  // The step runs on ps 0 when its status tells so.
  for (bool running = false; !running;) {
    for (const TaskStatus& task : StatusesOf(cluster.target(kWorker))) {
      running = running || (task.task == kPs0 && !task.steps.empty());
    }
  }
  cluster.Kill(kPs0);
  ASSERT_EQ(run.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  const Failure failure = run.get();
  EXPECT_EQ(failure.code, Code::kUnavailable) << failure.text;
  EXPECT_THAT(failure.text, HasSubstr(kPs0));
  EXPECT_EQ(bystander.Run(other).scalar<float>(), 5.0f);
  EXPECT_EQ(session.Run(other).scalar<float>(), 5.0f) << "what does not need the lost task";

  cluster.Start(kPs0);
  const Failure aborted = FailureOf([&] { session.Run(doubled); });
  EXPECT_EQ(aborted.code, Code::kAborted) << aborted.text;
  EXPECT_THAT(aborted.text, HasSubstr(kPs0));
  Graph fresh_graph;
  const Output fresh = VariableOn(fresh_graph, kPs0, Tensor::Scalar(1.0f), "fresh") * 1.0f;
  Session again(fresh_graph, {.target = cluster.target(kWorker)});
  again.Initialize();
  EXPECT_EQ(again.Run(fresh).scalar<float>(), 1.0f);
}

TEST_F(ProcessesTest, TheTaskOfTheSessionIsKilled) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  Graph graph;
  const Output never = NeverOn(graph, kPs0);
  Session session(graph, {.target = cluster.target(kWorker)});
  auto run = std::async(std::launch::async, [&] { return FailureOf([&] { session.Run(never); }); });
  for (bool running = false; !running;) {
    for (const TaskStatus& task : StatusesOf(cluster.target(kPs0))) {
      running = running || !task.steps.empty();
    }
  }
  cluster.Kill(kWorker);
  ASSERT_EQ(run.wait_for(std::chrono::seconds(10)), std::future_status::ready);
  const Failure failure = run.get();
  EXPECT_EQ(failure.code, Code::kUnavailable) << failure.text;
  EXPECT_THAT(failure.text, HasSubstr(kWorker));
  // Its step on the ps task ends, and what it registered there is freed.
  for (bool left = true; left;) {
    left = false;
    for (const TaskStatus& task : StatusesOf(cluster.target(kPs0))) {
      if (task.task == kPs0) left = !task.steps.empty() || task.registered_steps > 0;
    }
  }
}

TEST_F(ProcessesTest, AStoppedTaskIsNamed) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  Graph graph;
  const Output v = VariableOn(graph, kPs0, Tensor::Scalar(2.0f), "v");
  const Output y = v * v;
  Session session(graph, {.target = cluster.target(kWorker)});
  session.Initialize();
  session.Run(y);
  cluster.Signal(kPs0, SIGSTOP);
  auto run = std::async(std::launch::async, [&] { return FailureOf([&] { session.Run(y); }); });
  ASSERT_EQ(run.wait_for(std::chrono::seconds(50)), std::future_status::ready);
  const Failure failure = run.get();
  EXPECT_EQ(failure.code, Code::kUnavailable) << failure.text;
  EXPECT_THAT(failure.text, HasSubstr(kPs0));
  cluster.Signal(kPs0, SIGCONT);
}

TEST_F(ProcessesTest, TasksEndInOrder) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  Graph graph;
  const Output y = VariableOn(graph, kPs0, Tensor::Scalar(2.0f), "v") * 1.0f;
  Session session(graph, {.target = cluster.target(kWorker)});
  session.Initialize();
  EXPECT_EQ(session.Run(y).scalar<float>(), 2.0f);
  EXPECT_EQ(cluster.Terminate(kPs0), 0);
  EXPECT_EQ(cluster.Terminate(kWorker), 0);
  EXPECT_EQ(FailureOf([&] { session.Run(y); }).code, Code::kUnavailable);
}

// Returns when a task has a link to another.
void AwaitLink(LocalCluster& cluster, const std::string& from, const std::string& to) {
  for (bool linked = false; !linked;) {
    for (const TaskStatus& task : StatusesOf(cluster.target(from))) {
      if (task.task != from) continue;
      for (const auto& link : task.links) linked = linked || link.peer.starts_with(to);
    }
  }
}

TEST_F(ProcessesTest, TasksEndWithTheirCoordinator) {
  LocalCluster cluster(
      {.program = TUTTI_PROGRAM, .jobs = {{"chief", 1}, {"ps", 1}}, .coordinator = kChief});
  AwaitLink(cluster, kPs0, kChief);
  EXPECT_EQ(cluster.Terminate(kChief), 0);
  EXPECT_EQ(cluster.Wait(kPs0), 0) << "the coordinator ended in good order";
  cluster.Start(kChief);
  cluster.Start(kPs0);
  AwaitLink(cluster, kPs0, kChief);
  cluster.Kill(kChief);
  EXPECT_EQ(cluster.Wait(kPs0), 1) << "the coordinator is lost";
}

TEST_F(ProcessesTest, MistakesAreToldAndTheServerLives) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {2});
  const Output y = x * 2.0f;
  EXPECT_THAT(FailureOf([&] {
                Session(graph, {.target = cluster.target(kWorker), .token = "wrong"});
              }).text,
              HasSubstr("token"));
  EXPECT_THAT(FailureOf([&] { Session(graph, {.target = "grpc://a:1"}); }).text,
              HasSubstr("expected \"\" for this process or \"tutti://host:port\""));
  EXPECT_EQ(FailureOf([&] {
              Session(graph, {.target = "tutti://127.0.0.1:1", .start_seconds = 0.3});
            }).code,
            Code::kUnavailable);
  Session session(graph, {.target = cluster.target(kWorker)});
  EXPECT_THAT(FailureOf([&] {
                session.Run({{x, Tensor::Scalar<int64_t>(1)}}, y);
              }).text,
              HasSubstr("int64"));
  EXPECT_EQ(session.Run({{x, Tensor::Of<float>({2}, {1, 2})}}, y).ToString(), "float32 [2] {2, 4}");
}

}  // namespace
}  // namespace tutti
