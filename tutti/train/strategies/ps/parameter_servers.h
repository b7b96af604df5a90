#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/train/strategies/ps/queue_peers.h"
#include "tutti/train/strategies/strategy.h"

namespace tutti {

struct Launch;

// How a worker is, as the cluster knows it.
struct WorkerState {
  int rank = 0;
  std::string task;          // "/job:worker/task:1"
  uint64_t incarnation = 0;  // of its process
  std::string error;         // why it cannot be reached; empty: it can
};

// The parameter servers of a training, and the place of this worker among those that use them.
// Strategies know servers by the devices that hold variables; whether these belong to other tasks
// or to this process is the business of `connect`.
struct ParameterServers {
  std::vector<std::string> devices;  // of each ps, in their order
  int workers = 1;
  int rank = 0;                    // of this worker
  std::string worker_device = {};  // where it computes; empty: the session's first device
  // Fills in the options of a session that reaches all of `devices`.
  std::function<void(SessionOptions&)> connect;
  double start_timeout = 60;  // seconds for all workers to appear
  // How a worker is; may take its time. Not given: all share the fate of this process.
  std::function<WorkerState(int rank)> look = {};
};

struct ServerOptionsOfStrategy {
  int64_t split_bytes = int64_t{1} << 20;  // variables over it are split by rows
  std::string wire = "as-is";              // as-is, bfloat16 or float16: how gradients travel
  bool skip_bad = false;  // go on after a gradient that is not finite; it is never applied
};

// What all strategies with parameter servers have in common: variables are on the servers, the
// chief gives them their first values, and workers meet on the first server.
class ServersStrategy : public Strategy {
 public:
  ServersStrategy(ParameterServers servers, const ServerOptionsOfStrategy& options,
                  QueuePeers::Losses losses);
  // Waits for the other workers to end as well; then worker 0 tells the servers.
  ~ServersStrategy() override;

  std::vector<std::string> Devices() const override { return {servers_.worker_device}; }
  void Configure(SessionOptions& options) const override { servers_.connect(options); }
  std::unique_ptr<VariablePlacer> MakePlacer() const override;
  // Worker 0 gives variables their values, and the others wait for it.
  bool GivesValues() const override { return servers_.rank == 0; }
  void SynchronizeState(Graph& graph, Session& session) const override;

 protected:
  const ParameterServers& servers() const { return servers_; }
  const std::string& first_server() const { return servers_.devices.front(); }
  const ServerOptionsOfStrategy& options() const { return options_; }
  const std::shared_ptr<QueuePeers>& queue_peers() const { return queue_peers_; }

 private:
  ServersStrategy(ParameterServers servers, const ServerOptionsOfStrategy& options,
                  std::shared_ptr<QueuePeers> peers);

  const ParameterServers servers_;
  const ServerOptionsOfStrategy options_;
  const std::shared_ptr<QueuePeers> queue_peers_;
};

// `gradient`, which goes to `device` as `wire` says, in its own type there. Other types than
// float32 travel as they are.
Output OverWire(Output gradient, const std::string& wire, const std::string& device);

// Which gradients of the list have an element that is not finite.
struct GradientCheck {
  std::vector<std::string> names;  // of the variables
  Output finite;                   // bool, one for each name
  Output all;                      // float32: 1 if all are finite, else 0
};
GradientCheck CheckGradients(std::span<const GradientAndVariable> list);
// The first name that is not finite in a fetched `finite`; empty if all are.
std::string FirstBad(const GradientCheck& check, const Tensor& finite);

// Throws Error (kInvalidArgument) unless there is a server. `strategy` is its name.
void RequireServers(const ParameterServers& servers, std::string_view strategy);

}  // namespace tutti
