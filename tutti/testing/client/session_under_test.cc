#include "tutti/testing/client/session_under_test.h"

#include <cstdlib>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/cluster/server.h"
#include "tutti/cluster/target.h"
#include "tutti/launch/local_cluster.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/testing/client/serializing_worker.h"

namespace tutti::testing {
namespace {

std::string_view Kind() {
  const char* const kind = std::getenv("TUTTI_TEST_WORKER");
  return kind == nullptr ? "" : kind;
}

// The master at a task of a cluster that lives as long as the session.
class MasterWithCluster final : public Master {
 public:
  MasterWithCluster(std::unique_ptr<LocalCluster> cluster, std::unique_ptr<Master> master)
      : cluster_(std::move(cluster)), master_(std::move(master)) {}

  void Create(const Graph& graph, Done done) override { master_->Create(graph, std::move(done)); }
  void Extend(const Graph& graph, Done done) override { master_->Extend(graph, std::move(done)); }
  void Run(MasterRunRequest&& request, RunDone done) override {
    master_->Run(std::move(request), std::move(done));
  }
  void Abort(int64_t step, absl::Status reason) override { master_->Abort(step, reason); }
  void CleanUp(int64_t step) override { master_->CleanUp(step); }
  void Explain(ExplainDone done) override { master_->Explain(std::move(done)); }
  void Close(Done done) override { master_->Close(std::move(done)); }

 private:
  const std::unique_ptr<LocalCluster> cluster_;  // first: it ends last
  const std::unique_ptr<Master> master_;
};

Session MakeOnCluster(const Graph& graph, const SessionOptions& options) {
  auto cluster = std::make_unique<LocalCluster>(
      LocalClusterOptions{.program = TUTTI_PROGRAM,
                          .jobs = {{options.job, options.task + 1}, {"other", 1}},
                          .devices = options.devices,
                          .cores = options.cores_per_device});
  const std::string home = "/job:" + options.job + "/task:" + std::to_string(options.task);
  auto master = ValueOrThrow(
      MasterAtTarget({.target = cluster->target(home), .token = {}, .start_seconds = 20},
                     {.optimize = options.optimize,
                      .soft_placement = options.soft_placement,
                      .placement = ValueOrThrow(placement::ParseMethod(options.placement))}));
  return Session(graph, std::make_unique<MasterWithCluster>(std::move(cluster), std::move(master)));
}

Session MakeSession(const Graph& graph, const SessionOptions& options) {
  if (Kind().empty() || options.server != nullptr) return Session(graph, options);
  if (Kind() == "cluster") {
    // A mistake in these is found in this process.
    if (options.communicator != nullptr || options.devices < 1 || options.task != 0) {
      return Session(graph, options);
    }
    return MakeOnCluster(graph, options);
  }
  const Server server({.job = options.job,
                       .task = options.task,
                       .devices = options.devices,
                       .cores_per_device = options.cores_per_device,
                       .communicator = options.communicator});
  auto worker = std::make_shared<SerializingWorker>(server.worker(), std::random_device()(), true);
  return Session(
      graph,
      std::make_unique<LocalMaster>(
          WorkersByTask{{server.task(), std::move(worker)}}, server.task(),
          CompileOptions{.optimize = options.optimize,
                         .soft_placement = options.soft_placement,
                         .placement = ValueOrThrow(placement::ParseMethod(options.placement))}));
}

}  // namespace

bool WorkerIsSerializing() { return !Kind().empty(); }

SessionUnderTest::SessionUnderTest(const Graph& graph, const SessionOptions& options)
    : Session(MakeSession(graph, options)) {}

}  // namespace tutti::testing
