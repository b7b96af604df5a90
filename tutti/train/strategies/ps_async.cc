// Between-graph replication with variables on parameter servers, without waiting: every worker
// reads the variables, computes a gradient, and applies it, whatever the others do meanwhile.
//
//   worker                                   servers
//   read  <----------------------------------  variables, global step g
//   gradient of the mean over its batch
//   push  ---------------------------------->  update of each variable (atomic), then g' = g' + 1
//
// Between a worker's read and its update the others have made g' - g updates: the staleness of its
// gradient. It is measured for every gradient and told at the end. With two workers of equal speed
// it is mostly 1; a worker k times slower than N - 1 others sees about k (N - 1).
//
// ps-ssp:S bounds how far workers may drift apart: a clock on the first server counts the steps of
// each, and a worker that leads the slowest by more than S waits at the end of its step. S = 0
// keeps all in the same step, though their updates are still applied one by one.
//
// Batches have numbers, and a dispenser on the first server gives each out once: whatever the speed
// of the workers, an epoch has every sample once. A step claims the number for the next one, so the
// claim costs no message of its own. A worker is done when it gets a number past the last.
//
// The loss of a worker does not affect the others, unless it is worker 0, which initialises and
// saves the variables. Worker 0 notices the loss, removes the worker from the clock, and returns
// its numbers to the dispenser: that of its current batch, which may have been applied already and
// then counts twice, and the one claimed for its next step. A restarted worker gets what was agreed
// on (queue_peers.cc), joins the clock at the count of the slowest, and claims a batch.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <utility>

#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/train/optimizers/optimizer.h"
#include "tutti/train/strategies/ps/async.h"
#include "tutti/train/strategies/ps/join_servers.h"
#include "tutti/train/strategies/ps/queue_peers.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

constexpr const char* kScope = "ps-async";

double NumberOf(const Tensor& scalar) {
  return scalar.dtype() == kFloat64 ? scalar.scalar<double>() : double(scalar.scalar<float>());
}

// In the graphs of all workers the same: the worker is fed. What is counted here belongs to the
// run, not to the training: it is in no variable, and so in no checkpoint.
struct AsyncNodes final : StrategyNodes {
  GradientCheck check;
  Output worker;     // placeholder, int64
  Output stop;       // of this worker: WorkerStep's
  Output read_step;  // the global step that the variables were read at
  Output counted;    // the global step after the update
  Output claimed;    // the number of this worker's next batch
  Output give_back;  // what `worker` has claimed and not finished is given out again
  const Node* reset_batches = nullptr;  // they begin at 0
  Output stops;                         // requests to stop so far
  const Node* request_stop = nullptr;
  const Node* step = nullptr;  // update, and wait where the strategy bounds the staleness
  Output join;                 // takes part in the clock; empty where there is none
  const Node* leave = nullptr;
};

class AsyncDriver final : public StepDriver {
 public:
  // All workers make one at the same time.
  AsyncDriver(Session& session, const StepNodes& nodes, const AsyncNodes& own,
              const StepRange& range, std::shared_ptr<QueuePeers> peers, bool skip_bad)
      : session_(session),
        own_(own),
        fetches_{nodes.joint.loss, nodes.joint.samples, own.stops,       own.read_step,
                 own.counted,      own.claimed,         own.check.finite},
        step_(range.first),
        peers_(std::move(peers)),
        worker_(own.worker, Tensor::Scalar<int64_t>(peers_->rank())),
        skip_bad_(skip_bad) {
    // Counts begin anew with every training; nobody claims before all know where. While a
    // checkpoint was taken the others went on: the variables may be some steps past the one it is
    // called by.
    std::string begin;
    if (leads()) {
      session_.RunTargets({}, {own_.reset_batches});
      begin = fmt::format("{} {}", session_.Run(own_.stops).scalar<int64_t>(),
                          session_.Run(own_.read_step).scalar<int64_t>());
    }
    if (peers_->late()) session_.Run({worker_}, own_.give_back);  // of its former self
    if (own_.join) session_.Run({worker_}, own_.join);
    const std::string of_first = peers_->Gather("first batch", begin)[0];
    size_t digits = 0;
    first_stops_ = std::stoll(of_first, &digits);
    step_ = std::max(step_, int64_t{std::stoll(of_first.substr(digits))});
    batches_ = batch_ = std::max<int64_t>(0, range.end - step_);
    // One that was started again may find everything done.
    const auto current = session_.Run(own_.read_step).scalar<int64_t>();
    if (peers_->late()) {
      step_ = current;
      Log(LogLevel::kWarning, "worker {} was started again, and goes on from step {}",
          peers_->rank(), step_);
    }
    if (current < range.end) batch_ = session_.Run({worker_}, own_.claimed).scalar<int64_t>();
    if (leads()) peers_->SetLossHandler({{.lost = [this](int rank, auto&) { Lost(rank); }}});
  }
  ~AsyncDriver() override {
    if (leads()) peers_->SetLossHandler({});
    try {
      Leave();
    } catch (const Error&) {
      // The servers are gone, and whoever would wait with them.
    }
  }

