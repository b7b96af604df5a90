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

// What lies in the planned memory of a device while the node runs at which most does: values by the
// names of the nodes that wrote them, the largest first, and "NAME (scratch)".
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
  // Where the session's steps are compiled, and where what nobody places runs: "" is this process
  // (or the task that `server` is), "tutti://host:port" the task of a cluster that listens there.
  // Nothing else changes: nodes may be placed on any task of the cluster.
  std::string target = {};
  // With a target: the cluster's token; empty: that of the variable TUTTI_JOB_TOKEN, if it is set.
  std::string token = {};
  double start_seconds = 60;  // for how long the target is tried: it may still be starting
  // Whose devices, variables and queues the session uses; null: a server of its own, made from the
  // options below, which must be left alone otherwise.
  Server* server = nullptr;
  // The task that this process is, as devices are named: /job:local/task:0/cpu:0 and so on.
  std::string job = "local";
  int task = 0;
  int devices = 1;  // in this process
  // 0: all cores, divided among the devices. At most the cores of this process, or 16.
  int cores_per_device = 0;
  // How this process takes part in collectives; null: it does not. Shared, since memory of steps
  // belongs to it.
  std::shared_ptr<collective::Communicator> communicator = nullptr;
  bool optimize = true;  // false: no passes but what correctness needs, for debugging
  // A node that asks for a device which is not there goes to the first device of the session's own
  // task, and the log says so, once; without it that is an error.
  bool soft_placement = false;
  // Who decides where nodes go that nobody places (docs/placement.md): "manual": the first device
  // of the session's own task; "greedy": each node where it would finish first; "search": the same,
  // then moves that make the predicted step shorter. With the last two, nodes may go to all tasks
  // of a cluster that answer, and a variable lives where the first step that was placed put it.
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
  // REQUIRES: no call is under way. `other` can only be destroyed then.
  Session(Session&& other) noexcept;

  // Gives every variable of the graph that has no value its first one.
  void Initialize();

  // Runs what `fetches` and `targets` need, with `feeds` in place of what they name, and returns
  // the fetched values. They are the caller's own: no later run changes them, and writing into them
  // changes no variable, constant or feed.
  std::vector<Tensor> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                          std::span<const Node* const> targets = {},
                          const RunOptions& options = {});

  // The same, spelled for the hand.
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

  // Why the nodes of a step are where they are, and what it is predicted to take: of the step that
  // was compiled last. With automatic placement on several devices it is the one whose runs took
  // longest, and what they took is told, too.
  PlacementReport Explain();

  // Ends all running steps with CANCELLED. Later calls of Run fail too.
  void Close();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
