#include "tutti/runtime/local_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <iterator>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/team.h"
#include "tutti/device/step_cleanup.h"
#include "tutti/runtime/executor.h"
#include "tutti/runtime/register.h"
#include "tutti/runtime/rendezvous.h"
#include "tutti/runtime/unfinished.h"

namespace tutti {

struct LocalWorker::Registered {
  struct Part {
    Device* device = nullptr;
    std::vector<int> feed_index;
    std::vector<int> fetch_index;
    std::unique_ptr<InstancePool> instances;
  };
  std::vector<Part> parts;
  bool has_collectives = false;
  CompileOptions options;
};

// Threads for the parts that the caller does not run itself. There are as many as parts ever ran at
// once: a part may wait for another, so it is never queued behind one.
class LocalWorker::LaneThreads {
 public:
  ~LaneThreads() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  // Throws when there is no thread to be had; the job is not run then.
  void Post(std::function<void()> job) {
    std::lock_guard lock(mutex_);
    if (idle_ < jobs_.size() + 1) threads_.emplace_back([this] { Loop(); });
    jobs_.push_back(std::move(job));
    changed_.notify_one();
  }

 private:
  void Loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ++idle_;
      changed_.wait(lock, [&] { return closed_ || !jobs_.empty(); });
      --idle_;
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  size_t idle_ = 0;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

LocalWorker::LocalWorker(const std::string& job, int task, int devices, int cores,
                         std::shared_ptr<collective::Communicator> communicator)
    : threads_(std::make_unique<LaneThreads>()) {
  RegisterRuntimeKernels();
  if (communicator != nullptr) {
    collectives_ = std::make_unique<Collectives>(std::move(communicator));
  }
  for (int i = 0; i < devices; ++i) {
    devices_.push_back(
        std::make_unique<Device>(fmt::format("/job:{}/task:{}/cpu:{}", job, task, i), cores));
    if (collectives_ != nullptr) devices_.back()->AddAllocator(collectives_->MakeAllocator());
  }
}

LocalWorker::~LocalWorker() = default;

std::vector<Device*> LocalWorker::devices() {
  std::vector<Device*> list;
  for (const auto& device : devices_) list.push_back(device.get());
  return list;
}

void LocalWorker::Register(RegisterRequest request, uint64_t* handle, Done done) {
  absl::Status status;
  try {
    status = DoRegister(std::move(request), handle);
  } catch (...) {
    status = StatusFromCurrentException();
  }
  done(std::move(status));
}

namespace {

bool HasCollectives(const StepPlan& plan) {
  return std::any_of(plan.nodes.begin(), plan.nodes.end(), [](const PlanNode& node) {
    const std::string& op = node.node->op();
    return op == "AllReduce" || op == "Broadcast" || op == "AllGather";
  });
}

}  // namespace

absl::Status LocalWorker::DoRegister(RegisterRequest request, uint64_t* handle) {
  auto registered = std::make_shared<Registered>();
  registered->options = request.options;
  for (Partition& part : request.parts) {
    TeamScope team(part.device->team());  // kernels are prepared for its cores
    TUTTI_ASSIGN_OR_RETURN(Program program,
                           OptimizePart(std::move(part.program), *part.device, request.options));
    TUTTI_ASSIGN_OR_RETURN(auto plan, MakeStepPlan(std::move(program), *part.device));
    registered->has_collectives = registered->has_collectives || HasCollectives(*plan);
    TUTTI_ASSIGN_OR_RETURN(auto instances, InstancePool::Make(std::move(plan)));
    registered->parts.push_back({part.device, std::move(part.feed_index),
                                 std::move(part.fetch_index), std::move(instances)});
  }
  std::lock_guard lock(mutex_);
  *handle = next_handle_++;
  registered_[*handle] = std::move(registered);
  return absl::OkStatus();
}

void LocalWorker::Deregister(uint64_t handle) {
  std::lock_guard lock(mutex_);
  registered_.erase(handle);
}

void LocalWorker::Run(const RunRequest& request, Done done) {
  std::shared_ptr<Registered> registered;
  {
    std::lock_guard lock(mutex_);
    const auto it = registered_.find(request.handle);
    if (it != registered_.end()) {
      registered = it->second;
      running_.emplace_back(request.step_id, request.cancellation);
    }
  }
  if (registered == nullptr) {
    done(NotFound("step {} runs a plan that is not registered (handle {})", request.step_id,
                  request.handle));
    return;
  }
  const int64_t start = request.trace != nullptr ? NowNanos() : 0;
  absl::Status status;
  try {
    status = RunParts(request, *registered);
    if (request.trace != nullptr) SortFromStart(start, request.trace->nodes);
  } catch (...) {
    status = StatusFromCurrentException();
  }
  Forget(request.step_id);
  done(status);
}

void LocalWorker::Forget(int64_t step_id) {
  std::lock_guard lock(mutex_);
  std::erase_if(running_, [&](const auto& entry) { return entry.first == step_id; });
}

namespace {

// A result is the client's, to keep and to write into. What the run computed for it has no other
// owner once the run has ended; a variable's value, a constant or a feed has, and is copied.
absl::Status MakeOwn(Tensor& result, Device& device) {
  if (!result.buffer() || result.buffer()->references() == 1) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(Tensor copy, device.pool().Allocate(result.dtype(), result.shape()));
  if (result.bytes() > 0) std::memcpy(copy.raw(), result.raw(), result.bytes());
  result = std::move(copy);
  return absl::OkStatus();
}

}  // namespace

// One run of all parts.
struct LocalWorker::Step {
  const RunRequest& request;
  CompileOptions options;
  Collectives* collectives = nullptr;  // null for a step without them
  Rendezvous rendezvous;
  UnfinishedNodes unfinished;
  StepCleanup cleanup;
  std::mutex mutex;
  std::condition_variable changed;
  size_t left = 0;  // parts that run on other threads

