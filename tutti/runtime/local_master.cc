// How a run goes through the master. The caller's thread looks the compiled step up, or compiles it
// and registers its parts with their workers, and sends each worker that takes part one request.
// The last response ends the run, on whatever thread it comes. The first failure aborts the other
// workers and is the run's result.
//
// A run can be ended from outside: by its caller, by its deadline, by the end of the session.
// Whoever does so holds a reference to the run, so that the last Abort reaches a worker before the
// CleanUp that makes it forget the step. The call of Run holds one, too: a response may come on
// another thread while the call that sent the request is still inside the worker, and a master that
// is destroyed waits for both.
#include "tutti/runtime/local_master.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/compile/extract.h"

namespace tutti {

struct LocalMaster::Step {
  struct Part {
    Worker* worker = nullptr;
    uint64_t handle = 0;
    std::vector<int> feed_index;  // of its feeds in the lists of the whole step
    std::vector<int> fetch_index;
    bool takes_all_feeds = false;  // in order
    bool gives_all_fetches = false;
  };
  std::vector<Part> parts;  // one a worker

  // The plans go when the last run of an evicted step ends, before the master does: it owns the
  // workers.
  ~Step() {
    for (const Part& part : parts) part.worker->Deregister(part.handle);
  }
};

struct LocalMaster::ActiveRun {
  LocalMaster* master = nullptr;
  StepId id;
  RunDone done;
  std::optional<Deadlines::Handle> deadline;
  size_t fetches = 0;
  int64_t start_nanos = 0;  // of a traced run
  // Those of the run itself, of the call of Run, and of each thread that aborts it. A run without
  // any is about to leave the list of active ones, and never gets one again.
  std::atomic<int> references = 0;
  // Guarded by the master's mutex.
  std::shared_ptr<Step> step;
  absl::Status aborted;  // not OK: why it must end
  bool needs_clean_up = false;

  std::mutex mutex;
  size_t left = 0;  // responses to come
  RunResponse response;

  // Adds a reference, unless there are none.
  bool Retain() {
    int count = references.load(std::memory_order_relaxed);
    while (count > 0) {
      if (references.compare_exchange_weak(count, count + 1)) return true;
    }
    return false;
  }
};

LocalMaster::LocalMaster(WorkersByTask workers, std::string home, CompileOptions options,
                         size_t most_steps)
    : workers_(std::move(workers)),
      home_(std::move(home)),
      options_(options),
      session_(MakeRandomId()),
      folding_("/job:master/task:0/cpu:0", 1),
      steps_(most_steps) {}

LocalMaster::~LocalMaster() {
  AbortAll(Cancelled("the session was destroyed"));
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return active_.empty(); });
}

void LocalMaster::Create(const Graph& graph, Done done) {
  graph_ = &graph;
  done(ListDevices(home_));
}

absl::Status LocalMaster::ListDevices(const std::string& task) {
  {
    std::lock_guard lock(devices_mutex_);
    if (devices_.contains(task)) return absl::OkStatus();
  }
  Awaited<absl::StatusOr<std::vector<DeviceInfo>>> listed;
  workers_.at(task)->ListDevices([&listed](auto devices) { listed.Set(std::move(devices)); });
  TUTTI_ASSIGN_OR_RETURN(std::vector<DeviceInfo> devices, listed.Wait());
  if (devices.empty()) return FailedPrecondition("task {} has no devices", task);
  for (const DeviceInfo& device : devices) {
    if (device.name.starts_with(task + "/")) continue;
    return Internal("task {} lists the device {}", task, device.name);
  }
  std::lock_guard lock(devices_mutex_);
  devices_.emplace(task, std::move(devices));
  return absl::OkStatus();
}

