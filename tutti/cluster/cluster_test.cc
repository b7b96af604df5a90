// A cluster of several tasks and clients in one process, over a network without sockets: the logic
// of services, remote masters and workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/cluster/cluster_rendezvous.h"
#include "tutti/cluster/remote_master.h"
#include "tutti/cluster/task_services.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/cluster/in_process_network.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using testing::InProcessNetwork;

constexpr int64_t kPatience = 10'000'000'000;

// One task of a cluster.
struct Task {
  Task(InProcessNetwork& network, const std::string& job, int index,
       const std::vector<std::string>& tasks, uint64_t incarnation = 1) {
    const std::string name = "/job:" + job + "/task:" + std::to_string(index);
    peers = std::make_shared<Peers>(Peers::Options{
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

  std::shared_ptr<LocalWorker> worker;
  std::shared_ptr<Peers> peers;
  std::unique_ptr<TaskServices> services;
};

// A process that is no task.
struct Client {
  explicit Client(InProcessNetwork& network, const std::string& name = "client") {
    peers = std::make_shared<Peers>(
        Peers::Options{.self = {name, MakeRandomId()},
                       .fingerprint = {},
                       .pool = [this](std::string_view) -> MemoryPool& { return pool; }});
    peers->Start(network.Join(name, peers.get()), nullptr);
  }
  Session Connect(const Graph& graph, const std::string& task) const {
    return Session(graph, std::make_unique<RemoteMaster>(peers, task, kPatience, CompileOptions{}));
  }

  MemoryPool pool;
  std::shared_ptr<Peers> peers;
};

class ClusterTest : public ::testing::Test {
 protected:
  ClusterTest() { RegisterCpuKernels(); }
  ~ClusterTest() override {
    for (const auto* task : {&ps, &worker}) (*task)->peers->Stop(Unavailable("the test ends"));
    client.peers->Stop(Unavailable("the test ends"));
  }

  const std::vector<std::string> tasks = {"/job:ps/task:0", "/job:worker/task:0"};
  InProcessNetwork network;
  std::unique_ptr<Task> ps = std::make_unique<Task>(network, "ps", 0, tasks);
  std::unique_ptr<Task> worker = std::make_unique<Task>(network, "worker", 0, tasks);
  Client client{network};
};

TEST_F(ClusterTest, AGraphCutOverTwoTasks) {
  Graph graph;
  Output v;
  {
    DeviceScope on_ps(graph, "/job:ps/task:0");
    v = Variable(graph, Constant(Tensor::Of<float>({2}, {1, 2})), "v");
  }
  const Output x = Placeholder(graph, kFloat32, {2});
  const Output y = v * x;
  Session session = client.Connect(graph, "/job:worker/task:0");
  session.Initialize();
  EXPECT_EQ(session.Run({{x, Tensor::Of<float>({2}, {3, 4})}}, y).ToString(),
            "float32 [2] {3, 8}");
}

}  // namespace
}  // namespace tutti
