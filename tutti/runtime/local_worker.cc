#include "tutti/runtime/local_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <iterator>

#include "tutti/base/clock.h"
#include "tutti/base/team.h"
#include "tutti/device/step_cleanup.h"
#include "tutti/graph/find_within.h"
#include "tutti/graph/op_def.h"
#include "tutti/runtime/executor/executor.h"
#include "tutti/runtime/executor/unfinished.h"
#include "tutti/runtime/register.h"

namespace tutti {

struct LocalWorker::Registered {
  struct Part {
    Device* device = nullptr;
    size_t first_feed = 0;  // its feeds and fetches in the lists of a request and its response
    size_t first_fetch = 0;
    std::unique_ptr<InstancePool> instances;
  };
  std::vector<Part> parts;
  size_t feeds = 0;
  size_t fetches = 0;
  uint64_t session = 0;
  bool has_collectives = false;
  bool has_transfers = false;
  CompileOptions options;
};

LocalWorker::LocalWorker(LocalWorkerOptions options)
    : rendezvous_(std::move(options.make_rendezvous)) {
  RegisterRuntimeKernels();
  if (options.communicator != nullptr) {
    collectives_ = std::make_unique<Collectives>(std::move(options.communicator));
  }
  const uint64_t incarnation =
      options.incarnation != 0 ? options.incarnation : MakeRandomId();
  for (int i = 0; i < options.devices; ++i) {
    devices_.push_back(std::make_unique<Device>(
        fmt::format("/job:{}/task:{}/cpu:{}", options.job, options.task, i), options.cores,
        incarnation));
    if (collectives_ != nullptr) devices_.back()->AddAllocator(collectives_->MakeAllocator());
  }
}

LocalWorker::~LocalWorker() = default;

void LocalWorker::ListDevices(DevicesDone done) {
  std::vector<DeviceInfo> list;
  for (const auto& device : devices_) list.push_back(device->info());
  done(std::move(list));
}

Device* LocalWorker::FindDevice(const std::string& name) {
  for (const auto& device : devices_) {
    if (device->name() == name) return device.get();
  }
  return nullptr;
}

void LocalWorker::Register(RegisterRequest request, RegisterDone done) {
  absl::StatusOr<uint64_t> handle;
  try {
    handle = DoRegister(std::move(request));
  } catch (...) {
    handle = StatusFromCurrentException();
  }
  done(std::move(handle));
}

namespace {

// Does a node of the program have the trait, or one in the bodies of If and While, which are
// planned when they first run?
bool AnyIs(bool OpDef::*trait, const Program& program) {
  const auto& nodes = program.graph->nodes();
  return std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return FindWithin(*node, [&](const Node& n) { return n.def().*trait; }) != nullptr;
  });
}

}  // namespace

absl::StatusOr<uint64_t> LocalWorker::DoRegister(RegisterRequest request) {
  auto registered = std::make_shared<Registered>();
  registered->session = request.session;
  registered->options = request.options;
  for (Partition& part : request.parts) {
    Device* const device = FindDevice(part.device);
    if (device == nullptr) {
      return NotFound(
          "a part of the step is for device {}, which this task does not have; its "
          "first is {}",
          part.device, devices_.front()->name());
    }
    TeamScope team(device->team());  // kernels are prepared for its cores
    TUTTI_ASSIGN_OR_RETURN(Program program,
                           OptimizePart(std::move(part.program), *device, request.options));
    registered->has_collectives |= AnyIs(&OpDef::collective, program);
    registered->has_transfers |= AnyIs(&OpDef::transfer, program);
    TUTTI_ASSIGN_OR_RETURN(auto plan, MakeStepPlan(std::move(program), *device));
    const size_t feeds = plan->feeds.size(), fetches = plan->fetches.size();
    TUTTI_ASSIGN_OR_RETURN(auto instances, InstancePool::Make(std::move(plan)));
    registered->parts.push_back(
        {device, registered->feeds, registered->fetches, std::move(instances)});
    registered->feeds += feeds;
    registered->fetches += fetches;
  }
  std::lock_guard lock(mutex_);
  const uint64_t handle = next_handle_++;
  ++sessions_[request.session];
  registered_[handle] = std::move(registered);
  return handle;
}