// A task that a node names in full must answer. Of several that a partial name means, those that do
// not answer are left out.
absl::StatusOr<std::vector<DeviceInfo>> LocalMaster::DevicesFor(const Program& program) {
  std::set<std::string> names;
  for (const auto& node : program.graph->nodes()) names.insert(node->device());
  std::set<std::string> needed = {home_};
  for (const std::string& name : names) {
    const absl::StatusOr<DeviceName> wanted = DeviceName::Parse(name);
    if (name.empty() || !wanted.ok() || (!wanted->job && !wanted->task)) continue;
    for (const auto& [task, worker] : workers_) {
      const absl::StatusOr<DeviceName> candidate = DeviceName::Parse(task);
      if (!candidate.ok() || needed.contains(task)) continue;
      if (wanted->job && wanted->job != candidate->job) continue;
      if (wanted->task && wanted->task != candidate->task) continue;
      const absl::Status status = ListDevices(task);
      if (status.ok()) {
        needed.insert(task);
      } else if (wanted->job && wanted->task && !options_.soft_placement) {
        return status;
      }
    }
  }
  std::vector<DeviceInfo> devices;
  std::lock_guard lock(devices_mutex_);
  const auto add = [&](const std::string& task) {
    const std::vector<DeviceInfo>& own = devices_.at(task);
    devices.insert(devices.end(), own.begin(), own.end());
  };
  add(home_);
  for (const std::string& task : needed) {
    if (task != home_) add(task);
  }
  return devices;
}

void LocalMaster::Extend(const Graph& graph, Done done) {
  done(&graph == graph_ ? absl::OkStatus()
                        : InvalidArgument("a session can only be extended with its own graph"));
}

// A request may come from outside and name anything.
absl::Status LocalMaster::CheckRequest(const MasterRunRequest& request) const {
  const auto check = [&](int64_t node, const char* what) -> absl::Status {
    if (node >= 0 && node < graph_->size()) return absl::OkStatus();
    return InvalidArgument("a {} is node {}; the graph has {} nodes", what, node, graph_->size());
  };
  const auto check_output = [&](const OutputId& output, const char* what) -> absl::Status {
    TUTTI_RETURN_IF_ERROR(check(output.node, what));
    const Node& node = *graph_->nodes()[size_t(output.node)];
    if (output.index >= 0 && output.index < node.num_outputs()) return absl::OkStatus();
    return InvalidArgument("{} {}: there is no output {}; it has {}", what, node.Describe(),
                           output.index, node.num_outputs());
  };
  if (request.feeds.size() != request.feed_values.size()) {
    return InvalidArgument("{} values given for {} feeds", request.feed_values.size(),
                           request.feeds.size());
  }
  for (const OutputId& feed : request.feeds) TUTTI_RETURN_IF_ERROR(check_output(feed, "feed"));
  for (const OutputId& fetch : request.fetches) {
    TUTTI_RETURN_IF_ERROR(check_output(fetch, "fetch"));
  }
  for (const int64_t target : request.targets) TUTTI_RETURN_IF_ERROR(check(target, "target"));
  return absl::OkStatus();
}

void LocalMaster::Run(MasterRunRequest&& request, RunDone done) {
  ActiveRun& run = *Begin(request.step);
  run.done = std::move(done);
  run.fetches = request.fetches.size();
  absl::Status status;
  try {
    status = Prepare(run, request);
  } catch (...) {
    // Shapes and tensors throw, and compiling makes many.
    status = StatusFromCurrentException();
  }
  if (status.ok()) {
    Dispatch(run, request);
  } else {
    RunResponse response;
    response.status = std::move(status);
    End(run, std::move(response));
  }
  Release(run);
}

LocalMaster::ActiveRun* LocalMaster::Begin(int64_t step) {
  std::lock_guard lock(mutex_);
  std::unique_ptr<ActiveRun> run;
  if (idle_.empty()) {
    run = std::make_unique<ActiveRun>();
    run->master = this;
  } else {
    run = std::move(idle_.back());
    idle_.pop_back();
  }
  run->id = {session_, step};
  run->references.store(2, std::memory_order_relaxed);
  run->aborted = closed_;
  if (const auto it = aborted_early_.find(step); it != aborted_early_.end()) {
    run->aborted.Update(it->second);
  }
  active_.push_back(std::move(run));
  return active_.back().get();
}

