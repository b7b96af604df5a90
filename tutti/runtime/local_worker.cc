#include "tutti/runtime/local_worker.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <optional>

#include "tutti/base/awaited.h"
#include "tutti/base/team.h"
#include "tutti/graph/find_within.h"
#include "tutti/graph/op_def.h"
#include "tutti/runtime/executor/brief_step.h"
#include "tutti/runtime/executor/executor.h"
#include "tutti/runtime/register.h"

namespace tutti {

LocalWorker::LocalWorker(LocalWorkerOptions options)
    : rendezvous_(std::move(options.make_rendezvous)),
      patience_(options.crowded ? Patience{.spin_nanos = 0, .yield_nanos = 0} : Patience{}),
      device_memory_(options.device_memory) {
  RegisterRuntimeKernels();
  if (options.communicator != nullptr) {
    collectives_ = std::make_unique<Collectives>(std::move(options.communicator));
  }
  const uint64_t incarnation = options.incarnation != 0 ? options.incarnation : MakeRandomId();
  for (int i = 0; i < options.devices; ++i) {
    std::vector<int> pinned;
    if (!options.pinned.empty()) pinned = std::move(options.pinned[size_t(i)]);
    devices_.push_back(std::make_unique<Device>(
        fmt::format("/job:{}/task:{}/cpu:{}", options.job, options.task, i),
        pinned.empty() ? options.cores : int(pinned.size()), incarnation));
    Device& device = *devices_.back();
    if (collectives_ != nullptr) device.AddAllocator(collectives_->MakeAllocator());
    lanes_.push_back(std::make_unique<DeviceLane>(DeviceLaneOptions{
        .device = device.name(),
        .team = device.team(),
        .cores = std::move(pinned),
        .communicator = collectives_ == nullptr ? nullptr : &collectives_->communicator(),
        .busy_nanos = device.busy_nanos(),
        .crowded = options.crowded}));
  }
}

LocalWorker::~LocalWorker() = default;

void LocalWorker::ListDevices(DevicesDone done) {
  std::vector<DeviceInfo> list;
  for (const auto& device : devices_) {
    list.push_back(device->info());
    if (device_memory_ == 0) continue;
    list.back().memory_bytes = device_memory_;
    list.back().limited = true;
  }
  done(std::move(list));
}

absl::StatusOr<size_t> LocalWorker::FindDevice(const std::string& name) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (devices_[i]->name() == name) return i;
  }
  return NotFound(
      "a part of the step is for device {}, which this task does not have; its "
      "first is {}",
      name, devices_.front()->name());
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
  auto registered = std::make_shared<RegisteredStep>();
  registered->session = request.session;
  registered->options = request.options;
  for (Partition& part : request.parts) {
    TUTTI_ASSIGN_OR_RETURN(const size_t index, FindDevice(part.device));
    Device& device = *devices_[index];
    TeamScope team(device.team());  // kernels are prepared for its cores
    TUTTI_ASSIGN_OR_RETURN(Program program,
                           OptimizePart(std::move(part.program), device, request.options));
    RegisteredStep::Part& added = registered->parts.emplace_back();
    added.device = &device;
    added.lane = lanes_[index].get();
    added.first_feed = registered->feeds;
    added.first_fetch = registered->fetches;
    added.has_collectives = AnyIs(&OpDef::collective, program);
    registered->has_collectives |= added.has_collectives;
    registered->has_transfers |= AnyIs(&OpDef::transfer, program);
    registered->brief = request.parts.size() == 1 && IsBrief(program);
    TUTTI_ASSIGN_OR_RETURN(auto plan, MakeStepPlan(std::move(program), device));
    registered->feeds += plan->feeds.size();
    registered->fetches += plan->fetches.size();
    TUTTI_ASSIGN_OR_RETURN(added.instances, InstancePool::Make(std::move(plan)));
  }
  std::lock_guard lock(mutex_);
  const uint64_t handle = next_handle_++;
  ++sessions_[request.session];
  registered_[handle] = std::move(registered);
  return handle;
}

