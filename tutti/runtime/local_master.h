#pragma once

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/runtime/deadlines.h"
#include "tutti/runtime/master.h"
#include "tutti/runtime/master_steps.h"

namespace tutti {

// A master in this process, for workers in this process and in others. Other tasks are asked for
// their devices when a step first names them, so that a task that nobody needs may be away. What it
// compiled is kept (master_steps.h); this class leads runs from request to response.
class LocalMaster final : public Master {
 public:
  static constexpr size_t kMostSteps = 64;

  // What nobody places goes to the first device of task `home`, unless the options leave it to the
  // cost model; `homes` is that of MasterSteps. REQUIRES: `workers` has `home`.
  LocalMaster(WorkersByTask workers, std::string home, CompileOptions options,
              size_t most_steps = kMostSteps,
              std::shared_ptr<placement::StateHomes> homes = nullptr);
  ~LocalMaster() override;  // cancels what runs, and waits for it

  void Create(const Graph& graph, Done done) override;
  void Extend(const Graph& graph, Done done) override;
  void Run(MasterRunRequest&& request, RunDone done) override;
  void Abort(int64_t step, absl::Status reason) override;
  void CleanUp(int64_t step) override;
  void Explain(ExplainDone done) override;
  void Close(Done done) override;

 private:
  struct ActiveRun;  // a run from its request to its response

  ActiveRun* Begin(int64_t step);
  absl::Status Prepare(ActiveRun& run, const MasterRunRequest& request);
  void Dispatch(ActiveRun& run, MasterRunRequest& request);
  void PartDone(ActiveRun& run, size_t part, RunResponse&& response);
  void End(ActiveRun& run, RunResponse&& response);
  void AbortRun(ActiveRun& run, const absl::Status& reason);
  void AbortAll(const absl::Status& reason);
  void Release(ActiveRun& run);

  MasterSteps steps_;
  Deadlines deadlines_;

  std::mutex mutex_;
  absl::Status closed_;  // not OK: why
  std::vector<std::unique_ptr<ActiveRun>> active_;
  std::map<int64_t, absl::Status> aborted_early_;  // by step: before their Run came
  std::vector<std::unique_ptr<ActiveRun>> idle_;   // kept for later runs
  std::condition_variable ended_;                  // active_ got empty
};

}  // namespace tutti