absl::Status LocalMaster::Prepare(ActiveRun& run, const MasterRunRequest& request) {
  TUTTI_RETURN_IF_ERROR(CheckRequest(request));
  if (request.timeout_nanos > 0) {
    run.deadline = deadlines_.Add(request.timeout_nanos, [&run, timeout = request.timeout_nanos] {
      run.master->AbortRun(run,
                           DeadlineExceeded("the step did not finish within its timeout of {} ms",
                                            double(timeout) / 1e6));
    });
  }
  TUTTI_ASSIGN_OR_RETURN(std::shared_ptr<Step> step, FindStep(request, run));
  std::lock_guard lock(mutex_);
  run.step = std::move(step);
  // Whoever aborts the run from here on finds the step, and aborts it at its workers.
  return run.aborted;
}

absl::StatusOr<std::shared_ptr<LocalMaster::Step>> LocalMaster::FindStep(
    const MasterRunRequest& request, const ActiveRun& run) {
  thread_local StepKey key;  // grows to its size once per thread
  SetKey(request, key);
  if (std::shared_ptr<Step> step = steps_.Find(key)) return step;
  TUTTI_ASSIGN_OR_RETURN(std::shared_ptr<Step> step, Compile(request, run));
  steps_.Add(key, step);
  return step;
}

absl::Status LocalMaster::AbortedStatus(const ActiveRun& run) {
  std::lock_guard lock(mutex_);
  return run.aborted;
}

absl::StatusOr<std::shared_ptr<LocalMaster::Step>> LocalMaster::Compile(
    const MasterRunRequest& request, const ActiveRun& run) {
  const auto& nodes = graph_->nodes();
  const auto output = [&](const OutputId& id) {
    return Output{nodes[size_t(id.node)].get(), id.index};
  };
  StepRequest wanted;
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Tensor& value = request.feed_values[i];
    wanted.feeds.push_back({output(request.feeds[i]), {value.dtype(), value.shape()}});
  }
  for (const OutputId& fetch : request.fetches) wanted.fetches.push_back(output(fetch));
  for (const int64_t target : request.targets) {
    wanted.targets.push_back(nodes[size_t(target)].get());
  }
  TUTTI_ASSIGN_OR_RETURN(const Program program, Extract(*graph_, wanted));
  TUTTI_RETURN_IF_ERROR(AbortedStatus(run));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<DeviceInfo> devices, DevicesFor(program));
  TUTTI_ASSIGN_OR_RETURN(
      std::vector<Partition> parts,
      CompileWhole(program, devices, &folding_, options_,
                   [this](const Node& node, const std::string& why) { LogFallBack(node, why); }));
  TUTTI_RETURN_IF_ERROR(AbortedStatus(run));
  auto step = std::make_shared<Step>();
  TUTTI_RETURN_IF_ERROR(Register(std::move(parts), *step));
  for (Step::Part& part : step->parts) {
    const auto is_all = [](const std::vector<int>& index, size_t count) {
      std::vector<int> all(count);
      std::iota(all.begin(), all.end(), 0);
      return index == all;
    };
    part.takes_all_feeds = is_all(part.feed_index, request.feeds.size());
    part.gives_all_fetches = is_all(part.fetch_index, request.fetches.size());
  }
  return step;
}

// A node may be part of many steps, and each is placed anew.
void LocalMaster::LogFallBack(const Node& node, const std::string& why) {
  {
    std::lock_guard lock(mutex_);
    if (!fell_back_.insert(node.name()).second) return;
  }
  Log(LogLevel::kWarning, "{}", why);
}

