// Clusters of real processes on this host: `tutti server`, and this process as the client.
#include "tests/cluster/processes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fstream>
#include <functional>
#include <future>
#include <regex>
#include <sstream>
#include <stop_token>
#include <thread>

#include "tutti/testing/sweep.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// Whether a task has a link to another.
bool HasLink(const LocalCluster& cluster, const std::string& from, const std::string& to) {
  const TaskStatus status = StatusOf(cluster, from);
  return std::any_of(status.links.begin(), status.links.end(),
                     [&](const auto& link) { return link.peer.starts_with(to); });
}

// The exit code of a task that ends by itself; -1 if it has not ended after so long.
int EndWithin(LocalCluster& cluster, const std::string& task, std::chrono::seconds ceiling) {
  const auto end = std::chrono::steady_clock::now() + ceiling;
  siginfo_t ended = {};
  while (waitid(P_PID, id_t(cluster.process(task)), &ended, WEXITED | WNOWAIT | WNOHANG) == 0 &&
         ended.si_pid == 0) {
    if (std::chrono::steady_clock::now() > end) return -1;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return cluster.Wait(task);
}

// What `tutti` with these words prints, and its exit code.
struct Printed {
  int code = -1;
  std::string text;
};
Printed RunTutti(const std::string& words) {
  Printed printed;
  FILE* const pipe = popen((std::string(TUTTI_PROGRAM) + " " + words + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return printed;
  char bytes[4096];
  for (size_t n = 0; (n = fread(bytes, 1, sizeof bytes, pipe)) > 0;) printed.text.append(bytes, n);
  const int status = pclose(pipe);
  printed.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return printed;
}

Output VariableOn(Graph& graph, const std::string& device, Tensor value, const std::string& name) {
  DeviceScope there(graph, device);
  return Variable(graph,
                  {.dtype = value.dtype(),
                   .shape = value.shape(),
                   .build = [value](Graph& g) { return Constant(g, value); }},
                  name);
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

// Past the 2 GB of a protobuf message and of an int: as a feed, a variable and a fetch.
TEST_F(ProcessesTest, ATensorOfMoreThanTwoGigabytes) {
  if (!testing::IsLongSweep()) GTEST_SKIP() << "takes some 10 GB; TUTTI_SWEEP=long runs it";
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  constexpr int64_t kBytes = 2'200'000'007;
  Tensor sent(kUInt8, {kBytes});
  for (int64_t i = 0; i < kBytes; ++i) sent.data<uint8_t>()[i] = uint8_t(i * 31 + (i >> 20));
  Graph graph;
  const Output x = Placeholder(graph, kUInt8, {kBytes});
  Output v;
  {
    DeviceScope there(graph, kPs0);
    v = Variable(graph, {.dtype = kUInt8, .shape = {kBytes}, .build = [&](Graph&) { return x; }},
                 "v");
  }
  const Output assigned = Assign(v, x);
  Session session(graph, {.target = cluster.target(kWorker)});
  session.RunTargets({{x, sent}}, {assigned.node});
  const Tensor back = session.Run(v);
  ASSERT_EQ(back.bytes(), size_t(kBytes));
  EXPECT_TRUE(
      std::equal(back.data<uint8_t>(), back.data<uint8_t>() + kBytes, sent.data<uint8_t>()));
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

  // As Chrome reads it: an arrow from the row of the ps to that of the worker.
  const testing::TemporaryDirectory folder;
  const std::string path = folder / "trace.json";
  trace.WriteChromeTrace(path);
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const auto row_of = [&](const std::string& pattern) {
    std::smatch found;
    const std::string json = text.str();
    return std::regex_search(json, found, std::regex(pattern)) ? found[1].str() : "none";
  };
  const auto row_of_task = [&](const std::string& task) {
    return row_of(R"("name":"thread_name","pid":0,"tid":(\d+),"args":\{"name":")" + task + "/");
  };
  const auto row_of_end = [&](const std::string& kind) {
    return row_of(R"("ph":")" + kind +
                  R"re("[^}]*"name":"transfer","cat":"arrow","id":0,"pid":0,"tid":(\d+))re");
  };
  EXPECT_NE(row_of_task(kPs0), row_of_task(kWorker)) << text.str();
  EXPECT_EQ(row_of_end("s"), row_of_task(kPs0)) << text.str();
  EXPECT_EQ(row_of_end("f"), row_of_task(kWorker)) << text.str();
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

TEST_F(ProcessesTest, TasksEndWithTheirCoordinator) {
  LocalCluster cluster(
      {.program = TUTTI_PROGRAM, .jobs = {{"chief", 1}, {"ps", 1}}, .coordinator = kChief});
  ASSERT_TRUE(Eventually([&] { return HasLink(cluster, kPs0, kChief); }));
  EXPECT_EQ(cluster.Terminate(kChief), 0);
  EXPECT_EQ(cluster.Wait(kPs0), 0) << "the coordinator ended in good order";
  cluster.Start(kChief);
  cluster.Start(kPs0);
  ASSERT_TRUE(Eventually([&] { return HasLink(cluster, kPs0, kChief); }));
  cluster.Kill(kChief);
  EXPECT_EQ(cluster.Wait(kPs0), 128) << "the coordinator is lost";
}

// The chief is the coordinator unless somebody says otherwise. Its end in good order takes less
// than 2 s; the ceiling is ten times as high.
TEST_F(ProcessesTest, TheEndOfTheChiefEndsAll) {
  LocalCluster cluster(
      {.program = TUTTI_PROGRAM, .jobs = {{"chief", 1}, {"ps", 2}, {"worker", 1}}});
  const std::string others[] = {kPs0, kPs1, kWorker};
  for (const std::string& task : others) {
    ASSERT_TRUE(Eventually([&] { return HasLink(cluster, task, kChief); })) << task;
  }
  EXPECT_EQ(cluster.Terminate(kChief), 0);
  for (const std::string& task : others) {
    EXPECT_EQ(EndWithin(cluster, task, std::chrono::seconds(20)), 0) << task;
  }
}

TEST_F(ProcessesTest, WithoutACoordinatorTheChiefEndsAlone) {
  LocalCluster cluster(
      {.program = TUTTI_PROGRAM, .jobs = {{"chief", 1}, {"ps", 1}}, .coordinator = "none"});
  Graph graph;
  const Output v = VariableOn(graph, kPs0, Tensor::Scalar(2.0f), "v");
  Session through_chief(graph, {.target = cluster.target(kChief)});
  through_chief.Initialize();
  EXPECT_EQ(cluster.Terminate(kChief), 0);
  EXPECT_EQ(Session(graph, {.target = cluster.target(kPs0)}).Run(v).scalar<float>(), 2.0f);
}

// A process that does not answer loses its place to a later one of the same task; when it goes on,
// it says so and ends.
TEST_F(ProcessesTest, AStoppedTaskCanBeReplaced) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"chief", 1}, {"ps", 1}}});
  ASSERT_TRUE(Eventually([&] { return HasLink(cluster, kPs0, kChief); }));
  const ServerOptions second{
      .job = "ps", .cores_per_device = 1, .cluster = cluster.jobs(), .bind = "127.0.0.1:0"};
  const Failure refused = FailureOf([&] { Server(second).Join(); });
  EXPECT_EQ(refused.code, Code::kAlreadyExists);
  EXPECT_THAT(refused.text, HasSubstr("/job:ps/task:0 is taken by another process"));
  cluster.Signal(kPs0, SIGSTOP);
  Server replacement(second);
  replacement.AwaitTasks(60);
  cluster.Signal(kPs0, SIGCONT);
  EXPECT_EQ(EndWithin(cluster, kPs0, std::chrono::seconds(50)), 128);
  EXPECT_FALSE(replacement.JoinFor(std::chrono::nanoseconds(0)));
}