  int64_t NextBatch() override { return batch_ < batches_ ? batch_ : -1; }

  StepResult Run(const StepCall& call) override {
    feeds_.assign(call.feeds.begin(), call.feeds.end());
    feeds_.push_back(worker_);
    fetches_.resize(kFetches);
    fetches_.insert(fetches_.end(), call.fetches.begin(), call.fetches.end());
    fetched_.resize(fetches_.size());
    const Node* const targets[] = {own_.step, own_.request_stop};
    RunOptions options = call.options();
    options.stop = peers_->aborted();
    try {
      session_.RunInto(feeds_, fetches_, std::span(targets, AsksForStop() ? 2 : 1), fetched_,
                       options);
    } catch (const Error& error) {
      peers_->RethrowOfStep(error);
    }
    std::copy(fetched_.begin() + kFetches, fetched_.end(), call.results.begin());
    step_ = fetched_[kCounted].scalar<int64_t>();
    batch_ = fetched_[kClaimed].scalar<int64_t>();
    StepResult result = {.step = step_,
                         .loss = NumberOf(fetched_[kLoss]),
                         .samples = NumberOf(fetched_[kSamples]),
                         .stop = AsksForStop() || fetched_[kStops].scalar<int64_t>() > first_stops_,
                         .bad = FirstBad(own_.check, fetched_[kFinite])};
    if (result.bad.empty()) {
      result.staleness = step_ - 1 - fetched_[kReadStep].scalar<int64_t>();
      ++staleness_[result.staleness];
    } else if (skip_bad_) {
      ++skipped_;
    } else {
      result.loss = std::numeric_limits<double>::quiet_NaN();
    }
    return result;
  }

  void Leave() override {
    if (own_.leave == nullptr || left_) return;
    left_ = true;
    session_.RunTargets({worker_}, {own_.leave});
  }

  StepsMade Made(const StepsMade& own) override {
    const auto step = session_.Run(own_.read_step).scalar<int64_t>();
    return {step, batch_ < batches_ ? own.batches : batches_};
  }

  std::vector<std::pair<std::string, std::string>> Report() const override {
    int64_t applied = 0, sum = 0;
    std::string histogram;
    for (const auto& [staleness, count] : staleness_) {
      applied += count;
      sum += staleness * count;
      histogram += fmt::format("{}{}: {}", histogram.empty() ? "" : " ", staleness, count);
    }
    std::vector<std::pair<std::string, std::string>> facts = {
        {"gradients applied", fmt::format("{}", applied)}};
    if (skipped_ > 0) facts.emplace_back("not finite and skipped", fmt::format("{}", skipped_));
    if (applied > 0) {
      facts.emplace_back("mean staleness",
                         fmt::format("{:.2f} ({})", double(sum) / double(applied), histogram));
    }
    const std::lock_guard lock(mutex_);
    if (lost_ > 0) {
      facts.emplace_back("workers lost", fmt::format("{}", lost_));
      facts.emplace_back("batches given out again", fmt::format("{}", fmt::join(again_, " ")));
      facts.emplace_back("of these perhaps seen twice", fmt::format("{}", fmt::join(twice_, " ")));
    }
    return facts;
  }