// Gives every worker its parts. The workers compile at the same time, those of other processes
// first: the one of this process does so before it returns.
absl::Status LocalMaster::Register(std::vector<Partition> parts, Step& step) {
  Worker* const own = workers_.at(home_).get();
  std::vector<std::pair<Worker*, RegisterRequest>> requests;
  for (Partition& part : parts) {
    const std::string task = part.device.substr(0, part.device.rfind('/'));
    Worker* const worker = workers_.at(task).get();
    auto request = std::find_if(requests.begin(), requests.end(),
                                [&](const auto& entry) { return entry.first == worker; });
    if (request == requests.end()) {
      RegisterRequest fresh{.session = session_, .parts = {}, .options = options_};
      request = requests.insert(worker == own ? requests.end() : requests.begin(),
                                {worker, std::move(fresh)});
    }
    request->second.parts.push_back(std::move(part));
  }
  std::vector<Awaited<absl::StatusOr<uint64_t>>> handles(requests.size());
  std::vector<Step::Part> registered(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    auto& [worker, request] = requests[i];
    registered[i].worker = worker;
    for (const Partition& part : request.parts) {
      std::copy(part.feed_index.begin(), part.feed_index.end(),
                std::back_inserter(registered[i].feed_index));
      std::copy(part.fetch_index.begin(), part.fetch_index.end(),
                std::back_inserter(registered[i].fetch_index));
    }
    worker->Register(std::move(request),
                     [&handle = handles[i]](auto given) { handle.Set(std::move(given)); });
  }
  absl::Status status;
  for (size_t i = 0; i < handles.size(); ++i) {
    const absl::StatusOr<uint64_t> handle = handles[i].Wait();
    if (!handle.ok()) {
      if (status.ok()) status = handle.status();
      continue;
    }
    registered[i].handle = *handle;
    step.parts.push_back(std::move(registered[i]));
  }
  return status;
}

void LocalMaster::Dispatch(ActiveRun& run, MasterRunRequest& request) {
  const Step& step = *run.step;
  const size_t count = step.parts.size();
  run.left = count;
  if (request.trace) run.start_nanos = NowNanos();
  if (count == 0) {
    RunResponse response;
    if (request.trace) response.trace = std::make_unique<StepTrace>();
    End(run, std::move(response));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const Step::Part& part = step.parts[i];
    RunRequest to_worker{.id = run.id,
                         .handle = part.handle,
                         .random_step = run.id.step,
                         .trace = request.trace,
                         .feeds = {},
                         .caller_waits = request.caller_waits && i + 1 == count};
    if (part.takes_all_feeds && i + 1 == count) {
      to_worker.feeds = std::move(request.feed_values);
    } else {
      for (const int f : part.feed_index) to_worker.feeds.push_back(request.feed_values[size_t(f)]);
    }
    part.worker->Run(std::move(to_worker), [&run, i](RunResponse&& response) {
      run.master->PartDone(run, i, std::move(response));
    });
  }
}

namespace {

// The times of all nodes count from the start of the run.
void MergeTrace(std::unique_ptr<StepTrace> from, int64_t start, std::unique_ptr<StepTrace>& to) {
  if (from == nullptr) return;
  const int64_t later = from->start_nanos - start;
  for (NodeRecord& node : from->nodes) {
    node.start_nanos += later;
    node.end_nanos += later;
  }
  from->start_nanos = start;
  if (to == nullptr) {
    to = std::move(from);
    return;
  }
  std::move(from->nodes.begin(), from->nodes.end(), std::back_inserter(to->nodes));
  std::stable_sort(to->nodes.begin(), to->nodes.end(),
                   [](const auto& a, const auto& b) { return a.start_nanos < b.start_nanos; });
  std::move(from->peaks.begin(), from->peaks.end(), std::back_inserter(to->peaks));
  to->arena_bytes += from->arena_bytes;
}

}  // namespace

