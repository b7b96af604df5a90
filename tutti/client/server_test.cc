// Sessions that attach to one Server share its devices, variables and queues.
#include "tutti/cluster/server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/error_of.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::tutti::testing::ErrorOf;

Initializer Filled(DType dtype, const Shape& shape) {
  return {dtype, shape, [=](Graph& graph) { return Constant(graph, Tensor::Zeros(dtype, shape)); }};
}

class ServerTest : public ::testing::Test {
 protected:
  ServerTest() { RegisterCpuKernels(); }
};

// A client with a graph of its own that adds 1 to the variable "w".
struct Client {
  explicit Client(Server& server)
      : w(Variable(graph, Filled(kFloat32, {2}), "w")),
        add(AssignAdd(w, Constant(graph, Tensor::Of<float>({2}, {1, 1})))),
        session(graph, {.server = &server}) {}
  Graph graph;
  Output w;
  Output add;
  Session session;
};

TEST_F(ServerTest, VariablesOutliveTheirSession) {
  Server server;
  {
    Client first(server);
    first.session.Initialize();
    first.session.RunTargets({}, {first.add.node});
  }
  Client second(server);
  second.session.Initialize();  // the variable has a value, which stays
  EXPECT_EQ(second.session.Run(second.w).ToString(), "float32 [2] {1, 1}");
}

TEST_F(ServerTest, SessionsOnThreadsUpdateOneVariable) {
  constexpr int kThreads = 4, kSteps = 200;
  Server server({.cores_per_device = 1});
  {
    Client first(server);
    first.session.Initialize();
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      Client client(server);
      for (int i = 0; i < kSteps; ++i) client.session.RunTargets({}, {client.add.node});
    });
  }
  for (std::thread& thread : threads) thread.join();
  Client last(server);
  EXPECT_EQ(last.session.Run(last.w).ToString(), "float32 [2] {800, 800}");
}

TEST_F(ServerTest, AQueueJoinsTwoSessions) {
  Server server({.cores_per_device = 1});
  std::thread producer([&] {
    Graph graph;
    const Output queue = FIFOQueue(graph, {{kFloat32, {}}}, {.capacity = 2}, "q");
    const Output x = Placeholder(graph, kFloat32, Shape{});
    const Node* put = Enqueue(queue, {x});
    Session session(graph, {.server = &server});
    for (int i = 0; i < 20; ++i) session.RunTargets({{x, Tensor::Scalar(float(i))}}, {put});
  });
  Graph graph;
  const Output queue = FIFOQueue(graph, {{kFloat32, {}}}, {.capacity = 2}, "q");
  const Output taken = Dequeue(queue)[0];
  Session session(graph, {.server = &server});
  for (int i = 0; i < 20; ++i) EXPECT_EQ(session.Run(taken).scalar<float>(), float(i));
  producer.join();
}

TEST_F(ServerTest, OneNameHasOneTypeAndShape) {
  Server server;
  Client first(server);
  first.session.Initialize();
  for (const auto& [dtype, shape] :
       {std::pair(kFloat64, Shape{2}), std::pair(kFloat32, Shape{3})}) {
    Graph graph;
    const Output other = Variable(graph, Filled(dtype, shape), "w");
    Session session(graph, {.server = &server});
    EXPECT_THAT(ErrorOf([&] {
                  session.Initialize();
                  session.Run(other);
                }),
                HasSubstr("variable \"w\""))
        << NameOf(dtype) << shape.ToString();
    // Nor may it be overwritten with something else.
    const Output assign = Assign(other, Constant(graph, Tensor::Zeros(dtype, shape)));
    EXPECT_THAT(ErrorOf([&] { session.Run(assign); }), HasSubstr("variable \"w\""));
  }
  EXPECT_EQ(first.session.Run(first.w).ToString(), "float32 [2] {0, 0}");
}

