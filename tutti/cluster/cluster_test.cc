// A cluster of several tasks and clients in one process, over a network without sockets: the logic
// of services, remote masters and workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/cluster/cluster_rendezvous.h"
#include "tutti/cluster/remote/remote_master.h"
#include "tutti/cluster/task_services.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/net/wire.h"
#include "tutti/testing/cluster/in_process_network.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::InProcessNetwork;

constexpr int64_t kPatience = 10'000'000'000;

// One task of a cluster.
struct Task {
  Task(InProcessNetwork& network, const std::string& job, int index,
       const std::vector<std::string>& tasks, uint64_t incarnation = 1)
      : network(network) {
    name = "/job:" + job + "/task:" + std::to_string(index);
    peers = std::make_shared<TaskPeers>(TaskPeers::Options{
        .self = {name, incarnation},
        .fingerprint = tasks,
        .pool = [this](std::string_view device) -> MemoryPool& { return worker->PoolOf(device); }});
    worker = std::make_shared<LocalWorker>(LocalWorkerOptions{
        .job = job, .task = index, .make_rendezvous = [peers = peers](const StepId& id) {
          return std::make_shared<ClusterRendezvous>(id, peers);
        }});
    services = std::make_unique<TaskServices>(TaskServices::Options{.worker = worker,
                                                                    .peers = peers,
                                                                    .address = "",
                                                                    .tasks = tasks,
                                                                    .patience_nanos = kPatience});
    peers->Start(network.Join(name, peers.get()), services.get());
  }
  ~Task() {
    peers->Stop(Unavailable("the test ends"));
    network.Leave(name, peers.get());
  }

  InProcessNetwork& network;
  std::string name;
  std::shared_ptr<LocalWorker> worker;
  std::shared_ptr<TaskPeers> peers;
  std::unique_ptr<TaskServices> services;
};

// A process that is no task.
struct Client {
  explicit Client(InProcessNetwork& network, const std::string& name = "client")
      : network(network), name(name) {
    peers = std::make_shared<TaskPeers>(
        TaskPeers::Options{.self = {name, MakeRandomId()},
                           .fingerprint = {},
                           .pool = [this](std::string_view) -> MemoryPool& { return pool; }});
    peers->Start(network.Join(name, peers.get()), nullptr);
  }
  ~Client() {
    peers->Stop(Unavailable("the test ends"));
    network.Leave(name, peers.get());
  }
  Session Connect(const Graph& graph, const std::string& task) const {
    return Session(graph, std::make_unique<RemoteMaster>(peers, task, kPatience, CompileOptions{}));
  }

  InProcessNetwork& network;
  const std::string name;
  MemoryPool pool;
  std::shared_ptr<TaskPeers> peers;
};

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() { RegisterCpuKernels(); }
  void TearDown() override {
    client.reset();
    ps.reset();
    worker.reset();
    EXPECT_EQ(network.untaken_bytes(), 0);
  }

  // A variable on the ps task.
  Output OnPs(Graph& graph, Tensor value, const std::string& name) {
    DeviceScope on_ps(graph, kPs);
    return Variable(graph,
                    {.dtype = value.dtype(),
                     .shape = value.shape(),
                     .build = [value](Graph& g) { return Constant(g, value); }},
                    name);
  }

  static constexpr const char* kPs = "/job:ps/task:0";
  static constexpr const char* kWorker = "/job:worker/task:0";
  const std::vector<std::string> tasks = {kPs, kWorker};
  InProcessNetwork network;
  std::unique_ptr<Task> ps = std::make_unique<Task>(network, "ps", 0, tasks);
  std::unique_ptr<Task> worker = std::make_unique<Task>(network, "worker", 0, tasks);
  std::unique_ptr<Client> client = std::make_unique<Client>(network);
};

std::string ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

Code CodeOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return Code::kOk;
}