void LocalWorker::Deregister(uint64_t handle) {
  std::shared_ptr<RegisteredStep> forgotten;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto it = registered_.find(handle);
  if (it == registered_.end()) return;
  forgotten = std::move(it->second);
  registered_.erase(it);
  const auto session = sessions_.find(forgotten->session);
  if (--session->second == 0) sessions_.erase(session);
}

bool LocalWorker::RunsBriefly(uint64_t handle) const {
  std::lock_guard lock(mutex_);
  const auto it = registered_.find(handle);
  return it != registered_.end() && it->second->brief;
}

bool LocalWorker::HasSession(uint64_t session) const {
  std::lock_guard lock(mutex_);
  return sessions_.contains(session);
}

void LocalWorker::SetMemorySource(const MemoryPool::Source& source, size_t least) {
  for (const auto& device : devices_) device->pool().SetSource(source, least);
}

MemoryPool& LocalWorker::PoolOf(std::string_view device) {
  for (const auto& candidate : devices_) {
    if (candidate->name() == device) return candidate->pool();
  }
  return devices_.front()->pool();
}

namespace {

// The answer of a step that was aborted while it waited for its turn.
void SetWithdrawn(const Cancellation& cancellation, RunResponse& response) {
  response.status = cancellation.status();
  response.unfinished =
      "; not begun: it waited for the end of an earlier step with collectives on this task";
}

}  // namespace

// A step in the list of those that Abort finds, for as long as it runs.
class LocalWorker::RunningStep {
 public:
  // `aborted`: not OK if an Abort has come already.
  RunningStep(LocalWorker& worker, const RunRequest& request, const absl::Status& aborted)
      : worker_(worker), id_(request.id) {
    std::lock_guard lock(worker_.mutex_);
    const auto found = worker_.registered_.find(request.handle);
    if (found != worker_.registered_.end()) registered_ = found->second;
    if (!aborted.ok()) cancellation_.Cancel(aborted);
    for (const auto& [id, reason] : worker_.aborted_early_) {
      if (id == id_) cancellation_.Cancel(reason);
    }
    worker_.running_.emplace_back(id_, &cancellation_);  // last: it may throw
  }
  ~RunningStep() { (void)Withdraw(); }
  RunningStep(const RunningStep&) = delete;
  RunningStep& operator=(const RunningStep&) = delete;

  // Takes it out of the list. Not OK: an Abort came before that.
  absl::Status Withdraw() {
    std::lock_guard lock(worker_.mutex_);
    std::erase_if(worker_.running_,
                  [&](const auto& entry) { return entry.second == &cancellation_; });
    return cancellation_.status();
  }

  const StepId& id() const { return id_; }
  Cancellation& cancellation() { return cancellation_; }
  RegisteredStep* registered() { return registered_.get(); }

 private:
  LocalWorker& worker_;
  const StepId id_;
  std::shared_ptr<RegisteredStep> registered_;
  Cancellation cancellation_;
};

// A step whose parts run on lanes, and perhaps the first of them on its caller's thread. Owns
// itself: whoever ends the last part answers and destroys it.
class LocalWorker::PostedStep {
 public:
  // Takes `done`, unless it throws.
  PostedStep(LocalWorker& worker, RunRequest&& request, RunDone& done, const absl::Status& aborted)
      : worker_(worker), request_(std::move(request)), running_(worker, request_, aborted) {
    done_ = std::move(done);
  }

  // Runs it; the object may be gone when this returns.
  void Start() {
    try {
      response_.status = Check(request_, running_.registered());
      if (response_.status.ok() && registered().has_collectives) {
        if (!request_.caller_waits) {
          worker_.collective_steps_.Enter(running_.cancellation(),
                                          [this](bool has_turn) { BeginInTurn(has_turn); });
          return;
        }
        has_turn_ = worker_.AwaitTurn(running_.cancellation(), response_);
      }
    } catch (...) {
      response_.status = StatusFromCurrentException();
    }
    if (response_.status.ok()) {
      Begin();
    } else {
      Answer();
    }
  }

 private:
  // A part on its lane.
  class LanePart final : public LaneJob {
   public:
    LanePart(PostedStep& posted, WorkerStep& step, RegisteredStep::Part& part)
        : posted_(posted), device_lane_(*part.lane), part_run_(step, part) {}

    absl::Status Post() {
      try {
        return device_lane_.Post(this);
      } catch (...) {
        return StatusFromCurrentException();
      }
    }