TEST_F(ProcessesTest, ContainersKeepClientsApartAndAreResetAlone) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  const auto value_in = [&](const std::string& container, float first) {
    Graph graph;
    const ContainerScope in(graph, container);
    const Output v = VariableOn(graph, kPs0, Tensor::Scalar(first), "v");
    Session session(graph, {.target = cluster.target(kWorker)});
    session.Initialize();
    return session.Run(v).scalar<float>();
  };
  EXPECT_EQ(value_in("a", 1), 1);
  EXPECT_EQ(value_in("b", 2), 2);
  EXPECT_EQ(value_in("", 3), 3);
  EXPECT_EQ(value_in("a", 10), 1) << "it has a value";
  Session::Reset({.target = cluster.target(kWorker)}, "a");
  EXPECT_EQ(value_in("a", 10), 10);
  EXPECT_EQ(value_in("b", 20), 2);
  const Printed reset = RunTutti("reset " + cluster.target(kPs0) + " --container b");
  EXPECT_EQ(reset.code, 0) << reset.text;
  EXPECT_EQ(value_in("b", 20), 20);
  EXPECT_EQ(RunTutti("reset " + cluster.target(kPs0)).code, 0);
  EXPECT_EQ(value_in("", 30), 30);
  EXPECT_EQ(value_in("a", 100), 10);
  const Printed nobody = RunTutti("reset tutti://127.0.0.1:1");
  EXPECT_EQ(nobody.code, 1) << nobody.text;
  EXPECT_THAT(FailureOf([] { Session::Reset({}, "a"); }).text,
              HasSubstr("give either a target or a server"));
}