void LocalMaster::PartDone(ActiveRun& run, size_t i, RunResponse&& response) {
  const Step& step = *run.step;  // lives as long as the run
  const Step::Part& part = step.parts[i];
  if (response.status.ok() && response.results.size() != part.fetch_index.size()) {
    response.status = Internal("a worker gave {} results of step {}; expected {}",
                               response.results.size(), run.id.step, part.fetch_index.size());
  }
  if (step.parts.size() == 1 && (part.gives_all_fetches || !response.status.ok())) {
    End(run, std::move(response));
    return;
  }
  absl::Status first_failure;
  bool last = false;
  {
    std::lock_guard lock(run.mutex);
    if (!response.status.ok() && run.response.status.ok()) {
      run.response.status = response.status;
      if (run.left > 1) first_failure = response.status;
    }
    run.response.unfinished += response.unfinished;
    run.response.results.resize(run.fetches);
    if (response.status.ok()) {
      for (size_t k = 0; k < part.fetch_index.size(); ++k) {
        run.response.results[size_t(part.fetch_index[k])] = std::move(response.results[k]);
      }
    }
    MergeTrace(std::move(response.trace), run.start_nanos, run.response.trace);
    last = run.left == 1;
    if (!last && first_failure.ok()) --run.left;
  }
  if (!first_failure.ok()) {
    // This response counts as missing until the others are aborted, so that the run lives.
    AbortRun(run, first_failure);
    std::lock_guard lock(run.mutex);
    last = --run.left == 0;
  }
  if (last) End(run, std::exchange(run.response, {}));
}

void LocalMaster::End(ActiveRun& run, RunResponse&& response) {
  if (run.deadline) deadlines_.Remove(*run.deadline);
  run.deadline.reset();
  const RunDone done = std::exchange(run.done, nullptr);
  if (!response.status.ok()) {
    response.results.clear();
    if (!response.unfinished.empty()) {
      response.status = absl::Status(
          response.status.code(),
          fmt::format("{}{}", MessageOf(response.status), std::exchange(response.unfinished, {})));
    }
  }
  Release(run);
  done(std::move(response));
}

void LocalMaster::Release(ActiveRun& run) {
  if (run.references.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  std::unique_lock lock(mutex_);
  if (run.needs_clean_up || run.step.use_count() == 1) {
    // The workers are called without the lock, and before the run leaves the list, so that they
    // are still there.
    std::shared_ptr<Step> step = std::move(run.step);
    const bool clean_up = std::exchange(run.needs_clean_up, false);
    lock.unlock();
    if (clean_up && step != nullptr) {
      for (const Step::Part& part : step->parts) part.worker->CleanUp(run.id);
    }
    step.reset();  // may deregister
    lock.lock();
  }
  run.step.reset();
  const auto it = std::find_if(active_.begin(), active_.end(),
                               [&](const auto& entry) { return entry.get() == &run; });
  idle_.push_back(std::move(*it));
  active_.erase(it);
  if (active_.empty()) ended_.notify_all();
}

void LocalMaster::AbortRun(ActiveRun& run, const absl::Status& reason) {
  std::shared_ptr<Step> step;
  if (!run.Retain()) return;
  {
    std::lock_guard lock(mutex_);
    run.needs_clean_up = true;
    run.aborted.Update(reason);
    step = run.step;
  }
  if (step != nullptr) {
    for (const Step::Part& part : step->parts) part.worker->Abort(run.id, reason);
  }
  step.reset();
  Release(run);
}

void LocalMaster::Abort(int64_t step, absl::Status reason) {
  ActiveRun* run = nullptr;
  {
    std::lock_guard lock(mutex_);
    for (const auto& active : active_) {
      if (active->id.step == step && active->Retain()) run = active.get();
    }
    if (run == nullptr) {
      aborted_early_.emplace(step, std::move(reason));
      return;
    }
  }
  AbortRun(*run, reason);
  Release(*run);
}

void LocalMaster::CleanUp(int64_t step) {
  std::lock_guard lock(mutex_);
  aborted_early_.erase(step);
}

void LocalMaster::AbortAll(const absl::Status& reason) {
  std::vector<ActiveRun*> runs;
  {
    std::lock_guard lock(mutex_);
    if (closed_.ok()) closed_ = Cancelled("the session is closed");
    for (const auto& active : active_) {
      if (active->Retain()) runs.push_back(active.get());
    }
  }
  for (ActiveRun* run : runs) {
    AbortRun(*run, reason);
    Release(*run);
  }
}

void LocalMaster::Close(Done done) {
  AbortAll(Cancelled("the session was closed"));
  done(absl::OkStatus());
}

}  // namespace tutti
