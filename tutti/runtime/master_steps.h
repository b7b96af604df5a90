#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tutti/compile/program.h"
#include "tutti/device/device.h"
#include "tutti/runtime/master.h"
#include "tutti/runtime/measure/link_probe.h"
#include "tutti/runtime/measure/measured_step.h"
#include "tutti/runtime/place_step.h"
#include "tutti/runtime/step_cache.h"

namespace tutti {

// A compiled step, registered with the workers that take part. Deregisters itself when the last run
// of an evicted step ends; the workers must still be there.
struct MasterStep {
  struct Part {
    Worker* worker = nullptr;
    uint64_t handle = 0;
    std::vector<int> feed_index;  // of its feeds in the lists of the whole step
    std::vector<int> fetch_index;
    bool takes_all_feeds = false;  // in order
    bool gives_all_fetches = false;
  };
  std::vector<Part> parts;                 // one a worker
  std::unique_ptr<MeasuredStep> measured;  // null: nobody asks how long it takes
  StepRequest request;                     // what it was compiled from, if it is measured

  MasterStep() = default;
  ~MasterStep();
  MasterStep(const MasterStep&) = delete;
  MasterStep& operator=(const MasterStep&) = delete;
};

// The compiled steps of a session, by (feeds with dtype and shape, fetches, targets): compiles a
// step when it is first requested, and registers its parts with their workers. Beyond `most_steps`,
// the least recently used are evicted. Owns the workers. Thread-safe, except for SetGraph, which
// comes first.
class MasterSteps {
 public:
  // What nobody places goes to the first device of task `home`, unless the options leave it to the
  // cost model. `homes`: where state lives that nobody places; null: this session decides alone.
  // REQUIRES: `workers` has `home`.
  MasterSteps(WorkersByTask workers, std::string home, CompileOptions options, size_t most_steps,
              std::shared_ptr<placement::StateHomes> homes);

  // The graph outlives this object. Lists the devices of `home`.
  absl::Status SetGraph(const Graph& graph);
  const Graph* graph() const { return graph_; }
  uint64_t session() const { return session_; }

  // Every node and output that the request names exists. A request may come from outside.
  absl::Status CheckRequest(const MasterRunRequest& request) const;
  // Tells why the run that asks must end, or OK.
  using AbortCheck = std::function<absl::Status()>;
  // The step for a request that was checked, from the cache or made by this call. A run that was
  // aborted gets none, unless it was made already.
  absl::StatusOr<std::shared_ptr<MasterStep>> Find(const MasterRunRequest& request,
                                                   const AbortCheck& aborted);
  // Why nodes are where they are: of the step that takes longest, of those that were measured; else
  // of the one that was compiled last.
  absl::StatusOr<std::string> Explain();

 private:
  // Lists the devices of a task, once. Safe to call from several runs at once.
  absl::Status ListDevices(const std::string& task);
  // Those that the program may use: of `home`, which come first, and of the tasks that its nodes
  // name.
  absl::StatusOr<std::vector<DeviceInfo>> DevicesFor(const Program& program);
  // Those of all tasks that answer: what the cost model chooses from.
  absl::StatusOr<std::vector<DeviceInfo>> AllDevices();
  // What the cost model is told of them: this process's speed, and links between tasks, which are
  // measured when a step first has a choice of several.
  placement::Machines MachinesOf(const std::vector<DeviceInfo>& devices);
  // Those of `needed`, with `home` first.
  std::vector<DeviceInfo> DevicesOf(const std::set<std::string>& needed);
  // With `before`, a step that has been measured: the same step, placed anew, or null if that would
  // not be worth it.
  absl::StatusOr<std::shared_ptr<MasterStep>> Compile(const MasterRunRequest& request,
                                                      const AbortCheck& aborted,
                                                      const MasterStep* before = nullptr);
  absl::Status Register(std::vector<Partition> parts, MasterStep& step);
  void LogFallBack(const Node& node, const std::string& why);

  const WorkersByTask workers_;
  const std::string home_;
  const CompileOptions options_;
  const uint64_t session_;
  Device folding_;  // whose kernels fold constants
  StepPlacer placer_;
  const Graph* graph_ = nullptr;
  std::mutex mutex_;
  StepRequest last_;                                        // what was compiled last
  std::vector<std::weak_ptr<MasterStep>> measured_;         // steps that are measured
  std::map<std::string, std::vector<DeviceInfo>> devices_;  // by task, of those that were needed
  std::set<std::string> away_;  // tasks that did not answer when the cost model asked for devices
  std::mutex probing_;
  TaskLinks links_;                  // guarded by probing_: those that were measured
  std::set<std::string> fell_back_;  // nodes whose wish for a device was not met, as was logged
  StepCache<MasterStep> steps_;      // its steps go before the workers
};

}  // namespace tutti
