#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/device/device_info.h"
#include "tutti/device/device_stats.h"

namespace tutti {

class LocalWorker;
class Worker;
namespace collective {
class Communicator;
}

struct ServerOptions {
  // The task that this process is, as devices are named: /job:local/task:0/cpu:0 and so on.
  std::string job = "local";
  int task = 0;
  int devices = 1;
  // 0: all cores, divided among the devices. At most the cores of this process, or 16.
  int cores_per_device = 0;
  // How this process takes part in collectives; null: it does not. Shared, since memory of steps
  // belongs to it.
  std::shared_ptr<collective::Communicator> communicator = nullptr;
};

// What a process has that outlives a session: devices with their variables and queues, the worker
// that runs steps on them, the table where Send and Recv meet, and the optional communicator.
// Sessions attach to it, any number at once, and share variables and queues by (container, name).
// A process may have several. Thread-safe.
//
//   Server server;
//   Session writer(graph, {.server = &server});
//   Session reader(other_graph, {.server = &server});
class Server {
 public:
  // Throws Error when the options make no sense.
  explicit Server(const ServerOptions& options = {});
  ~Server();  // sessions that are attached keep what they use
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  const std::string& task() const { return task_; }  // "/job:local/task:0"
  std::vector<DeviceInfo> devices() const;
  std::vector<DeviceStats> stats() const;  // by device

  // Forgets the variables and queues of a container. Steps that have run already keep those that
  // they use; steps that are compiled from here on make new ones.
  void Reset(const std::string& container = "");

  // What sessions give their steps to.
  std::shared_ptr<Worker> worker() const;

 private:
  std::string task_;
  std::shared_ptr<LocalWorker> worker_;
};

}  // namespace tutti
