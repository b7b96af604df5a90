// How a run goes through the master. The caller's thread finds the compiled step (master_steps.h)
// and sends each worker that takes part one request. The last response ends the run, on whatever
// thread it comes. The first failure aborts the other workers and is the run's result.
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
#include <optional>
#include <utility>

#include "tutti/base/clock.h"

namespace tutti {

struct LocalMaster::ActiveRun {
  LocalMaster* master = nullptr;
  StepId id;
  RunDone done;
  std::optional<Deadlines::Handle> deadline;
  size_t fetches = 0;
  int64_t start_nanos = 0;   // of a traced or measured run
  bool wants_trace = false;  // its caller does
  bool is_measured = false;  // and so does the step
  // Those of the run itself, of the call of Run, and of each thread that aborts it. A run without
  // any is about to leave the list of active ones, and never gets one again.
  std::atomic<int> references = 0;
  // Guarded by the master's mutex.
  std::shared_ptr<MasterStep> step;
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
                         size_t most_steps, std::shared_ptr<placement::StateHomes> homes)
    : steps_(std::move(workers), std::move(home), options, most_steps, std::move(homes)) {}

LocalMaster::~LocalMaster() {
  AbortAll(Cancelled("the session was destroyed"));
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return active_.empty(); });
}

void LocalMaster::Create(const Graph& graph, Done done) { done(steps_.SetGraph(graph)); }

void LocalMaster::Extend(const Graph& graph, Done done) {
  done(&graph == steps_.graph()
           ? absl::OkStatus()
           : InvalidArgument("a session can only be extended with its own graph"));
}

void LocalMaster::Run(MasterRunRequest&& request, RunDone done) {
  ActiveRun* begun = nullptr;
  RunResponse refused;
  try {
    begun = Begin(request.step);
  } catch (...) {
    refused.status = StatusFromCurrentException();
  }
  if (begun == nullptr) {
    done(std::move(refused));
    return;
  }
  ActiveRun& run = *begun;
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
  run->id = {steps_.session(), step};
  run->references.store(2, std::memory_order_relaxed);
  run->aborted = closed_;
  if (const auto it = aborted_early_.find(step); it != aborted_early_.end()) {
    run->aborted.Update(it->second);
  }
  // A client of another process may name any step.
  const auto same = [step](const auto& active) { return active->id.step == step; };
  if (std::any_of(active_.begin(), active_.end(), same)) {
    run->aborted.Update(AlreadyExists("step {} of this session runs already", step));
  }
  idle_.reserve(idle_.size() + active_.size() + 1);  // the end of a run allocates nothing
  active_.push_back(std::move(run));
  return active_.back().get();
}

absl::Status LocalMaster::Prepare(ActiveRun& run, const MasterRunRequest& request) {
  TUTTI_RETURN_IF_ERROR(steps_.CheckRequest(request));
  if (request.timeout_nanos > 0) {
    run.deadline = deadlines_.Add(request.timeout_nanos, [&run, timeout = request.timeout_nanos] {
      run.master->AbortRun(run,
                           DeadlineExceeded("the step did not finish within its timeout of {} ms",
                                            double(timeout) / 1e6));
    });
  }
  const auto aborted = [this, &run] {
    std::lock_guard lock(mutex_);
    return run.aborted;
  };
  TUTTI_ASSIGN_OR_RETURN(std::shared_ptr<MasterStep> step, steps_.Find(request, aborted));
  std::lock_guard lock(mutex_);
  run.step = std::move(step);
  // Whoever aborts the run from here on finds the step, and aborts it at its workers.
  return run.aborted;
}

void LocalMaster::Dispatch(ActiveRun& run, MasterRunRequest& request) {
  const MasterStep& step = *run.step;
  const size_t count = step.parts.size();
  run.left = count;
  run.wants_trace = request.trace;
  run.is_measured = step.measured != nullptr && step.measured->wants_more();
  request.trace = request.trace || (run.is_measured && step.measured->traced());
  if (request.trace || run.is_measured) run.start_nanos = NowNanos();
  if (count == 0) {
    RunResponse response;
    if (request.trace) response.trace = std::make_unique<StepTrace>();
    End(run, std::move(response));
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    const MasterStep::Part& part = step.parts[i];
    RunRequest to_worker{.id = run.id,
                         .handle = part.handle,
                         .random_step = run.id.step,
                         .trace = request.trace,
                         .feeds = {},
                         .caller_waits = request.caller_waits && i + 1 == count};
    try {
      if (part.takes_all_feeds && i + 1 == count) {
        to_worker.feeds = std::move(request.feed_values);
      } else {
        for (const int f : part.feed_index) {
          to_worker.feeds.push_back(request.feed_values[size_t(f)]);
        }
      }
    } catch (...) {
      // No memory was left. Parts may be running already: they are aborted, as by any failure.
      RunResponse response;
      response.status = StatusFromCurrentException();
      PartDone(run, i, std::move(response));
      continue;
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
  const MasterStep& step = *run.step;  // lives as long as the run
  const MasterStep::Part& part = step.parts[i];
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
  if (std::exchange(run.is_measured, false)) {
    MeasuredStep& measured = *run.step->measured;
    if (response.status.ok() && (response.trace != nullptr || !measured.traced())) {
      measured.Add(response.trace.get(), double(NowNanos() - run.start_nanos) * 1e-9);
    }
    if (!run.wants_trace) response.trace.reset();
  }
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
    std::shared_ptr<MasterStep> step = std::move(run.step);
    const bool clean_up = std::exchange(run.needs_clean_up, false);
    lock.unlock();
    if (clean_up && step != nullptr) {
      for (const MasterStep::Part& part : step->parts) part.worker->CleanUp(run.id);
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
  std::shared_ptr<MasterStep> step;
  if (!run.Retain()) return;
  {
    std::lock_guard lock(mutex_);
    run.needs_clean_up = true;
    run.aborted.Update(reason);
    step = run.step;
  }
  if (step != nullptr) {
    for (const MasterStep::Part& part : step->parts) part.worker->Abort(run.id, reason);
  }
  step.reset();
  Release(run);
}

void LocalMaster::Abort(int64_t step, absl::Status reason) {
  ActiveRun* run = nullptr;
  {
    std::lock_guard lock(mutex_);
    for (const auto& active : active_) {
      if (run == nullptr && active->id.step == step && active->Retain()) run = active.get();
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

void LocalMaster::Explain(ExplainDone done) {
  try {
    done(steps_.Explain());
  } catch (...) {
    done(StatusFromCurrentException());
  }
}

void LocalMaster::Close(Done done) {
  AbortAll(Cancelled("the session was closed"));
  done(absl::OkStatus());
}

}  // namespace tutti
