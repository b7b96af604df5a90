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
namespace net {
class Membership;
}

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
  double late_seconds = 5;    // workers that are alive and late are warned about this often
  // Who is there and who has failed, as the coordination of the cluster tells; null for a worker
  // that is alone with servers in its own process. Workers by rank, and servers, by their tasks.
  std::shared_ptr<net::Membership> membership = nullptr;
  std::vector<std::string> worker_tasks = {};
  std::vector<std::string> server_tasks = {};
  // What a task has done so far: that of one of `devices`, by its number, or this worker's own
  // (-1). Not given: nobody knows.
  std::function<TaskLoad(int server)> load = {};
};

struct ServerOptionsOfStrategy {
  int64_t split_bytes = int64_t{1} << 20;  // variables over it are split by rows
  int64_t memory = 0;          // of a server, for variables and slots; 0: there is no limit
  std::string wire = "as-is";  // as-is, bfloat16 or float16: how gradients travel
  bool skip_bad = false;       // go on after a gradient that is not finite; it is never applied
};

// What all strategies with parameter servers have in common: variables are on the servers, the
// chief gives them their first values, and workers meet on the first server.
class ServersStrategy : public Strategy {
 public:
  ServersStrategy(ParameterServers servers, const ServerOptionsOfStrategy& options,
                  QueuePeers::Losses losses);
  // Waits for the other workers to end as well, and leaves the job; the servers end with worker 0.
  ~ServersStrategy() override;

  std::vector<std::string> Devices() const override { return {servers_.worker_device}; }
  void Configure(SessionOptions& options) const override { servers_.connect(options); }
  std::unique_ptr<VariablePlacer> MakePlacer() const override;
  // Worker 0 gives variables their values, and the others wait for it.
  bool GivesValues() const override { return servers_.rank == 0; }
  void SynchronizeState(Graph& graph, Session& session) const override;
  TaskLoad OwnLoad() const override { return servers_.load ? servers_.load(-1) : TaskLoad(); }
  std::vector<TaskLoad> ServerLoads() const override;

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

// Which gradients of the list have an element that is not finite as they travel: float16 cannot
// hold a number of 65520 or more, so a finite gradient may become infinite on the wire.
struct GradientCheck {
  std::vector<std::string> names;  // of the variables
  Output finite;                   // bool, one for each name
  Output all;                      // float32: 1 if all are finite, else 0
};
GradientCheck CheckGradients(std::span<const GradientAndVariable> list,
                             const std::string& wire = "as-is");
// The first name that is not finite in a fetched `finite`; empty if all are.
std::string FirstBad(const GradientCheck& check, const Tensor& finite);

// Throws Error (kInvalidArgument) unless there is a server. `strategy` is its name.
void RequireServers(const ParameterServers& servers, std::string_view strategy);

}  // namespace tutti