  // Runs on the caller's thread and on others, so nothing may be thrown.
  absl::Status RunPart(Registered::Part& part) {
    absl::Status status;
    try {
      status = TakeAndRun(part);
    } catch (...) {
      status = StatusFromCurrentException();
    }
    if (status.ok()) return status;
    if (!request.cancellation->cancelled()) unfinished.StepFailed();
    request.cancellation->Cancel(status);
    return status;
  }

 private:
  absl::Status TakeAndRun(Registered::Part& part) {
    TUTTI_ASSIGN_OR_RETURN(auto instance, part.instances->Take());
    const StepPlan& plan = instance->plan();
    for (size_t i = 0; i < plan.feeds.size(); ++i) {
      instance->slot(plan.feeds[i]) = *request.feeds[part.feed_index[i]];
    }
    StepContext context{.step_id = request.step_id,
                        .random_step = request.random_step,
                        .cancellation = request.cancellation,
                        .cleanup = &cleanup,
                        .device = part.device,
                        .rendezvous = &rendezvous,
                        .collectives = collectives};
    std::vector<NodeRecord> records;
    const absl::Status status = RunOnThisThread(
        *instance, context,
        {.unfinished = &unfinished,
         .options = options,
         .records = request.trace != nullptr ? &records : nullptr,
         .communicator = collectives == nullptr ? nullptr : &collectives->communicator()});
    if (status.ok()) {
      for (size_t i = 0; i < plan.fetches.size(); ++i) {
        request.results[part.fetch_index[i]] = instance->slot(plan.fetches[i]);
      }
    }
    if (request.trace != nullptr) {
      auto peak = RecordPeak(plan);
      std::lock_guard lock(mutex);
      request.trace->arena_bytes += int64_t(plan.arena_bytes());
      request.trace->peaks.push_back(std::move(peak));
      std::move(records.begin(), records.end(), std::back_inserter(request.trace->nodes));
    }
    instance->EndRun();
    part.instances->Return(std::move(instance));
    if (!status.ok()) return status;
    for (const int i : part.fetch_index) {
      TUTTI_RETURN_IF_ERROR(MakeOwn(request.results[i], *part.device));
    }
    return absl::OkStatus();
  }
};

absl::Status LocalWorker::RunParts(const RunRequest& request, Registered& registered) {
  std::unique_lock one_by_one(collective_steps_, std::defer_lock);
  if (registered.has_collectives) one_by_one.lock();
  Step step{.request = request,
            .options = registered.options,
            .collectives = registered.has_collectives ? collectives_.get() : nullptr};
  if (registered.parts.empty()) return absl::OkStatus();
  const absl::Status status = registered.parts.size() == 1 ? step.RunPart(registered.parts.front())
                                                           : RunAtOnce(step, registered);
  if (status.ok()) return status;
  step.cleanup.Undo();
  return absl::Status(status.code(),
                      fmt::format("{}{}", MessageOf(status), step.unfinished.ToString()));
}

// The first part on this thread, the others beside it.
absl::Status LocalWorker::RunAtOnce(Step& step, Registered& registered) {
  Cancellation& cancellation = *step.request.cancellation;
  const Cancellation::Handle on_cancel = cancellation.Register(
      [&step, &cancellation] { step.rendezvous.Abort(cancellation.status()); });
  step.left = registered.parts.size() - 1;
  size_t posted = 1;
  absl::Status status;
  try {
    for (; posted < registered.parts.size(); ++posted) {
      threads_->Post([&step, &part = registered.parts[posted]] {
        (void)step.RunPart(part);  // its error is in the cancellation
        std::lock_guard lock(step.mutex);
        --step.left;
        step.changed.notify_one();
      });
    }
    status = step.RunPart(registered.parts.front());
  } catch (...) {
    status = StatusFromCurrentException();
    cancellation.Cancel(status);
    std::lock_guard lock(step.mutex);
    step.left -= registered.parts.size() - posted;
  }
  {
    std::unique_lock lock(step.mutex);
    step.changed.wait(lock, [&] { return step.left == 0; });
  }
  cancellation.Deregister(on_cancel);
  // Every part of a cancelled step ends with the first cause.
  return cancellation.cancelled() ? cancellation.status() : status;
}

void LocalWorker::Abort(int64_t step_id, absl::Status reason) {
  std::lock_guard lock(mutex_);
  for (const auto& [id, cancellation] : running_) {
    if (id == step_id) cancellation->Cancel(reason);
  }
}

void LocalWorker::CleanUp(int64_t step_id) { Forget(step_id); }

}  // namespace tutti