void LocalWorker::Deregister(uint64_t handle) {
  std::shared_ptr<Registered> forgotten;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto it = registered_.find(handle);
  if (it == registered_.end()) return;
  forgotten = std::move(it->second);
  registered_.erase(it);
  const auto session = sessions_.find(forgotten->session);
  if (--session->second == 0) sessions_.erase(session);
}

bool LocalWorker::HasSession(uint64_t session) const {
  std::lock_guard lock(mutex_);
  return sessions_.contains(session);
}

MemoryPool& LocalWorker::PoolOf(std::string_view device) {
  for (const auto& candidate : devices_) {
    if (candidate->name() == device) return candidate->pool();
  }
  return devices_.front()->pool();
}

// A step in the list of those that Abort finds, for as long as it runs.
class LocalWorker::RunningStep {
 public:
  RunningStep(LocalWorker& worker, const RunRequest& request) : worker_(worker), id_(request.id) {
    std::lock_guard lock(worker_.mutex_);
    const auto found = worker_.registered_.find(request.handle);
    if (found != worker_.registered_.end()) registered_ = found->second;
    worker_.running_.emplace_back(id_, &cancellation_);
    for (const auto& [id, reason] : worker_.aborted_early_) {
      if (id == id_) cancellation_.Cancel(reason);
    }
  }
  ~RunningStep() {
    std::lock_guard lock(worker_.mutex_);
    std::erase_if(worker_.running_,
                  [&](const auto& entry) { return entry.second == &cancellation_; });
  }
  RunningStep(const RunningStep&) = delete;
  RunningStep& operator=(const RunningStep&) = delete;

  Cancellation& cancellation() { return cancellation_; }
  Registered* registered() { return registered_.get(); }

 private:
  LocalWorker& worker_;
  const StepId id_;
  std::shared_ptr<Registered> registered_;
  Cancellation cancellation_;
};

void LocalWorker::Run(RunRequest&& request, RunDone done) {
  RunResponse response;
  const int64_t start = request.trace ? NowNanos() : 0;
  try {
    RunParts(request, response);
    if (response.trace != nullptr) {
      response.trace->start_nanos = start;
      SortFromStart(start, response.trace->nodes);
    }
  } catch (...) {
    response.status = StatusFromCurrentException();
  }
  done(std::move(response));
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
  RunRequest& request;
  RunResponse& response;
  CompileOptions options;
  Cancellation& cancellation;
  Collectives* collectives = nullptr;                // null for a step without them
  std::shared_ptr<Rendezvous> rendezvous = nullptr;  // null for a step without Send and Recv
  UnfinishedNodes unfinished = {};
  StepCleanup cleanup = {};
  std::mutex mutex = {};
  std::condition_variable changed = {};
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
    if (!cancellation.cancelled()) unfinished.StepFailed();
    cancellation.Cancel(status);
    return status;
  }

 private:
  absl::Status TakeAndRun(Registered::Part& part) {
    TUTTI_ASSIGN_OR_RETURN(auto instance, part.instances->Take());
    const StepPlan& plan = instance->plan();
    for (size_t i = 0; i < plan.feeds.size(); ++i) {
      instance->slot(plan.feeds[i]) = std::move(request.feeds[part.first_feed + i]);
    }
    StepContext context{.random_step = request.random_step,
                        .cancellation = &cancellation,
                        .cleanup = &cleanup,
                        .device = part.device,
                        .rendezvous = rendezvous.get(),
                        .collectives = collectives};
    std::vector<NodeRecord> records;
    const absl::Status status = RunOnThisThread(
        *instance, context,
        {.unfinished = &unfinished,
         .options = options,
         .records = request.trace ? &records : nullptr,
         .communicator = collectives == nullptr ? nullptr : &collectives->communicator()});
    if (status.ok()) {
      for (size_t i = 0; i < plan.fetches.size(); ++i) {
        response.results[part.first_fetch + i] = instance->slot(plan.fetches[i]);
      }
    }
    if (request.trace) AddToTrace(plan, records);
    instance->EndRun();
    const size_t fetches = plan.fetches.size();
    part.instances->Return(std::move(instance));
    if (!status.ok()) return status;
    for (size_t i = 0; i < fetches; ++i) {
      TUTTI_RETURN_IF_ERROR(MakeOwn(response.results[part.first_fetch + i], *part.device));
    }
    return absl::OkStatus();
  }

  void AddToTrace(const StepPlan& plan, std::vector<NodeRecord>& records) {
    auto peak = RecordPeak(plan);
    std::lock_guard lock(mutex);
    StepTrace& trace = *response.trace;
    trace.arena_bytes += int64_t(plan.arena_bytes());
    trace.peaks.push_back(std::move(peak));
    std::move(records.begin(), records.end(), std::back_inserter(trace.nodes));
  }
};

