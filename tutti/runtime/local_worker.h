#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "tutti/runtime/collectives.h"
#include "tutti/runtime/worker.h"

namespace tutti {

// The worker of this process. The first part of a step runs on the calling thread, which is all of
// it when there is one device; the other parts run on threads that are kept for the next step.
class LocalWorker final : public Worker {
 public:
  // Devices "/job:<job>/task:<task>/cpu:0" and so on, with `cores` each. `communicator` may be
  // null; then steps have no collectives.
  LocalWorker(const std::string& job, int task, int devices, int cores,
              std::shared_ptr<collective::Communicator> communicator = nullptr);
  ~LocalWorker() override;

  std::vector<Device*> devices() override;
  void Register(RegisterRequest request, uint64_t* handle, Done done) override;
  void Deregister(uint64_t handle) override;
  void Run(const RunRequest& request, Done done) override;
  void Abort(int64_t step_id, absl::Status reason) override;
  void CleanUp(int64_t step_id) override;

 private:
  struct Registered;
  struct Step;
  class LaneThreads;

  absl::Status DoRegister(RegisterRequest request, uint64_t* handle);
  absl::Status RunParts(const RunRequest& request, Registered& registered);
  absl::Status RunAtOnce(Step& step, Registered& registered);
  void Forget(int64_t step_id);

  std::unique_ptr<Collectives> collectives_;
  std::mutex collective_steps_;  // steps with collectives run one after the other
  std::vector<std::unique_ptr<Device>> devices_;
  std::unique_ptr<LaneThreads> threads_;
  std::mutex mutex_;
  uint64_t next_handle_ = 1;
  std::unordered_map<uint64_t, std::shared_ptr<Registered>> registered_;
  std::vector<std::pair<int64_t, Cancellation*>> running_;  // step id, its cancellation
};

}  // namespace tutti
