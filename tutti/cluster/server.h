#pragma once

#include <chrono>
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
  // Cores of each device. 0: an even share of the cores of this process; if it may use every core
  // of its host, they are first divided among the cluster's tasks on that host. Up to 16 are
  // allowed even if the process has fewer cores.
  int cores_per_device = 0;
  // One device on the cores of each NUMA node that this process may use, whatever `devices` and
  // `cores_per_device` say.
  bool device_per_numa_node = false;
  // Bytes that automatic placement may give each device, variables and values together; 0: those of
  // the host.
  int64_t device_memory = 0;
  // The communicator for collectives; null: the server runs none. Shared ownership, because
  // compiled steps hold memory that the communicator allocated.
  std::shared_ptr<collective::Communicator> communicator = nullptr;

  // A cluster ----------------------------------------------------------------------------------

  // Every task and the address that others use for it: job -> index -> "host:port". Jobs may have
  // any name. Empty: this process is alone and listens nowhere.
  std::map<std::string, std::map<int, std::string>> cluster = {};
  // Where to listen; empty: at the address that the cluster has for this task.
  std::string bind = {};
  // A secret that all tasks and clients share. A process that has it may run any graph. A task that
  // listens beyond its host requires one, unless `insecure` is set.
  std::string token = {};
  bool insecure = false;
  // Where the list of cluster members is kept. "none": nowhere. Empty: in the task
  // /job:chief/task:0 if it exists, else nowhere. A task ("/job:chief/task:0"): when that task
  // ends, this one ends too: Join returns if it ended normally and throws if it was lost; a second
  // process of a task is refused while the first lives. An etcd
  // ("etcd://host:2379,host:2379/NAME-OF-JOB"): Join returns when /job:chief/task:0, if it exists,
  // has ended normally; the chief may also be lost and restarted. User, password and TLS settings
  // of the etcd come from etcdctl's variables (docs/cluster.md).
  std::string coordinator = {};
  // This task ends when `leader` has ended normally, wherever the members are kept. Empty: with an
  // etcd, /job:chief/task:0 if it exists.
  std::string leader = {};
  // If the connection to a member breaks, this task reports the member as lost to all others at
  // once, without waiting for its lease to expire.
  bool reports_lost = false;
  // How long to retry a task that was never reached, because it may still be starting or its name
  // may not resolve yet. Also how long to retry resolving this task's own host name before
  // listening; `stopped` is polled meanwhile, and true ends the start with kCancelled.
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
// With a cluster it is one of its tasks: it listens at one port, runs parts of steps for the other
// tasks, and is the master of sessions that clients connect to it. Sessions that are attached to it
// use the devices of all tasks; nodes without a device run on this task.
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
  // Adds the same, by device: tutti_device_cloned_bytes_total and others of tutti_device_*; for a
  // task of a cluster also the requests and bytes of other tasks. They may outlive the server.
  void AddMetrics(MetricsRegistry& metrics) const;

  // Removes the variables and queues of a container. Steps that have already run keep those that
  // they use; steps compiled later create new ones.
  void Reset(const std::string& container = "");

  // Where it listens, "host:port"; "" without a cluster.
  std::string address() const;
  // Waits until Stop is called, or the coordinator or leader ends. Throws Error if that task is
  // lost, a member has failed, or this task is no longer a member.
  void Join();
  // The same, but waits at most `time`: false if none of this has happened.
  bool JoinFor(std::chrono::nanoseconds time);
  // Makes Join return. May be called on any thread, any number of times.
  void Stop();
  // With a coordinator: waits until all tasks of the cluster are there, at most `seconds`. Throws
  // Error that lists who is missing, and why.
  void AwaitTasks(double seconds);
  // The members of the cluster; null without a coordinator. Waits until this task has joined;
  // throws Error if it cannot join or ServerOptions::stopped ends the wait. The task leaves when
  // the server is destroyed.
  std::shared_ptr<net::Membership> membership() const;
  // The status of every task of the cluster. A task that does not answer has TaskStatus::error set.
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
