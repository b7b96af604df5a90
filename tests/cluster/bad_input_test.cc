// What a client may send to a live task: graphs that are too large, cyclic, or of ops that the task
// does not have, and runs of what is not there. The client is told what is wrong; the task goes on,
// and has its memory back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

#include "tests/cluster/processes.h"
#include "tutti/base/awaited.h"
#include "tutti/cluster/remote/cluster_network.h"
#include "tutti/cluster/remote/peers.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/serialize.h"
#include "tutti/net/link/links.h"
#include "tutti/net/wire.h"
#include "tutti/runtime/messages/message_codec.h"
#include "tutti/testing/scarce_memory.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMegabyte = int64_t{1} << 20;

std::string Token() {
  const char* const token = std::getenv("TUTTI_JOB_TOKEN");
  return token == nullptr ? "" : token;
}

// A client that sends whatever bytes it is given to the task at an address.
class RawClient {
 public:
  explicit RawClient(const std::string& target)
      : address_(target.substr(std::string_view("tutti://").size())),
        self_{std::string(net::kClientTask), net::MakeIncarnation()},
        peers_(std::make_shared<TaskPeers>(
            TaskPeers::Options{.self = self_,
                               .fingerprint = {},
                               .pool = [this](std::string_view) -> MemoryPool& { return pool_; }})),
        network_(ValueOrThrow(ClusterNetwork::Make(
            {.self = self_, .token = Token(), .addresses = {{address_, address_}}}, peers_.get(),
            peers_.get()))) {
    peers_->Start(network_.get(), nullptr);
    Awaited<absl::StatusOr<std::shared_ptr<Peer>>> peer;
    peers_->Get(address_, 10'000'000'000, [&](auto given) { peer.Set(std::move(given)); });
    peer_ = ValueOrThrow(peer.Wait());
  }
  ~RawClient() {
    peers_->Stop(Cancelled("the client ended"));
    network_.reset();
  }

  absl::StatusOr<std::string> Call(ControlMethod method, std::string fields) {
    Awaited<absl::StatusOr<std::string>> reply;
    WireMessage message;
    message.fields = std::move(fields);
    peer_->Call(method, std::move(message), [&](auto given) { reply.Set(std::move(given)); });
    return reply.Wait();
  }
  // A session for these nodes, in bytes.
  absl::StatusOr<std::string> Create(const std::string& nodes) {
    return Call(ControlMethod::kCreateSession, std::string(3, '\0') + nodes);
  }
  absl::Status Run(uint64_t session, const MasterRunRequest& request) {
    Awaited<absl::Status> ended;
    peer_->Ask(
        DataKind::kMasterRun,
        [&](WireMessage& message) {
          net::WireWriter(&message.fields).U64(session);
          EncodeMasterRun(request, message);
        },
        [&](absl::StatusOr<PeerMessage> answer) {
          absl::Status status = answer.status();
          if (answer.ok()) {
            const auto response = DecodeResponse(answer->fields, answer->tensors);
            status = response.ok() ? response->status : response.status();
          }
          ended.Set(std::move(status));
        });
    return ended.Wait();
  }

 private:
  const std::string address_;
  const net::TaskIdentity self_;
  MemoryPool pool_;
  std::shared_ptr<TaskPeers> peers_;
  std::unique_ptr<ClusterNetwork> network_;
  std::shared_ptr<Peer> peer_;
};

class BadInputTest : public ::testing::Test {
 protected:
  BadInputTest() { RegisterCpuKernels(); }

  const std::string& target() const { return target_; }

