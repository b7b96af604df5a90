#include "tutti/runtime/local_master.h"

#include <algorithm>

#include "tutti/compile/extract.h"
#include "tutti/compile/pipeline.h"

namespace tutti {

struct LocalMaster::Step {
  Key key;
  uint64_t hash = 0;
  uint64_t handle = 0;
  Worker* worker = nullptr;
  // The plan goes when the last run of an evicted step ends.
  ~Step() {
    if (handle != 0) worker->Deregister(handle);
  }
};

namespace {

// What distinguishes one compiled step from another, as numbers. Nodes never change, so their ids
// do.
void AppendKey(const MasterRunRequest& request, std::vector<uint64_t>& key) {
  key.clear();
  key.push_back(request.feeds.size());
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Tensor& value = *request.feed_values[i];
    key.push_back(uint64_t(request.feeds[i].node->id()));
    key.push_back(uint64_t(request.feeds[i].index));
    key.push_back(uint64_t(value.dtype()) << 8 | uint64_t(value.shape().rank()));
    for (const int64_t dim : value.shape().dims()) key.push_back(uint64_t(dim));
  }
  key.push_back(request.fetches.size());
  for (const Output& fetch : request.fetches) {
    key.push_back(uint64_t(fetch.node->id()));
    key.push_back(uint64_t(fetch.index));
  }
  for (const Node* target : request.targets) key.push_back(uint64_t(target->id()));
}

uint64_t HashOf(const std::vector<uint64_t>& key) {
  uint64_t hash = 0x9e3779b97f4a7c15u;
  for (const uint64_t word : key) {
    hash = (hash ^ word) * 0xff51afd7ed558ccdu;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

LocalMaster::LocalMaster(std::shared_ptr<Worker> worker, CompileOptions options, size_t most_steps)
    : worker_(std::move(worker)), options_(options), most_steps_(most_steps) {}

LocalMaster::~LocalMaster() {
  std::unique_lock lock(mutex_);
  CancelRuns(Cancelled("the session was destroyed"));
  ended_.wait(lock, [this] { return running_.empty(); });
}

void LocalMaster::Create(const Graph& graph, Done done) {
  graph_ = &graph;
  done(absl::OkStatus());
}

void LocalMaster::Extend(const Graph& graph, Done done) {
  done(&graph == graph_ ? absl::OkStatus()
                        : InvalidArgument("a session can only be extended with its own graph"));
}

void LocalMaster::Run(const MasterRunRequest& request, Done done) {
  absl::Status status;
  try {
    status = RunStep(request);
  } catch (...) {
    // Shapes and tensors throw, and compiling makes many.
    status = StatusFromCurrentException();
  }
  done(std::move(status));
}

// From before a run is compiled until it has ended, however it ends.
class LocalMaster::ListedRun {
 public:
  ListedRun(LocalMaster& master, Cancellation& cancellation)
      : master_(master), cancellation_(cancellation) {
    std::lock_guard lock(master_.mutex_);
    if (master_.closed_) cancellation_.Cancel(Cancelled("the session is closed"));
    master_.running_.push_back(&cancellation_);
  }
  ~ListedRun() {
    std::lock_guard lock(master_.mutex_);
    auto& running = master_.running_;
    running.erase(std::find(running.begin(), running.end(), &cancellation_));
    // With the lock held: once it is given back, the master may be gone.
    if (running.empty()) master_.ended_.notify_all();
  }
  ListedRun(const ListedRun&) = delete;
  ListedRun& operator=(const ListedRun&) = delete;

 private:
  LocalMaster& master_;
  Cancellation& cancellation_;
};

absl::StatusOr<std::shared_ptr<LocalMaster::Step>> LocalMaster::FindStep(
    const MasterRunRequest& request, const Cancellation& cancellation) {
  thread_local Key key;  // grows to its size once per thread
  AppendKey(request, key);
  const uint64_t hash = HashOf(key);
  {
    std::lock_guard lock(mutex_);
    for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it) {
      if ((*it->second)->key != key) continue;
      if (it->second != steps_.begin()) steps_.splice(steps_.begin(), steps_, it->second);
      return *it->second;
    }
  }
  TUTTI_ASSIGN_OR_RETURN(auto step, Compile(request, key, cancellation));
  step->hash = hash;
  std::shared_ptr<Step> evicted;  // ends after the lock
  std::lock_guard lock(mutex_);
  steps_.push_front(step);
  by_hash_.emplace(hash, steps_.begin());
  if (steps_.size() > most_steps_) {
    evicted = steps_.back();
    const auto last = std::prev(steps_.end());
    for (auto [it, end] = by_hash_.equal_range(evicted->hash); it != end; ++it) {
      if (it->second == last) {
        by_hash_.erase(it);
        break;
      }
    }
    steps_.pop_back();
  }
  return step;
}

absl::StatusOr<std::shared_ptr<LocalMaster::Step>> LocalMaster::Compile(
    const MasterRunRequest& request, Key key, const Cancellation& cancellation) {
  StepRequest wanted;
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Tensor& value = *request.feed_values[i];
    wanted.feeds.push_back({request.feeds[i], {value.dtype(), value.shape()}});
  }
  wanted.fetches.assign(request.fetches.begin(), request.fetches.end());
  wanted.targets.assign(request.targets.begin(), request.targets.end());
  TUTTI_ASSIGN_OR_RETURN(const Program program, Extract(*graph_, wanted));
  TUTTI_RETURN_IF_ERROR(cancellation.status());
  const std::vector<Device*> devices = worker_->devices();
  RegisterRequest registration{.parts = {}, .options = options_};
  TUTTI_ASSIGN_OR_RETURN(registration.parts, CompileWhole(program, devices, options_));
  TUTTI_RETURN_IF_ERROR(cancellation.status());
  auto step = std::make_shared<Step>();
  step->key = std::move(key);
  step->worker = worker_.get();
  absl::Status status;
  worker_->Register(std::move(registration), &step->handle,
                    [&status](absl::Status s) { status = std::move(s); });
  TUTTI_RETURN_IF_ERROR(status);
  return step;
}

namespace {

// A request from outside may name anything; the key below looks into nodes, so they are checked
// first.
absl::Status CheckRequest(const MasterRunRequest& request, const Graph* graph) {
  const auto check = [&](const Node* node, const char* what) -> absl::Status {
    if (node == nullptr) return InvalidArgument("a {} is empty (default-constructed)", what);
    if (&node->graph() == graph) return absl::OkStatus();
    return InvalidArgument("{} {}: it belongs to another graph than the session's", what,
                           node->Describe());
  };
  const auto check_output = [&](const Output& output, const char* what) -> absl::Status {
    TUTTI_RETURN_IF_ERROR(check(output.node, what));
    if (output.index >= 0 && output.index < output.node->num_outputs()) return absl::OkStatus();
    return InvalidArgument("{} {}: there is no output {}; it has {}", what, output.node->Describe(),
                           output.index, output.node->num_outputs());
  };
  for (const Output& feed : request.feeds) TUTTI_RETURN_IF_ERROR(check_output(feed, "feed"));
  for (const Output& fetch : request.fetches) TUTTI_RETURN_IF_ERROR(check_output(fetch, "fetch"));
  for (const Node* target : request.targets) TUTTI_RETURN_IF_ERROR(check(target, "target"));
  return absl::OkStatus();
}

}  // namespace

absl::Status LocalMaster::RunStep(const MasterRunRequest& request) {
  TUTTI_RETURN_IF_ERROR(CheckRequest(request, graph_));
  Cancellation cancellation;
  const ListedRun listed(*this, cancellation);
  const ScopedDeadline deadline(deadlines_, request.timeout_nanos, &cancellation);
  TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<Step> step, FindStep(request, cancellation));
  if (cancellation.cancelled()) return cancellation.status();
  RunRequest run{.handle = step->handle,
                 .step_id = next_step_.fetch_add(1, std::memory_order_relaxed),
                 .feeds = request.feed_values,
                 .results = request.results,
                 .cancellation = &cancellation,
                 .trace = request.trace};
  run.random_step = run.step_id;
  absl::Status status;
  worker_->Run(run, [&status](absl::Status s) { status = std::move(s); });
  return status;
}

void LocalMaster::CancelRuns(const absl::Status& reason) {
  closed_ = true;
  for (Cancellation* cancellation : running_) cancellation->Cancel(reason);
}

void LocalMaster::Close(Done done) {
  {
    std::lock_guard lock(mutex_);
    CancelRuns(Cancelled("the session was closed"));
  }
  done(absl::OkStatus());
}

}  // namespace tutti
