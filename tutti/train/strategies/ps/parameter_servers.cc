#include "tutti/train/strategies/ps/parameter_servers.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/base/status.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/net/coordination/membership.h"
#include "tutti/train/strategies/ps/placer.h"

namespace tutti {

ServersStrategy::ServersStrategy(ParameterServers servers, const ServerOptionsOfStrategy& options,
                                 QueuePeers::Losses losses)
    : ServersStrategy(servers, options, std::make_shared<QueuePeers>(servers, losses)) {}

ServersStrategy::ServersStrategy(ParameterServers servers, const ServerOptionsOfStrategy& options,
                                 std::shared_ptr<QueuePeers> peers)
    : Strategy(peers),
      servers_(std::move(servers)),
      options_(options),
      queue_peers_(std::move(peers)) {}

ServersStrategy::~ServersStrategy() {
  // Once all have come here, a worker that is gone is no failure, and worker 0 is the judge of it.
  absl::Status failure = queue_peers_->FailureStatus();
  try {
    if (failure.ok()) queue_peers_->End();
  } catch (const Error& error) {
    if (servers_.rank == 0) failure = absl::Status(absl::StatusCode(error.code()), error.what());
  }
  if (servers_.membership == nullptr) return;
  if (!failure.ok()) servers_.membership->Fail(failure);
  servers_.membership->Leave();
}

std::unique_ptr<VariablePlacer> ServersStrategy::MakePlacer() const {
  return std::make_unique<ServerPlacer>(servers_.devices, options_.split_bytes, options_.memory);
}

void ServersStrategy::SynchronizeState(Graph& /*graph*/, Session& /*session*/) const {
  peers().Gather("initialised by worker 0", "");
}

std::vector<TaskLoad> ServersStrategy::ServerLoads() const {
  std::vector<TaskLoad> loads;
  if (!servers_.load) return loads;
  for (size_t i = 0; i < servers_.devices.size(); ++i) loads.push_back(servers_.load(int(i)));
  return loads;
}

Output OverWire(Output gradient, const std::string& wire, const std::string& device) {
  if (wire == "as-is" || gradient.dtype() != kFloat32) return gradient;
  Graph& graph = gradient.graph();
  Output narrow;
  {
    const DeviceScope worker(graph, gradient.node->device());
    narrow = Cast(gradient, wire == "bfloat16" ? kBFloat16 : kFloat16);
  }
  const DeviceScope server(graph, device);
  return Cast(narrow, kFloat32);
}

GradientCheck CheckGradients(std::span<const GradientAndVariable> list, const std::string& wire) {
  GradientCheck check;
  std::vector<Output> finite;
  for (const GradientAndVariable& entry : list) {
    if (entry.gradient.empty()) continue;
    Output values = entry.gradient.sparse() ? entry.gradient.rows : entry.gradient.dense;
    const DeviceScope device(values.graph(), values.node->device());
    values = OverWire(values, wire, values.node->device());
    finite.push_back(AllFinite(values));
    check.names.push_back(entry.variable.node->name());
  }
  check.finite = Pack(finite);
  check.all = Cast(All(check.finite), kFloat32);
  return check;
}

std::string FirstBad(const GradientCheck& check, const Tensor& finite) {
  for (size_t i = 0; i < check.names.size(); ++i) {
    if (!finite.data<bool>()[i]) return check.names[i];
  }
  return "";
}

void RequireServers(const ParameterServers& servers, std::string_view strategy) {
  if (!servers.devices.empty()) return;
  ThrowInvalidArgument(
      fmt::format("--strategy {} keeps its variables on tasks of job ps, and the cluster has none; "
                  "add them: tutti run --ps 1, or \"ps\" in the cluster of TF_CONFIG",
                  strategy));
}

}  // namespace tutti
