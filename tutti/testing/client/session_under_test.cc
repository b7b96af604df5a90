#include "tutti/testing/client/session_under_test.h"

#include <cstdlib>
#include <string_view>

#include "tutti/cluster/server.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/testing/client/serializing_worker.h"

namespace tutti::testing {
namespace {

Session MakeSession(const Graph& graph, const SessionOptions& options) {
  if (!WorkerIsSerializing() || options.server != nullptr) return Session(graph, options);
  const Server server({.job = options.job,
                       .task = options.task,
                       .devices = options.devices,
                       .cores_per_device = options.cores_per_device,
                       .communicator = options.communicator});
  auto worker = std::make_shared<SerializingWorker>(server.worker(), std::random_device()(), true);
  return Session(graph, std::make_unique<LocalMaster>(
                            WorkersByTask{{server.task(), std::move(worker)}}, server.task(),
                            CompileOptions{.optimize = options.optimize,
                                           .soft_placement = options.soft_placement}));
}

}  // namespace

bool WorkerIsSerializing() {
  const char* const kind = std::getenv("TUTTI_TEST_WORKER");
  return kind != nullptr && std::string_view(kind) == "bytes";
}

SessionUnderTest::SessionUnderTest(const Graph& graph, const SessionOptions& options)
    : Session(MakeSession(graph, options)) {}

}  // namespace tutti::testing