  // A client that behaves is served as ever, and nothing of others is left.
  void ExpectServerLives() {
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {2});
    EXPECT_EQ(Session(graph, {.target = target_})
                  .Run({{x, Tensor::Of<float>({2}, {1, 2})}}, x * 2.0f)
                  .ToString(),
              "float32 [2] {2, 4}");
    EXPECT_TRUE(Eventually([&] {
      const TaskStatus status = StatusOf(cluster_, kWorker);
      return status.sessions == 0 && status.registered_steps == 0 && status.steps.empty();
    }));
  }
  // Each call takes hundreds of megabytes while it lasts.
  void ExpectMemoryBack(const std::function<void()>& call) {
    constexpr int kTimes = 3;
    const auto memory = [&] { return StatusOf(cluster_, kWorker).memory_bytes; };
    const int64_t before = memory();
    for (int i = 0; i < kTimes; ++i) call();
    if (!testing::CanLimitMemory()) return;  // a sanitizer keeps what is freed for a while
    EXPECT_TRUE(Eventually([&] { return memory() < before + 100 * kMegabyte; }))
        << memory() << " bytes, " << before << " before";
  }

  LocalCluster cluster_{{.program = TUTTI_PROGRAM, .jobs = {{"ps", 1}, {"worker", 1}}}};
  const std::string target_ = cluster_.target(kWorker);
};

TEST_F(BadInputTest, AMillionNodesComeAndGo) {
  constexpr int kNodes = 1'000'000;
  Graph graph;
  for (int i = 0; i < kNodes; ++i) graph.Add({.op = "NoOp", .name = "n" + std::to_string(i)});
  const Output y = Constant(graph, 2.0f) * 3.0f;
  ExpectMemoryBack(
      [&] { EXPECT_EQ(Session(graph, {.target = target()}).Run(y).scalar<float>(), 6); });
  ExpectServerLives();
}

// Of no more than 4 bytes each: they are counted before they are read.
TEST_F(BadInputTest, TooManyNodesAreRefused) {
  constexpr int kNodes = (1 << 22) + 1;
  Graph empty;
  std::vector<Tensor> beside;
  std::string nodes = ValueOrThrow(SerializeNodes(empty, 0, beside));
  for (int i = 0; i < kNodes; ++i) nodes += std::string_view("\x12\x02\x0a\x00", 4);
  {
    RawClient client(target());
    ExpectMemoryBack([&] {
      const absl::Status status = client.Create(nodes).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
      EXPECT_EQ(MessageOf(status), "the graph has 4194305 nodes; at most 4194304 are taken");
    });
  }
  ExpectServerLives();
}

TEST_F(BadInputTest, ACycleIsRefused) {
  // Two nodes: Identity "a" of node 1 and Identity "b" of node 0.
  Graph empty;
  std::vector<Tensor> beside;
  const std::string nodes = ValueOrThrow(SerializeNodes(empty, 0, beside)) +
                            std::string(
                                "\x12\x11\x0a\x08Identity\x12\x01"
                                "a\x1a\x02\x08\x01",
                                19) +
                            std::string(
                                "\x12\x0f\x0a\x08Identity\x12\x01"
                                "b\x1a\x00",
                                17);
  {
    RawClient client(target());
    const absl::Status status = client.Create(nodes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(MessageOf(status), HasSubstr("node 0 (Identity \"a\")"));
  }
  ExpectServerLives();
}

TEST_F(BadInputTest, ARunOfNodesThatAreNotThereIsRefused) {
  Graph graph;
  const Output y = Constant(graph, 2.0f) * 3.0f;
  std::vector<Tensor> beside;
  {
    RawClient client(target());
    const std::string reply =
        ValueOrThrow(client.Create(ValueOrThrow(SerializeNodes(graph, 0, beside))));
    const uint64_t session = net::WireReader(reply).U64();
    for (const OutputId fetch : {OutputId{graph.size(), 0}, OutputId{-1, 0}, OutputId{INT64_MAX, 0},
                                 OutputId{y.node->id(), 1}, OutputId{y.node->id(), -1}}) {
      MasterRunRequest request;
      request.step = 1;
      request.fetches.push_back(fetch);
      const absl::Status status = client.Run(session, request);
      EXPECT_TRUE(absl::IsInvalidArgument(status) || absl::IsNotFound(status)) << status;
    }
    MasterRunRequest request;
    request.step = 2;
    request.fetches.push_back({y.node->id(), 0});
    EXPECT_TRUE(client.Run(session, request).ok());
    EXPECT_TRUE(absl::IsNotFound(client.Run(session + 1, request)));
  }
  ExpectServerLives();
}

TEST_F(BadInputTest, ADeviceThatTheTaskDoesNotHaveIsNamed) {
  for (const char* device : {"/job:worker/task:0/gpu:0", "/job:worker/task:0/cpu:7"}) {
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {2}, "x");
    Output y;
    {
      const DeviceScope there(graph, device);
      y = Neg(x, "negative");
    }
    const Failure failure = FailureOf([&] {
      Session(graph, {.target = target()}).Run({{x, Tensor::Of<float>({2}, {1, 2})}}, y);
    });
    EXPECT_THAT(failure.text, HasSubstr("Neg \"negative\""));
    EXPECT_THAT(failure.text, HasSubstr(device));
  }
  ExpectServerLives();
}

