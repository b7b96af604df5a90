#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tutti/device/device_info.h"
#include "tutti/device/device_stats.h"

namespace tutti {

class LocalWorker;
class MetricsRegistry;
class Master;
struct CompileOptions;
struct TaskStatus;
namespace collective {
class Communicator;
}
namespace net {
class Membership;
}

struct ServerOptions {
  // The task that this process is, as devices are named: /job:local/task:0/cpu:0 and so on.
  std::string job = "local";
  int task = 0;
  int devices = 1;
  // 0: all cores, divided among the devices; where this process may use every core of its host,
  // among the tasks of the cluster on that host first. At most the cores of this process, or 16.
  int cores_per_device = 0;
  // Bytes that automatic placement may give each device, variables and values together; 0: those of
  // the host.
  int64_t device_memory = 0;
  // How this process takes part in collectives; null: it does not. Shared, since memory of steps
  // belongs to it.
  std::shared_ptr<collective::Communicator> communicator = nullptr;

  // A cluster ----------------------------------------------------------------------------------

  // Every task and the address that others use for it: job -> index -> "host:port". Jobs may have
  // any name. Empty: this process is alone and listens nowhere.
  std::map<std::string, std::map<int, std::string>> cluster = {};
  // Where to listen; empty: at the address that the cluster has for this task.
  std::string bind = {};
  // A secret that all tasks and clients share; whoever has it may run anything. A task that listens
  // beyond its host needs one, unless `insecure` says otherwise.
  std::string token = {};
  bool insecure = false;
  // Who keeps the members of the cluster; empty: nobody. A task, "/job:chief/task:0": its end ends
  // this one, so that Join returns when it ended in good order, and throws when it is lost. Or an
  // etcd, "etcd://host:2379,host:2379/name-of-the-job": Join returns when the task
  // /job:chief/task:0, if there is one, ended in good order; it may be lost and start anew.
  // User, password and TLS of the etcd are in the variables of etcdctl (docs/cluster.md).
  std::string coordinator = {};
  // For how long a task is tried that was never reached: it may still be starting, and its name may
  // not resolve yet. So is the name of this task's own host, before it listens; `stopped` is looked
  // at meanwhile, and true ends the start with an Error (kCancelled).
  double start_seconds = 60;
  std::function<bool()> stopped = nullptr;
};

// What a process has that outlives a session: devices with their variables and queues, the worker
// that runs steps on them, the table where Send and Recv meet, and the optional communicator.
// Sessions attach to it, any number at once, and share variables and queues by (container, name).
// A process may have several. Thread-safe.
//
//   Server server;
//   Session writer(graph, {.server = &server});
//   Session reader(other_graph, {.server = &server});
//
// With a cluster it is one of its tasks: it listens at one port, runs parts of steps for the other
// tasks, and is the master of sessions that clients connect to it. Sessions that are attached to it
// use the devices of all tasks; what nobody places goes to this one.
//
//   Server server({.job = "ps", .task = 0, .cluster = {{"ps", {{0, "host0:2222"}}}, ...}});
//   server.Join();
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
  // Adds the same, by device: tutti_device_cloned_bytes_total, tutti_device_variable_bytes and
  // tutti_device_pool_bytes. The devices live as long as the metrics.
  void AddMetrics(MetricsRegistry& metrics) const;

  // Forgets the variables and queues of a container. Steps that have run already keep those that
  // they use; steps that are compiled from here on make new ones.
  void Reset(const std::string& container = "");

  // Where it listens, "host:port"; "" without a cluster.
  std::string address() const;
  // Waits until Stop is called or the coordinator ends; throws Error when that is lost.
  void Join();
  // Makes Join return. May be called on any thread, any number of times.
  void Stop();
  // With a coordinator: waits until all tasks of the cluster are there, at most `seconds`. Throws
  // Error that lists who is missing, and why.
  void AwaitTasks(double seconds);
  // The members of the cluster, for barriers and the like (tutti/net/coordination/gathering.h);
  // null without a coordinator. Waits until this task is one of them, or throws why it is not. Let
  // go of it before the server ends: the last who does so tells the others that the task left.
  std::shared_ptr<net::Membership> membership() const;
  // What the tasks of the cluster tell of themselves, those that do not answer included.
  std::vector<TaskStatus> ClusterStatus() const;
  // The same of one task, "/job:ps/task:0". REQUIRES: there is a cluster.
  TaskStatus StatusOf(const std::string& task) const;

  // What runs the steps of a session that is attached.
  std::unique_ptr<Master> MakeMaster(const CompileOptions& options) const;
  std::shared_ptr<LocalWorker> worker() const { return worker_; }

 private:
  struct Waiting;
  struct Member;  // of a cluster
  std::string task_;
  std::unique_ptr<Waiting> waiting_;
  std::shared_ptr<LocalWorker> worker_;
  std::unique_ptr<Member> member_;  // null without a cluster; last: it uses the others
};

}  // namespace tutti