void LocalWorker::RunParts(RunRequest& request, RunResponse& response) {
  RunningStep running(*this, request);
  Registered* const registered = running.registered();
  if (registered == nullptr) {
    response.status = NotFound("step {} runs a plan that is not registered (handle {})",
                               request.id.step, request.handle);
    return;
  }
  if (request.feeds.size() != registered->feeds) {
    response.status =
        InvalidArgument("step {} comes with {} feeds; its plan (handle {}) takes {}",
                        request.id.step, request.feeds.size(), request.handle, registered->feeds);
    return;
  }
  response.results.resize(registered->fetches);
  if (request.trace) response.trace = std::make_unique<StepTrace>();
  if (registered->parts.empty()) return;
  std::unique_lock one_by_one(collective_steps_, std::defer_lock);
  if (registered->has_collectives) one_by_one.lock();
  Step step{.request = request,
            .response = response,
            .options = registered->options,
            .cancellation = running.cancellation(),
            .collectives = registered->has_collectives ? collectives_.get() : nullptr};
  if (!registered->has_transfers && registered->parts.size() == 1) {
    response.status = step.RunPart(registered->parts.front());
  } else {
    response.status = RunAtOnce(step, *registered);
  }
  if (response.status.ok()) return;
  step.cleanup.Undo();
  response.unfinished = step.unfinished.ToString();
  response.results.clear();
}

// The first part on this thread, the others beside it.
absl::Status LocalWorker::RunAtOnce(Step& step, Registered& registered) {
  Cancellation& cancellation = step.cancellation;
  step.rendezvous = rendezvous_.FindOrMake(step.request.id);
  const Cancellation::Handle on_cancel = cancellation.Register(
      [&step, &cancellation] { step.rendezvous->Abort(cancellation.status()); });
  if (cancellation.cancelled()) step.rendezvous->Abort(cancellation.status());
  step.left = registered.parts.size() - 1;
  size_t posted = 1;
  absl::Status status;
  try {
    for (; posted < registered.parts.size(); ++posted) {
      threads_.Post([&step, &part = registered.parts[posted]] {
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
  rendezvous_.Remove(step.request.id, Cancelled("the step is over"));
  // Every part of a cancelled step ends with the first cause.
  return cancellation.cancelled() ? cancellation.status() : status;
}

void LocalWorker::Abort(const StepId& id, absl::Status reason) {
  std::lock_guard lock(mutex_);
  for (const auto& [running, cancellation] : running_) {
    if (running == id) {
      // Under the lock, so that the step does not end meanwhile.
      cancellation->Cancel(std::move(reason));
      return;
    }
  }
  aborted_early_.emplace_back(id, std::move(reason));
}

void LocalWorker::CleanUp(const StepId& id) {
  rendezvous_.Remove(id, Cancelled("the step is over"));
  std::lock_guard lock(mutex_);
  std::erase_if(aborted_early_, [&](const auto& entry) { return entry.first == id; });
}

void LocalWorker::Reset(const std::string& container) {
  for (const auto& device : devices_) {
    device->variables().Clear(container);
    device->resources().Clear(container);
  }
}

}  // namespace tutti