TEST_F(ClusterTest, AGraphCutOverTwoTasks) {
  Graph graph;
  const Output v = OnPs(graph, Tensor::Of<float>({2}, {1, 2}), "v");
  const Output x = Placeholder(graph, kFloat32, {2});
  const Output y = v * x;
  Session session = client->Connect(graph, kWorker);
  session.Initialize();
  EXPECT_EQ(session.Run({{x, Tensor::Of<float>({2}, {3, 4})}}, y).ToString(), "float32 [2] {3, 8}");
  // What nobody places runs where the session is connected.
  RunTrace trace;
  session.Run({{x, Tensor::Of<float>({2}, {3, 4})}}, y, {.trace = true, .trace_result = &trace});
  bool multiplied = false;
  for (const NodeTrace& node : trace.nodes) {
    if (node.op == "Mul") multiplied = node.device == std::string(kWorker) + "/cpu:0";
  }
  EXPECT_TRUE(multiplied);
}

TEST_F(ClusterTest, LargeValuesFeedsFetchesAndConstants) {
  Graph graph;
  const int64_t n = 100'000;
  const Output v = OnPs(graph, Tensor::Zeros(kFloat32, {n}), "v");
  const Output x = Placeholder(graph, kFloat32, {n});
  Tensor ones(kFloat32, {n});
  for (float& value : ones.values<float>()) value = 1;
  const Output y = v + x + Constant(graph, ones.Clone());
  Session session = client->Connect(graph, kWorker);
  session.Initialize();
  const Tensor result = session.Run({{x, ones}}, y);
  for (const float value : result.values<float>()) ASSERT_EQ(value, 2.0f);
}

TEST_F(ClusterTest, ExtendSendsWhatIsNew) {
  constexpr uint64_t kLarge = 4'000'000;
  Graph graph;
  const Output v = OnPs(graph, Tensor::Scalar(2.0f), "v");
  const Output large = Constant(graph, Tensor::Zeros(kFloat32, {kLarge / 4}));
  const Output sum = v + Sum(large);
  Session session = client->Connect(graph, kWorker);
  session.Initialize();
  EXPECT_EQ(session.Run(sum).scalar<float>(), 2.0f);
  const uint64_t before = client->peers->Traffic().bytes_sent;
  EXPECT_GT(before, kLarge) << "the constant went there once";
  const Output y = sum * v;
  EXPECT_EQ(session.Run(y).scalar<float>(), 4.0f);
  const uint64_t more = client->peers->Traffic().bytes_sent - before;
  EXPECT_GT(more, 0u);
  EXPECT_LT(more, kLarge / 100) << "and not again";
}

TEST_F(ClusterTest, ValuesOfUnknownStepsAreRefusedAndCounted) {
  EXPECT_EQ(worker->services->StatusOf(kPs).refused_values, 0u);  // reaches it
  const std::shared_ptr<Peer> peer = worker->peers->Find(kPs);
  ASSERT_NE(peer, nullptr);
  const std::string key = std::string(kWorker) + "/cpu:0;" + kPs + "/cpu:0;v";
  constexpr uint64_t kSession = 4711;
  WireMessage message = StartMessage(DataKind::kValue, 0);
  EncodeValue({kSession, 1}, key, Tensor::Scalar(1.0f), message);
  ASSERT_TRUE(peer->SendValue(std::move(message)).ok());
  while (worker->services->StatusOf(kPs).refused_values == 0) std::this_thread::yield();
  EXPECT_EQ(worker->services->StatusOf(kPs).refused_values, 1u);
}

TEST_F(ClusterTest, SeveralClientsShareVariables) {
  Graph first_graph, second_graph;
  OnPs(first_graph, Tensor::Scalar(1.0f), "v");
  const Output second = OnPs(second_graph, Tensor::Scalar(7.0f), "v");
  Client other(network, "client 2");
  {
    Session writer = client->Connect(first_graph, kWorker);
    writer.Initialize();
    Session reader = other.Connect(second_graph, kPs);
    EXPECT_EQ(reader.Run(second).scalar<float>(), 1.0f);
  }
}

TEST_F(ClusterTest, ASessionInATaskUsesAllTasks) {
  Graph graph;
  const Output v = OnPs(graph, Tensor::Scalar(2.0f), "v");
  const Output y = v * v;
  Session session(graph, worker->services->MakeMaster({}));
  session.Initialize();
  EXPECT_EQ(session.Run(y).scalar<float>(), 4.0f);
}

