#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tutti/base/status.h"
#include "tutti/compile/partition.h"
#include "tutti/compile/pipeline.h"
#include "tutti/device/device_info.h"
#include "tutti/runtime/executor/step_trace.h"
#include "tutti/runtime/step_id.h"
#include "tutti/tensor/tensor.h"

// What a master and the tasks that run its steps say to each other. Every message owns what it
// holds and can be turned into bytes (message_codec.h); within a process it is moved, and nothing
// is copied or serialised. Tensors are references to their buffers.
namespace tutti {

// Up to four stand in the message itself, so that a small step allocates nothing for them.
using TensorList = absl::InlinedVector<Tensor, 4>;

// Parts of one compiled step, for devices of one worker.
struct RegisterRequest {
  uint64_t session = 0;
  std::vector<Partition> parts;
  CompileOptions options;
};

// One run of a registered step.
struct RunRequest {
  StepId id;
  uint64_t handle = 0;      // what Register gave
  int64_t random_step = 0;  // for random ops that are given no step
  bool trace = false;
  TensorList feeds;  // those of the registered parts, one part after the other
  // Work may be done on the calling thread: it has nothing else to do until the answer comes, or
  // the work is brief. Not sent: who receives a request decides.
  bool caller_waits = false;
};

struct RunResponse {
  absl::Status status;
  // Of a step that was ended from outside: what was not done, "; not done: ...", or nothing.
  std::string unfinished;
  TensorList results;                // those of the parts, one part after the other
  std::unique_ptr<StepTrace> trace;  // null unless asked for
};

// One task: it has devices and runs parts of steps on them. Asynchronous: each call returns at once
// or after doing the work, and `done` is called exactly once, on any thread, perhaps before the
// call returns. On a cluster a call is answered by another process. Thread-safe.
class Worker {
 public:
  using DevicesDone = std::function<void(absl::StatusOr<std::vector<DeviceInfo>>)>;
  using RegisterDone = std::function<void(absl::StatusOr<uint64_t>)>;
  using RunDone = std::function<void(RunResponse&&)>;
  virtual ~Worker() = default;

  virtual void ListDevices(DevicesDone done) = 0;

  // Optimises and plans the parts, prepares kernels and memory. Gives a handle.
  virtual void Register(RegisterRequest request, RegisterDone done) = 0;
  // Forgets a registered step. Runs of it that are under way go on.
  virtual void Deregister(uint64_t handle) = 0;

  // Takes what it needs out of the request.
  virtual void Run(RunRequest&& request, RunDone done) = 0;

  // Ends a step with `reason`, which is not OK: one that runs, or one whose Run has not come yet.
  virtual void Abort(const StepId& id, absl::Status reason) = 0;
  // Forgets what is left of a step that was aborted or failed elsewhere. No Run or Abort of it
  // comes any more.
  virtual void CleanUp(const StepId& id) = 0;
};

// The workers of a master, by task: "/job:worker/task:1".
using WorkersByTask = std::map<std::string, std::shared_ptr<Worker>>;

}  // namespace tutti