    void RunOnLane() override {
      absl::Status status;
      try {
        status = part_run_.Begin();
        if (status.ok()) {
          Run();
          return;
        }
      } catch (...) {
        status = StatusFromCurrentException();
      }
      posted_.PartEnded(std::move(status));
    }

   private:
    void Run() {
      const RunSetup setup = part_run_.Setup();
      Lane& lane = device_lane_.lane();
      run_.emplace(part_run_.instance(), lane, part_run_.context());
      run_->records = setup.records;
      run_->options = setup.options;
      run_->unfinished = setup.unfinished;
      if (setup.communicator != nullptr) lane.BeginCollectives();
      run_->Start([this] { Ended(); });
    }
    void Ended() {
      if (part_run_.communicator() != nullptr) device_lane_.lane().EndCollectives();
      absl::Status status;
      try {
        status = part_run_.End(run_->status());
      } catch (...) {
        status = StatusFromCurrentException();
      }
      posted_.PartEnded(std::move(status));
    }

    PostedStep& posted_;
    DeviceLane& device_lane_;
    PartRun part_run_;
    std::optional<StepRun> run_;
  };

  RegisteredStep& registered() { return *running_.registered(); }

  void BeginInTurn(bool has_turn) {
    has_turn_ = has_turn;
    if (has_turn) {
      Begin();
      return;
    }
    SetWithdrawn(running_.cancellation(), response_);
    Answer();
  }

  void Begin() {
    try {
      Prepare();
    } catch (...) {
      response_.status = StatusFromCurrentException();
      Answer();
      return;
    }
    for (LanePart& part : lane_parts_) {
      if (absl::Status status = part.Post(); !status.ok()) PartEnded(std::move(status));
    }
    if (first_here_) {
      RegisteredStep::Part& first = registered().parts[0];
      if (!lane_parts_.empty()) first.lane->BringCaller();
      PartEnded(step_->RunHere(first, worker_.patience_));
    }
    PartEnded(absl::OkStatus());
  }

  void Prepare() {
    std::vector<RegisteredStep::Part>& parts = registered().parts;
    Cancellation& cancellation = running_.cancellation();
    if (registered().has_transfers) {
      rendezvous_ = worker_.rendezvous_.FindOrMake(running_.id());
      on_cancel_ = cancellation.Register(
          [this, &cancellation] { rendezvous_->Abort(cancellation.status()); });
      if (cancellation.cancelled()) rendezvous_->Abort(cancellation.status());
    }
    step_.emplace(registered(), request_, response_, cancellation,
                  registered().has_collectives ? worker_.collectives_.get() : nullptr,
                  rendezvous_.get());
    // One more than there are parts, so that the step lives until all are posted.
    left_.store(parts.size() + 1, std::memory_order_relaxed);
    first_here_ = request_.caller_waits && !parts.empty() && !parts[0].lane->working();
    for (size_t i = first_here_ ? 1 : 0; i < parts.size(); ++i) {
      lane_parts_.emplace_back(*this, *step_, parts[i]);
    }
  }

  void PartEnded(absl::Status status) {
    if (!status.ok()) {
      failed_.store(true, std::memory_order_relaxed);
      step_->Failed(status);
    }
    if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) Finish();
  }

  void Finish() {
    try {
      // Every part of a cancelled step ends with the first cause.
      step_->Finish(failed_.load(std::memory_order_relaxed) ? running_.cancellation().status()
                                                            : absl::OkStatus());
    } catch (...) {
      response_.status = StatusFromCurrentException();
    }
    Answer();
  }

  void Answer() {
    if (rendezvous_ != nullptr) {
      running_.cancellation().Deregister(on_cancel_);
      worker_.rendezvous_.Remove(running_.id(), Cancelled("the step is over"));
    }
    if (has_turn_) worker_.collective_steps_.Leave();
    RunResponse response = std::move(response_);
    const RunDone done = std::move(done_);
    delete this;
    done(std::move(response));
  }

  LocalWorker& worker_;
  RunRequest request_;
  RunResponse response_;
  RunDone done_;
  RunningStep running_;
  std::shared_ptr<Rendezvous> rendezvous_;
  Cancellation::Handle on_cancel_ = Cancellation::kNone;
  std::optional<WorkerStep> step_;
  bool first_here_ = false;  // the first part runs on the caller's thread
  bool has_turn_ = false;    // of the steps with collectives
  std::deque<LanePart> lane_parts_;
  std::atomic<size_t> left_{0};
  std::atomic<bool> failed_{false};
};