// The cost model goes by links that were measured, not assumed, and the explanation has them.
TEST_F(ClusterTest, LinksBetweenTasksAreMeasured) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {2});
  const Output y = x * x;
  for (const PlacementMethod method : {PlacementMethod::kManual, PlacementMethod::kSearch}) {
    Session session(graph, worker->services->MakeMaster({.placement = method}));
    session.Run({{x, Tensor::Of<float>({2}, {3, 4})}}, y);
    const PlacementReport report = session.Explain();
    // Scopes that name no other task leave nothing to be measured.
    if (method == PlacementMethod::kManual) {
      EXPECT_TRUE(report.links.empty());
      continue;
    }
    ASSERT_EQ(report.links.size(), 1u);
    EXPECT_EQ(report.links[0].a, kWorker);  // where the session is
    EXPECT_EQ(report.links[0].b, kPs);
    EXPECT_TRUE(report.links[0].measured);
    EXPECT_GT(report.links[0].latency, 0);
    EXPECT_GT(report.links[0].bytes_per_second, 0);
    EXPECT_THAT(report.ToText(), HasSubstr(", measured\n"));
    EXPECT_EQ(PlacementReport::FromJson(report.ToJson()).links[0].b, kPs);
  }
}

TEST_F(ClusterTest, ErrorsComeBackWithTheirCodeAndNode) {
  Graph graph;
  const Output v = OnPs(graph, Tensor::Scalar(2.0f), "v");
  Session session = client->Connect(graph, kWorker);
  const auto run = [&] { session.Run(v); };
  EXPECT_EQ(CodeOf(run), Code::kFailedPrecondition);
  EXPECT_THAT(ErrorOf(run), HasSubstr("has no value yet"));
  session.Initialize();
  EXPECT_EQ(session.Run(v).scalar<float>(), 2.0f) << "the session is as usable as before";
  EXPECT_THAT(ErrorOf([&] {
                session.Run({{v, Tensor::Scalar<int64_t>(1)}}, v);
              }),
              HasSubstr("int64"));
  {
    DeviceScope nowhere(graph, "/job:ps/task:9");
    const Output lost = Constant(graph, 1.0f);
    EXPECT_THAT(ErrorOf([&] { session.Run(lost); }), HasSubstr("/job:ps/task:9"));
  }
}

TEST_F(ClusterTest, ALostTaskEndsItsStepsAndIsNamed) {
  Graph graph;
  Output never;
  {
    DeviceScope on_ps(graph, kPs);
    const Output queue = FIFOQueue(graph, {{kFloat32, Shape{}}});
    never = Dequeue(queue)[0];
  }
  const Output y = never * 2.0f;
  Session session = client->Connect(graph, kWorker);
  Graph alone;
  const Output other = Constant(alone, 3.0f) * 1.0f;
  Session bystander(alone, worker->services->MakeMaster({}));
  std::thread killer([&] {
    while (ps->services->Status().steps.empty()) std::this_thread::yield();
    network.Lose(kPs);
  });
  const auto run = [&] { session.Run(y); };
  std::string text;
  Code code = Code::kOk;
  try {
    run();
  } catch (const Error& error) {
    text = error.what();
    code = error.code();
  }
  killer.join();
  EXPECT_EQ(code, Code::kUnavailable);
  EXPECT_THAT(text, HasSubstr(kPs));
  EXPECT_EQ(bystander.Run(other).scalar<float>(), 3.0f);
  EXPECT_EQ(CodeOf(run), Code::kUnavailable) << "and it stays so";
  EXPECT_THAT(ErrorOf(run), HasSubstr(kPs));
}

TEST_F(ClusterTest, ARestartedTaskAbortsOldSessionsAndTakesNewOnes) {
  Graph graph;
  const Output v = OnPs(graph, Tensor::Scalar(2.0f), "v");
  const Output y = v * 1.0f;
  Session session = client->Connect(graph, kWorker);
  session.Initialize();
  EXPECT_EQ(session.Run(y).scalar<float>(), 2.0f);
  ps.reset();
  Task restarted(network, "ps", 0, tasks, 2);
  const auto run = [&] { session.Run(y); };
  EXPECT_EQ(CodeOf(run), Code::kAborted);
  EXPECT_THAT(ErrorOf(run), HasSubstr("/job:ps/task:0"));
  EXPECT_THAT(ErrorOf(run), HasSubstr("restarted"));
  {
    Session fresh = client->Connect(graph, kWorker);
    fresh.Initialize();
    EXPECT_EQ(fresh.Run(y).scalar<float>(), 2.0f);
  }
}