 private:
  enum { kLoss, kSamples, kStops, kReadStep, kCounted, kClaimed, kFinite, kFetches };

  bool leads() const { return peers_->rank() == 0; }

  // On a thread of the peers, for other workers.
  void Lost(int rank) {
    const Feed worker = {own_.worker, Tensor::Scalar<int64_t>(rank)};
    try {
      if (own_.leave != nullptr) session_.RunTargets({worker}, {own_.leave});
      const Tensor numbers = session_.Run({worker}, own_.give_back);
      const std::lock_guard lock(mutex_);
      ++lost_;
      bool first = true;
      for (const int64_t number : numbers.values<int64_t>()) {
        if (number < 0 || number >= batches_) continue;
        again_.push_back(number);
        // The older one may have been applied; the other one had not begun.
        if (std::exchange(first, false)) twice_.push_back(number);
      }
    } catch (const Error& error) {
      peers_->Abort(error.code(),
                    fmt::format("worker {} could not be left out: {}", rank, error.what()));
    }
  }

  bool AsksForStop() const {
    for (const auto& [output, value] : feeds_) {
      if (output == own_.stop) return value.scalar<float>() > 0;
    }
    return false;
  }

  Session& session_;
  const AsyncNodes own_;
  std::vector<Output> fetches_;
  std::vector<Tensor> fetched_;
  std::vector<Feed> feeds_;
  int64_t step_;
  int64_t batches_ = 0;  // of this training
  int64_t batch_ = 0;    // the next one of this worker
  int64_t first_stops_ = 0;
  const std::shared_ptr<QueuePeers> peers_;
  const Feed worker_;
  const bool skip_bad_;
  bool left_ = false;
  std::map<int64_t, int64_t> staleness_;  // how many gradients had which
  int64_t skipped_ = 0;
  mutable std::mutex mutex_;  // of what other workers left behind
  int64_t lost_ = 0;
  std::vector<int64_t> again_, twice_;
};

class AsyncStrategy final : public ServersStrategy {
 public:
  AsyncStrategy(ParameterServers servers, const AsyncOptions& options)
      : ServersStrategy(std::move(servers), options.common, QueuePeers::Losses::kAreLeftOut),
        async_(options) {}

  std::string_view name() const override { return async_.most_lead < 0 ? "ps-async" : "ps-ssp"; }
  bool InLockstep() const override { return false; }
  bool WaitsForWorkers() const override { return async_.most_lead >= 0; }
  int BatchesPerUpdate() const override { return 1; }

