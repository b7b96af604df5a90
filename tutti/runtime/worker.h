#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/cancellation.h"
#include "tutti/base/status.h"
#include "tutti/compile/partition.h"
#include "tutti/compile/pipeline.h"
#include "tutti/runtime/step_trace.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// Parts of one compiled step, for the devices of one worker.
struct RegisterRequest {
  std::vector<Partition> parts;
  CompileOptions options;
};

// One run of a registered step. Feeds and results are those of the whole step, in the order of the
// request; a worker takes and sets those that belong to its parts. Everything pointed to lives
// until `done` is called.
struct RunRequest {
  uint64_t handle = 0;
  int64_t step_id = 0;
  int64_t random_step = 0;
  std::span<const Tensor* const> feeds;
  std::span<Tensor> results;
  Cancellation* cancellation = nullptr;
  StepTrace* trace = nullptr;  // null: not traced
};

// One task: it has devices and runs parts of steps on them. Asynchronous: each call returns at once
// or after doing the work, and `done` is called exactly once, from any thread. In one process the
// calls are function calls; on a cluster they are answered over the network. Thread-safe.
class Worker {
 public:
  using Done = std::function<void(absl::Status)>;
  virtual ~Worker() = default;

  virtual std::vector<Device*> devices() = 0;

  // Optimises and plans the parts, prepares kernels and memory, and sets *handle.
  virtual void Register(RegisterRequest request, uint64_t* handle, Done done) = 0;
  virtual void Deregister(uint64_t handle) = 0;

  virtual void Run(const RunRequest& request, Done done) = 0;

  // Ends a running step with `reason`, which is not OK.
  virtual void Abort(int64_t step_id, absl::Status reason) = 0;
  // Forgets what is left of a step.
  virtual void CleanUp(int64_t step_id) = 0;
};

}  // namespace tutti