TEST_F(ClusterTest, AClientThatDiesLeavesNothing) {
  Client mortal(network, "mortal");
  Graph graph;
  Output never;
  {
    DeviceScope on_ps(graph, kPs);
    const Output queue = FIFOQueue(graph, {{kFloat32, Shape{}}});
    never = Dequeue(queue)[0];
  }
  {
    Session session = mortal.Connect(graph, kWorker);
    std::thread killer([&] {
      while (ps->services->Status().steps.empty()) std::this_thread::yield();
      network.Lose("mortal");
    });
    EXPECT_EQ(CodeOf([&] { session.Run(never); }), Code::kUnavailable);
    killer.join();
  }
  while (ps->services->Status().registered_steps > 0 || !ps->services->Status().steps.empty() ||
         worker->services->Status().sessions > 0) {
    std::this_thread::yield();
  }
  EXPECT_EQ(ps->worker->rendezvous().size(), 0u);
}

TEST_F(ClusterTest, WhatAFencedProcessSaysIsCounted) {
  Client stranger(network, "stranger");
  const auto ask = [&] {
    Awaited<absl::StatusOr<std::string>> reply;
    stranger.peers->Get(kPs, kPatience, [&](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
      if (!peer.ok()) return reply.Set(peer.status());
      (*peer)->Call(ControlMethod::kTaskStatus, {},
                    [&](absl::StatusOr<std::string> given) { reply.Set(std::move(given)); });
    });
    return reply.Wait().status();
  };
  EXPECT_TRUE(ask().ok());
  ps->peers->Fence(stranger.peers->self(), Aborted("the stranger is fenced"));
  EXPECT_FALSE(ask().ok());
  while (ps->services->Status().refused_links + ps->services->Status().fenced_messages == 0) {
    EXPECT_FALSE(ask().ok());
  }
}

TEST_F(ClusterTest, AnotherClusterIsRefused) {
  Task stranger(network, "stranger", 0, {"/job:stranger/task:0", kPs});
  Graph graph;
  const Output v = OnPs(graph, Tensor::Scalar(2.0f), "v");
  {
    Session session(graph, stranger.services->MakeMaster({}));
    EXPECT_THAT(ErrorOf([&] { session.Run(v); }),
                HasSubstr("/job:ps/task:0 has another cluster than /job:stranger/task:0: "
                          "/job:ps/task:0 here, /job:stranger/task:0 there"));
  }
  EXPECT_EQ(ps->services->Status().refused_links, 1u);
}

// A step that runs is not ended by a process that did not register it.
TEST_F(ClusterTest, AStrangerCannotCleanUpAStep) {
  Graph graph;
  Output queue;
  {
    const DeviceScope on_ps(graph, kPs);
    queue = FIFOQueue(graph, {{kFloat32, Shape{}}});
  }
  const Output y = Dequeue(queue)[0] * 2.0f;
  const Node* const put = Enqueue(queue, {Constant(graph, 3.0f)});
  Session session = client->Connect(graph, kWorker);
  auto run = std::async(std::launch::async, [&] { return session.Run(y).scalar<float>(); });
  while (ps->services->Status().steps.empty()) std::this_thread::yield();
  const TaskStatus::Step step = ps->services->Status().steps[0];
  Client stranger(network, "stranger");
  Awaited<absl::StatusOr<std::string>> reply;
  stranger.peers->Get(kPs, kPatience, [&](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
    ASSERT_TRUE(peer.ok()) << peer.status();
    WireMessage message;
    net::WireWriter out(&message.fields);
    out.U64(step.session);
    out.I64(step.step);
    (*peer)->Call(ControlMethod::kCleanUpStep, std::move(message),
                  [&](absl::StatusOr<std::string> given) { reply.Set(std::move(given)); });
  });
  EXPECT_EQ(reply.Wait().status().code(), absl::StatusCode::kNotFound);
  session.RunTargets({}, {put});
  EXPECT_EQ(run.get(), 6);
}