absl::Status LocalWorker::Check(const RunRequest& request, const RegisteredStep* registered) {
  if (registered == nullptr) {
    return NotFound("step {} runs a plan that is not registered (handle {})", request.id.step,
                    request.handle);
  }
  if (request.feeds.size() != registered->feeds) {
    return InvalidArgument("step {} comes with {} feeds; its plan (handle {}) takes {}",
                           request.id.step, request.feeds.size(), request.handle,
                           registered->feeds);
  }
  return absl::OkStatus();
}

void LocalWorker::Run(RunRequest&& request, RunDone done) {
  RunResponse response;
  PostedStep* posted = nullptr;
  try {
    absl::Status aborted;
    if (!request.caller_waits || !RunOnCaller(request, response, aborted)) {
      posted = new PostedStep(*this, std::move(request), done, aborted);
    }
  } catch (...) {
    response.status = StatusFromCurrentException();
  }
  if (posted != nullptr) {
    posted->Start();
  } else {
    done(std::move(response));
  }
}

// Runs a step of one part without transfers on the calling thread. False, and nothing is done, if
// the step is of another kind or its lane is at work; *aborted then tells whether an Abort came.
bool LocalWorker::RunOnCaller(RunRequest& request, RunResponse& response, absl::Status& aborted) {
  RunningStep running(*this, request, absl::OkStatus());
  RegisteredStep* const registered = running.registered();
  response.status = Check(request, registered);
  if (!response.status.ok()) return true;
  if (registered->has_transfers || registered->parts.size() != 1 ||
      registered->parts[0].lane->working()) {
    aborted = running.Withdraw();
    return false;
  }
  if (registered->has_collectives && !AwaitTurn(running.cancellation(), response)) return true;
  try {
    WorkerStep step(*registered, request, response, running.cancellation(),
                    registered->has_collectives ? collectives_.get() : nullptr);
    step.Finish(step.RunHere(registered->parts[0], patience_));
  } catch (...) {
    response.status = StatusFromCurrentException();
  }
  if (registered->has_collectives) collective_steps_.Leave();
  return true;
}

// False, and the response tells why, if the step was aborted while it waited.
bool LocalWorker::AwaitTurn(const Cancellation& cancellation, RunResponse& response) {
  if (collective_steps_.TryEnter()) return true;
  Awaited<bool> turn;
  collective_steps_.Enter(cancellation, [&turn](bool has_turn) { turn.Set(bool(has_turn)); });
  if (turn.Wait()) return true;
  SetWithdrawn(cancellation, response);
  return false;
}

void LocalWorker::Abort(const StepId& id, absl::Status reason) {
  Turns::Then withdrawn;
  {
    std::lock_guard lock(mutex_);
    const auto same = [&](const auto& entry) { return entry.first == id; };
    const auto running = std::find_if(running_.begin(), running_.end(), same);
    if (running == running_.end()) {
      aborted_early_.emplace_back(id, std::move(reason));
      return;
    }
    // Under the lock, so that the step does not end meanwhile.
    running->second->Cancel(std::move(reason));
    withdrawn = collective_steps_.Withdraw(*running->second);
  }
  if (withdrawn) withdrawn(false);
}

void LocalWorker::CleanUp(const StepId& id) {
  rendezvous_.Remove(id, Cancelled("the step is over"));
  std::lock_guard lock(mutex_);
  std::erase_if(aborted_early_, [&](const auto& entry) { return entry.first == id; });
}

std::vector<DeviceStats> LocalWorker::stats() const {
  std::vector<DeviceStats> stats;
  for (const auto& device : devices_) stats.push_back(device->stats());
  return stats;
}

void LocalWorker::Reset(const std::string& container) {
  for (const auto& device : devices_) {
    device->variables().Clear(container);
    device->resources().Clear(container);
  }
}

}  // namespace tutti
