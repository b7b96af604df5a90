#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tutti/compile/program.h"
#include "tutti/device/device.h"
#include "tutti/runtime/deadlines.h"
#include "tutti/runtime/master.h"
#include "tutti/runtime/step_cache.h"

namespace tutti {

// The workers of a master, by task: "/job:worker/task:1".
using WorkersByTask = std::map<std::string, std::shared_ptr<Worker>>;

// A master in this process, for workers in this process and in others. Other tasks are asked for
// their devices when a step first names them, so that a task that nobody needs may be away.
// Compiled steps are kept by (feeds with dtype and shape, fetches, targets); of more than
// `most_steps`, those not used for longest go.
class LocalMaster final : public Master {
 public:
  // What nobody places goes to the first device of task `home`. REQUIRES: `workers` has it.
  LocalMaster(WorkersByTask workers, std::string home, CompileOptions options,
              size_t most_steps = 64);
  ~LocalMaster() override;  // cancels what runs, and waits for it

  void Create(const Graph& graph, Done done) override;
  void Extend(const Graph& graph, Done done) override;
  void Run(MasterRunRequest&& request, RunDone done) override;
  void Abort(int64_t step, absl::Status reason) override;
  void CleanUp(int64_t step) override;
  void Close(Done done) override;

 private:
  struct Step;       // a compiled step
  struct ActiveRun;  // a run from its request to its response

  // Lists the devices of a task, once. Safe to call from several runs at once.
  absl::Status ListDevices(const std::string& task);
  // Those that the program may use: of `home`, which come first, and of the tasks that its nodes
  // name.
  absl::StatusOr<std::vector<DeviceInfo>> DevicesFor(const Program& program);
  absl::Status CheckRequest(const MasterRunRequest& request) const;
  // The compiled step for a request, from the cache or made now. A run that was aborted gets none,
  // unless it was made already.
  absl::StatusOr<std::shared_ptr<Step>> FindStep(const MasterRunRequest& request,
                                                 const ActiveRun& run);
  absl::StatusOr<std::shared_ptr<Step>> Compile(const MasterRunRequest& request,
                                                const ActiveRun& run);
  absl::Status AbortedStatus(const ActiveRun& run);
  absl::Status Register(std::vector<Partition> parts, Step& step);
  void LogFallBack(const Node& node, const std::string& why);

  ActiveRun* Begin(int64_t step);
  absl::Status Prepare(ActiveRun& run, const MasterRunRequest& request);
  void Dispatch(ActiveRun& run, MasterRunRequest& request);
  void PartDone(ActiveRun& run, size_t part, RunResponse&& response);
  void End(ActiveRun& run, RunResponse&& response);
  void AbortRun(ActiveRun& run, const absl::Status& reason);
  void AbortAll(const absl::Status& reason);
  void Release(ActiveRun& run);

  const WorkersByTask workers_;
  const std::string home_;
  const CompileOptions options_;
  const uint64_t session_;
  Device folding_;  // whose kernels fold constants
  const Graph* graph_ = nullptr;
  std::mutex devices_mutex_;
  std::map<std::string, std::vector<DeviceInfo>> devices_;  // by task, of those that were needed
  StepCache<Step> steps_;
  Deadlines deadlines_;

  std::mutex mutex_;
  absl::Status closed_;              // not OK: why
  std::set<std::string> fell_back_;  // nodes whose wish for a device was not met, as was logged
  std::vector<std::unique_ptr<ActiveRun>> active_;
  std::map<int64_t, absl::Status> aborted_early_;  // by step: before their Run came
  std::vector<std::unique_ptr<ActiveRun>> idle_;   // kept for later runs
  std::condition_variable ended_;                  // active_ got empty
};

}  // namespace tutti