// Keeps the calls that it gets until there are so many.
class PatientServices final : public Services {
 public:
  explicit PatientServices(size_t count) : count_(count) {}
  void OnRequest(const std::shared_ptr<Peer>&, DataKind, uint64_t, PeerMessage) override {}
  void OnControl(const std::shared_ptr<Peer>&, ControlMethod, std::string, std::vector<Tensor>,
                 ControlDone done) override {
    std::unique_lock lock(mutex_);
    kept_.push_back(std::move(done));
    if (kept_.size() == count_) complete_ = true;
    if (complete_) AnswerAll(lock);
  }
  void OnLost(const std::shared_ptr<Peer>&, const absl::Status&) override {}
  void GiveUp() {
    std::unique_lock lock(mutex_);
    complete_ = true;
    AnswerAll(lock);
  }

 private:
  void AnswerAll(std::unique_lock<std::mutex>& lock) {
    const auto kept = std::exchange(kept_, {});
    lock.unlock();
    for (const ControlDone& done : kept) done(Unavailable("nothing to tell"));
  }

  const size_t count_;
  std::mutex mutex_;
  bool complete_ = false;
  std::vector<ControlDone> kept_;
};

TEST_F(ClusterTest, AllTasksAreAskedAtTheSameTime) {
  const std::vector<std::string> others = {"/job:slow/task:0", "/job:slow/task:1",
                                           "/job:slow/task:2"};
  std::vector<std::string> all = others;
  all.emplace_back("/job:asks/task:0");
  PatientServices patient(others.size());
  std::vector<std::shared_ptr<TaskPeers>> peers;
  MemoryPool pool;
  for (const std::string& task : others) {
    peers.push_back(std::make_shared<TaskPeers>(TaskPeers::Options{
        .self = {task, 1}, .fingerprint = all, .pool = [&](std::string_view) -> MemoryPool& {
          return pool;
        }}));
    peers.back()->Start(network.Join(task, peers.back().get()), &patient);
  }
  {
    const Task asks(network, "asks", 0, all);
    auto status = std::async(std::launch::async, [&] { return asks.services->ClusterStatus(); });
    const bool answered = status.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
    EXPECT_TRUE(answered) << "a task is not asked until another one has answered";
    patient.GiveUp();
    EXPECT_EQ(status.get().size(), all.size());
  }
  for (size_t i = 0; i < others.size(); ++i) {
    peers[i]->Stop(Unavailable("the test ends"));
    network.Leave(others[i], peers[i].get());
  }
}

TEST_F(ClusterTest, StatusTellsOfAllTasks) {
  Graph graph;
  OnPs(graph, Tensor::Scalar(2.0f), "v");
  Session session = client->Connect(graph, kWorker);
  session.Initialize();
  const std::vector<TaskStatus> statuses = worker->services->ClusterStatus();
  ASSERT_EQ(statuses.size(), 2u);
  EXPECT_EQ(statuses[0].task, kPs);
  EXPECT_EQ(statuses[0].devices[0].name, std::string(kPs) + "/cpu:0");
  EXPECT_GT(statuses[0].registered_steps, 0);
  EXPECT_EQ(statuses[1].sessions, 1);
  EXPECT_EQ(statuses[1].refused_links, 0u);
  MetricsRegistry metrics;
  worker->services->AddMetrics(metrics);
  const std::string page = metrics.ToPrometheus();
  for (const char* line :
       {"tutti_sessions 1\n", "tutti_refused_links_total 0\n", "tutti_fenced_messages_total 0\n"}) {
    EXPECT_THAT(page, HasSubstr(line));
  }
  EXPECT_THAT(page, ::testing::ContainsRegex(
                        "tutti_link_sent_bytes_total[{]peer=\"/job:ps/task:0\"[}] [1-9]"));
}

}  // namespace
}  // namespace tutti