// The declaration counts, not only the value: two clients that start at the same time differ before
// either has given the variable a value.
TEST_F(ServerTest, OneNameHasOneTypeBeforeItHasAValue) {
  Server server;
  Client first(server);
  EXPECT_THAT(ErrorOf([&] { first.session.Run(first.w); }), HasSubstr("has no value yet"));
  Graph graph;
  Variable(graph, Filled(kFloat64, {2}), "w");
  Session session(graph, {.server = &server});
  EXPECT_THAT(ErrorOf([&] { session.Initialize(); }),
              HasSubstr("variable \"w\" is float32 [2] on this device, but this graph declares it "
                        "as float64 [2]"));
}

TEST_F(ServerTest, ResetForgetsVariables) {
  Server server;
  {
    Client first(server);
    first.session.Initialize();
  }
  server.Reset();
  Client second(server);
  EXPECT_THAT(ErrorOf([&] { second.session.Run(second.w); }), HasSubstr("has no value yet"));
}

TEST_F(ServerTest, ContainersKeepClientsApartAndAreResetAlone) {
  Server server;
  // Sets "w" and its slot, puts into "q", and gives w, the slot and the size of the queue.
  const auto use = [&](const std::string& container, float value) {
    Graph graph;
    Output w, q, m;
    {
      const ContainerScope in(graph, container);
      w = Variable(graph, Filled(kFloat32, {}), "w");
      q = FIFOQueue(graph, {{kFloat32, {}}}, {.capacity = 8}, "q");
      m = Mutex(graph, "m");
    }
    EXPECT_EQ(graph.container_scope(), "");
    EXPECT_EQ(w.node->attr<std::string>("container"), container);
    EXPECT_EQ(m.node->attr<std::string>("container"), container);
    const Output slot =
        Variable(graph, Filled(kFloat32, {}), "w/slot", {.trainable = false, .slot_of = w});
    EXPECT_EQ(slot.node->attr<std::string>("container"), container);
    const Output x = Placeholder(graph, kFloat32, Shape{});
    const Node* const put = Enqueue(q, {x});
    const Output add = AssignAdd(w, x);
    const Output size = QueueSize(q);
    Session session(graph, {.server = &server});
    session.Initialize();
    session.RunTargets({{x, Tensor::Scalar(value)}}, {put, add.node});
    return std::pair(session.Run(w).scalar<float>(), session.Run(size).scalar<int64_t>());
  };
  EXPECT_EQ(use("a", 1), std::pair(1.0f, int64_t{1}));
  EXPECT_EQ(use("b", 2), std::pair(2.0f, int64_t{1}));
  EXPECT_EQ(use("", 3), std::pair(3.0f, int64_t{1}));
  EXPECT_EQ(use("a", 1), std::pair(2.0f, int64_t{2}));
  Session::Reset({.server = &server}, "a");
  EXPECT_EQ(use("a", 1), std::pair(1.0f, int64_t{1}));
  EXPECT_EQ(use("b", 2), std::pair(4.0f, int64_t{2}));
  Session::Reset({.server = &server});
  EXPECT_EQ(use("", 3), std::pair(3.0f, int64_t{1}));
  EXPECT_EQ(use("b", 2), std::pair(6.0f, int64_t{3}));
}

TEST_F(ServerTest, SeveralServersDoNotKnowEachOther) {
  Server one, two;
  Client first(one), second(two);
  first.session.Initialize();
  EXPECT_THAT(ErrorOf([&] { second.session.Run(second.w); }), HasSubstr("has no value yet"));
}

TEST_F(ServerTest, ASessionKeepsWhatItUses) {
  std::optional<Server> server(std::in_place);
  Client client(*server);
  client.session.Initialize();
  server.reset();
  client.session.RunTargets({}, {client.add.node});
  EXPECT_EQ(client.session.Run(client.w).ToString(), "float32 [2] {1, 1}");
}