TEST_F(ProcessesTest, StatusTellsOfMemoryLinksAndWhoWaits) {
  LocalCluster cluster({.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}});
  constexpr int64_t kBytes = int64_t{64} << 20;
  const int64_t before = StatusOf(cluster, kPs0).memory_bytes;
  EXPECT_GT(before, 0);
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {kBytes / 4});
  const Output v = VariableOn(graph, kPs0, Tensor::Scalar(0.0f), "v");
  Output large;
  {
    DeviceScope there(graph, kPs0);
    large = Variable(graph, Zeros({kBytes / 4}), "large");
  }
  const Output assigned = Assign(large, x);
  const Output never = NeverOn(graph, kPs0) * (v + 1.0f);
  Session session(graph, {.target = cluster.target(kWorker)});
  session.Initialize();
  session.RunTargets({{x, Ramp(kBytes / 4)}}, {assigned.node});
  EXPECT_GT(StatusOf(cluster, kPs0).memory_bytes, before + kBytes * 9 / 10);
  uint64_t received = 0;
  for (const auto& link : StatusOf(cluster, kPs0).links) {
    if (link.peer.starts_with(kWorker)) received += link.bytes_received;
  }
  EXPECT_GE(received, uint64_t(kBytes));

  // The worker waits for the ps, which waits for a queue that nobody fills.
  std::stop_source stop;
  auto run = std::async(std::launch::async, [&] {
    return FailureOf([&] { session.Run(never, {.stop = stop.get_token()}); });
  });
  const auto waits = [&] {
    const TaskStatus status = StatusOf(cluster, kWorker);
    return std::any_of(status.steps.begin(), status.steps.end(),
                       [](const auto& step) { return step.waits_for.starts_with(kPs0); });
  };
  EXPECT_TRUE(Eventually(waits));
  const Printed text = RunTutti("status " + cluster.target(kWorker));
  EXPECT_EQ(text.code, 0);
  EXPECT_THAT(text.text, HasSubstr(std::string("waits for ") + kPs0));
  EXPECT_THAT(text.text, HasSubstr(std::string("  link to ") + kPs0));
  const Printed json = RunTutti("status " + cluster.target(kWorker) + " --json");
  for (const char* field : {R"("waits_for":"/job:ps/task:0)", R"("memory_bytes":)", R"("links":[)",
                            R"("refused_values":0)"}) {
    EXPECT_THAT(json.text, HasSubstr(field));
  }
  stop.request_stop();
  EXPECT_EQ(run.get().code, Code::kCancelled);
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