  Output Differentiated(const WorkerStep& step) const override { return step.loss; }

  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    Graph& graph = step.loss.graph();
    NameScope scope(graph, kScope);
    auto nodes = std::make_shared<AsyncNodes>();
    nodes->check = CheckGradients(list, options().wire);
    nodes->read_step = GlobalStep(graph);
    Output scale = Mul(nodes->check.all, Cast(Greater(step.samples, 0.0f), kFloat32));
    if (async_.divide_by_staleness) scale = Mul(scale, StalenessFactor(list, nodes->read_step));
    std::vector<GradientAndVariable> sent(list.begin(), list.end());
    for (GradientAndVariable& entry : sent) {
      if (entry.gradient.empty()) continue;
      Output& values = entry.gradient.sparse() ? entry.gradient.rows : entry.gradient.dense;
      values = OverWire(values, options().wire, entry.variable.node->device());
      entry = Scaled(entry, scale);
    }
    nodes->stop = step.stop;
    *joint = {.loss = step.loss,
              .samples = step.samples,
              .stop = step.stop,
              .how = How(),
              .nodes = nodes};
    return sent;
  }

  // The averages of layers move by each worker's changes, as its gradients are applied.
  std::vector<Output> AggregateState(std::span<const Output> changes, const WorkerStep& step,
                                     const JointStep& /*joint*/) const override {
    std::vector<Output> counted;
    for (const Output& change : changes) {
      counted.push_back(Select(Greater(step.samples, 0.0f), change, ZerosLike(change)));
    }
    return counted;
  }

  void Complete(StepNodes& nodes, const WorkerStep& step) const override {
    Graph& graph = step.loss.graph();
    auto& own = static_cast<AsyncNodes&>(*nodes.joint.nodes);
    NameScope scope(graph, kScope);
    const DeviceScope device(graph, first_server());
    own.counted = nodes.counted;
    own.worker = Placeholder(graph, kInt64, Shape{}, "worker");
    const Output nobody = Constant(graph, int64_t{0});
    const Output batches = Dispenser(graph, servers().workers, "batches");
    own.claimed = DispenserTake(batches, own.worker);
    own.give_back = DispenserReturn(batches, own.worker);
    own.reset_batches = DispenserReset(batches);
    const Output stops = Clock(graph, 1, "stops");
    own.request_stop = ClockAdvance(stops, nobody).node;
    own.stops = ClockWait(stops, nobody, nobody);
    own.step = nodes.update;
    if (async_.most_lead < 0) return;
    const Output clock = Clock(graph, servers().workers, "clock");
    own.join = ClockJoin(clock, own.worker);
    own.leave = ClockLeave(clock, own.worker);
    const ControlScope updated(graph, {nodes.update});
    const Output time = ClockAdvance(clock, own.worker);
    const ControlScope advanced(graph, {time.node});
    own.step = ClockWait(clock, own.worker, async_.most_lead).node;
  }

  std::unique_ptr<StepDriver> MakeDriver(Session& session, const StepNodes& nodes,
                                         const StepRange& range) const override {
    return std::make_unique<AsyncDriver>(session, nodes,
                                         static_cast<const AsyncNodes&>(*nodes.joint.nodes), range,
                                         queue_peers(), options().skip_bad);
  }

 private:
  // 1 / staleness at the moment when the gradient is ready; 1 for a fresh one.
  static Output StalenessFactor(std::span<const GradientAndVariable> list, Output read_step) {
    std::vector<const Node*> gradients;
    for (const GradientAndVariable& entry : list) {
      if (entry.gradient.empty()) continue;
      gradients.push_back(
          (entry.gradient.sparse() ? entry.gradient.rows : entry.gradient.dense).node);
    }
    Graph& graph = read_step.graph();
    const ControlScope ready(graph, gradients);
    const Output current = AssignAdd(read_step, int64_t{0});
    return Div(1.0f, Cast(Maximum(Sub(current, read_step), int64_t{1}), kFloat32));
  }

  std::string How() const {
    std::string text = "each gradient is applied as it comes";
    if (async_.most_lead >= 0) {
      text += fmt::format("; a worker leads the slowest by at most {} steps", async_.most_lead);
    }
    if (async_.divide_by_staleness) text += "; divided by its staleness";
    return text;
  }

  const AsyncOptions async_;
};

}  // namespace

std::shared_ptr<const Strategy> MakeAsyncStrategy(ParameterServers servers,
                                                  const AsyncOptions& options) {
  RequireServers(servers, options.most_lead < 0 ? "ps-async" : "ps-ssp");
  return std::make_shared<AsyncStrategy>(std::move(servers), options);
}

StrategyDef PsAsyncStrategyDef() {
  return {.name = "ps-async",
          .summary = "variables on parameter servers, workers on their own",
          .others = {{"ps", ServeVariables}},
          .flags = AsyncFlags(),
          .make = [](const Launch& launch) {
            return MakeAsyncStrategy(JoinServers(launch, "ps-async"), AsyncOptionsOf(launch));
          }};
}

std::vector<StrategyFlag> AsyncFlags() {
  std::vector<StrategyFlag> flags = ServerFlags();
  flags.push_back({.name = "stale-gradients",
                   .initial = "as-is",
                   .help = "how stale gradients are applied, unchanged or divided by the staleness",
                   .choices = {"as-is", "divide"}});
  return flags;
}

AsyncOptions AsyncOptionsOf(const Launch& launch) {
  return {.common = ServerOptionsOf(launch),
          .divide_by_staleness = launch.flag("stale-gradients") == "divide"};
}

}  // namespace tutti