// An op that only this process has.
void AddStrangeOp() {
  OpRegistry::Global().Add({.name = "OnlyTheClientHasThis",
                            .infer =
                                [](InferContext& c) {
                                  c.SetOutput(0, kFloat32, Shape{});
                                  return absl::OkStatus();
                                },
                            .stateful = true});
}

// Whatever a client sends, it is told what is wrong, and the task has its memory back.
TEST_F(BadInputTest, BadGraphsLeaveNothingBehind) {
  AddStrangeOp();
  const SessionOptions options = {.target = target()};
  const auto strange = [&] {
    Graph graph;
    const Node* const node = graph.Add({.op = "OnlyTheClientHasThis", .name = "strange"});
    Session(graph, options).Run(node->output());
  };
  // Some MB in, 4 TB out.
  constexpr int64_t kSide = int64_t{1} << 20;
  const Tensor column = Ramp(kSide).Reshape({kSide, 1}), row = Ramp(kSide).Reshape({1, kSide});
  const auto absurd = [&] {
    Graph graph;
    const Output a = Placeholder(graph, kFloat32, {kSide, 1});
    const Output b = Placeholder(graph, kFloat32, {1, kSide});
    Output product;
    {
      DeviceScope there(graph, kPs0);
      product = a * b;
    }
    Session session(graph, options);
    session.Run({{a, column}, {b, row}}, Sum(product * product));
  };
  const auto feed = [&](const Tensor& value) {
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {2});
    return Session(graph, options).Run({{x, value}}, x * 2.0f);
  };
  const auto wrong_feed = [&] { feed(Ramp(kSide)); };
  const auto once = [&] {
    EXPECT_THAT(FailureOf(strange).text, HasSubstr("there is no op \"OnlyTheClientHasThis\""));
    const Failure too_large = FailureOf(absurd);
    EXPECT_EQ(too_large.code, Code::kResourceExhausted) << too_large.text;
    EXPECT_THAT(FailureOf(wrong_feed).text, HasSubstr("[1048576]"));
  };
  for (int i = 0; i < 3; ++i) once();
  std::map<std::string, int64_t> before;
  for (const char* task : {kPs0, kWorker}) before[task] = StatusOf(cluster_, task).memory_bytes;
  const int rounds = testing::SweepCount(30, 300);
  for (int i = 0; i < rounds; ++i) once();
  for (const char* task : {kPs0, kWorker}) {
    // A round that kept its 8 MB of feeds would take 240 MB in all.
    EXPECT_LT(StatusOf(cluster_, task).memory_bytes, before[task] + (int64_t{64} << 20)) << task;
    EXPECT_TRUE(Eventually([&] {
      const TaskStatus status = StatusOf(cluster_, task);
      return status.sessions == 0 && status.registered_steps == 0 && status.steps.empty();
    })) << task;
  }
  EXPECT_EQ(feed(Tensor::Of<float>({2}, {1, 2})).ToString(), "float32 [2] {2, 4}");
}

}  // namespace
}  // namespace tutti
