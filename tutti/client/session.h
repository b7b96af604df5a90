#pragma once

#include <chrono>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "tutti/graph/graph.h"
#include "tutti/placement/report.h"

namespace tutti {

class Master;
class Server;
namespace collective {
class Communicator;
}

// One value for one placeholder (any output may be fed).
using Feed = std::pair<Output, Tensor>;

// What one node did in a traced run.
struct NodeTrace {
  std::string name;
  std::string op;
  std::string device;
  int64_t start_nanos = 0;  // since the start of the step
  int64_t end_nanos = 0;
  int64_t bytes = 0;          // of its outputs
  std::string transfer = {};  // of Send and Recv: the key under which they meet
};

// The peak of a device's planned memory: the node at which most bytes are in use, and what they
// hold, largest first: values, by the nodes that wrote them, and scratch, as "NAME (scratch)".
struct PeakTrace {
  struct Value {
    std::string name;
    int64_t bytes = 0;
  };
  std::string device;
  std::string node;
  std::vector<Value> values;
};

// The nodes of a traced run in the order in which they started. Nodes in the bodies of If and While
// stand there each time they ran, inside the time of their If or While.
struct RunTrace {
  std::vector<NodeTrace> nodes;
  int64_t arena_bytes = 0;       // planned memory of the step
  std::vector<PeakTrace> peaks;  // of each device, without the bodies of If and While
  // Writes Chrome trace JSON (chrome://tracing, Perfetto). Throws Error when the file cannot be
  // written.
  void WriteChromeTrace(const std::string& path) const;
};

struct RunOptions {
  std::chrono::nanoseconds timeout = std::chrono::nanoseconds(0);  // 0: none
  // Ends this run with CANCELLED when a stop is requested: std::stop_source::get_token().
  std::stop_token stop = {};
  bool trace = false;                // fill *trace_result, which must be given then
  RunTrace* trace_result = nullptr;  // left alone when the run fails
};

struct SessionOptions {
  // The master of the session: the process that compiles its steps, and on whose first device nodes
  // without a device run. "": this process, or the task of `server`. "tutti://host:port": the task
  // of a cluster that listens there. Nodes may ask for devices of any task of that cluster.
  std::string target = {};
  // With a target: the cluster's token; empty: that of the variable TUTTI_JOB_TOKEN, if it is set.
  std::string token = {};
  double start_seconds = 60;  // for how long the target is tried: it may still be starting
  // The server whose devices, variables and queues the session uses. Null: the session makes one
  // from the options below; with a server these options must keep their defaults.
  Server* server = nullptr;
  // The task that this process is, as devices are named: /job:local/task:0/cpu:0 and so on.
  std::string job = "local";
  int task = 0;
  int devices = 1;  // in this process
  // Cores of each device. 0: the cores of this process, divided evenly among the devices. Up to 16
  // are allowed even if the process has fewer cores; the threads then share cores.
  int cores_per_device = 0;
  // The communicator for collectives; null: the session runs none. Shared ownership, because
  // compiled steps hold memory that the communicator allocated.
  std::shared_ptr<collective::Communicator> communicator = nullptr;
  bool optimize = true;  // false: no passes but what correctness needs, for debugging
  // True: a node that requests a device that does not exist is placed on the first device of the
  // session's own task, and the log says so, once. False: such a request is an error.
  bool soft_placement = false;
  // How nodes without a device are placed (docs/placement.md). "manual": on the first device of the
  // session's own task. "greedy": each node on the device where the cost model predicts that it
  // finishes first. "search": greedy, then moves that shorten the predicted step. Greedy and search
  // use the devices of all tasks that answer; a variable stays on the device that the first placed
  // step gave it.
  std::string placement = "manual";
  // Bytes that automatic placement may give each device of this process; 0: those of the host.
  int64_t device_memory = 0;
};

// Runs parts of a graph. Several threads may call Run at once. The graph must outlive the session;
// nodes that are added later can be run too, but none may be added while a thread is in Run or
// Initialize, which read the graph. Every method throws Error, after which the session is as usable
// as before.
//
//   Session session(graph);
//   session.Initialize();
//   Tensor y = session.Run({{x, value}}, y_output);
class Session {
 public:
  explicit Session(const Graph& graph, const SessionOptions& options = {});
  // With a master of another kind than `options` can name.
  Session(const Graph& graph, std::unique_ptr<Master> master);
  // Ends all running steps with CANCELLED, and waits for them. No call may begin any more.
  ~Session();
  // REQUIRES: no call is running. Afterwards `other` can only be destroyed.
  Session(Session&& other) noexcept;

  // Gives every variable of the graph that has no value its first one.
  void Initialize();

  // Removes the variables and queues of a container (ContainerScope) on all tasks of the cluster at
  // options.target, or of options.server. Steps that have already run keep those that they use;
  // steps compiled later create new ones. Also throws Error if neither target nor server is given.
  //
  //   Session::Reset({.target = "tutti://host0:2222"}, "experiment");
  static void Reset(const SessionOptions& options, const std::string& container = "");

  // Runs what `fetches` and `targets` need, with `feeds` in place of what they name, and returns
  // the fetched values. They are the caller's own: no later run changes them, and writing into them
  // changes no variable, constant or feed.
  std::vector<Tensor> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                          std::span<const Node* const> targets = {},
                          const RunOptions& options = {});

  // The same with initializer lists.
  Tensor Run(std::initializer_list<Feed> feeds, Output fetch, const RunOptions& options = {});
  std::vector<Tensor> Run(std::initializer_list<Feed> feeds, std::initializer_list<Output> fetches,
                          std::initializer_list<const Node*> targets = {},
                          const RunOptions& options = {});
  Tensor Run(Output fetch, const RunOptions& options = {}) { return Run({}, fetch, options); }
  void RunTargets(std::initializer_list<Feed> feeds, std::initializer_list<const Node*> targets,
                  const RunOptions& options = {});
  // Without any allocation of its own: results go into `results`, one for each fetch.
  void RunInto(std::span<const Feed> feeds, std::span<const Output> fetches,
               std::span<const Node* const> targets, std::span<Tensor> results,
               const RunOptions& options = {});

  // The placement of a step, with the reason for each node and the predicted times. Describes the
  // step that was compiled last; where steps run on several devices, the one whose first runs took
  // longest, together with its measured time and, with automatic placement, that of each node. Runs
  // on one device are not measured.
  PlacementReport Explain();

  // Ends all running steps with CANCELLED. Later calls of Run fail too.
  void Close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