TEST_F(ServerTest, ListsItsDevices) {
  Server server({.job = "ps", .task = 3, .devices = 2, .cores_per_device = 1});
  EXPECT_EQ(server.task(), "/job:ps/task:3");
  const std::vector<DeviceInfo> devices = server.devices();
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].name, "/job:ps/task:3/cpu:1");
  EXPECT_EQ(devices[1].type, "cpu");
  EXPECT_EQ(devices[1].cores, 1);
  EXPECT_GT(devices[1].memory_bytes, 0);
  EXPECT_NE(devices[1].incarnation, 0u);
  EXPECT_NE(devices[1].incarnation, Server().devices()[0].incarnation);
}

TEST_F(ServerTest, SoftPlacementFallsBackAndSaysSoOnce) {
  Server server({.devices = 2, .cores_per_device = 1});
  Graph graph;
  Output y, z;
  {
    const DeviceScope scope(graph, "/gpu:3");
    y = Neg(Placeholder(graph, kFloat32, Shape{}, "x"), "y");
  }
  z = Neg(y);
  const Output x = graph.FindOutput("x");
  Session strict(graph, {.server = &server});
  EXPECT_THAT(ErrorOf([&] {
                strict.Run({{x, Tensor::Scalar(1.0f)}}, y);
              }),
              ::testing::ContainsRegex("asks for device \"/gpu:3\" \\(server_test.cc:[0-9]+\\); "
                                       "there are: /job:local/task:0/cpu:0, "));
  Session soft(graph, {.server = &server, .soft_placement = true});
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(soft.Run({{x, Tensor::Scalar(1.0f)}}, y).scalar<float>(), -1);
  EXPECT_EQ(soft.Run({{x, Tensor::Scalar(1.0f)}}, z).scalar<float>(), 1);
  const std::string log = ::testing::internal::GetCapturedStderr();
  const std::string line = "Neg \"y\"";
  EXPECT_THAT(log, HasSubstr(line));
  EXPECT_EQ(log.find(line), log.rfind(line)) << log;
}

// Steps of several clients go to and fro between the devices of one server.
TEST_F(ServerTest, ClientsShareTheLanesOfItsDevices) {
  constexpr int kClients = 4, kSteps = 100;
  Server server({.devices = 3, .cores_per_device = 1});
  std::vector<std::thread> clients;
  for (int c = 0; c < kClients; ++c) {
    clients.emplace_back([&, c] {
      Graph graph;
      const Output x = Placeholder(graph, kFloat32, Shape{});
      Output y = x;
      for (int i = 0; i < 6; ++i) {
        const DeviceScope scope(graph, "cpu:" + std::to_string((c + i) % 3));
        y = Add(y, 1.0f);
      }
      Session session(graph, {.server = &server, .optimize = false});
      for (int step = 0; step < kSteps; ++step) {
        EXPECT_EQ(session.Run({{x, Tensor::Scalar(float(step))}}, y).scalar<float>(),
                  float(step + 6));
      }
    });
  }
  for (std::thread& client : clients) client.join();
}

TEST_F(ServerTest, RefusesNamesThatNoDeviceCanHave) {
  Graph graph;
  EXPECT_THAT(ErrorOf([&] { Session(graph, {.task = -1}); }),
              HasSubstr("task -1 of job \"local\": expected 0 or more"));
  for (const std::string job : {"a/b", "", "a b", "a:b", "\n"}) {
    EXPECT_THAT(ErrorOf([&] { Session(graph, {.job = job}); }),
                HasSubstr("expected a name of letters, digits, '_' and '-'"))
        << job;
  }
  EXPECT_THAT(ErrorOf([&] { Server({.devices = 0}); }), HasSubstr("1 to 1024 devices, got 0"));
  Server server;
  EXPECT_THAT(ErrorOf([&] { Session(graph, {.server = &server, .devices = 2}); }),
              HasSubstr("these belong to the server"));
}

}  // namespace
}  // namespace tutti
