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
// Batches have numbers, and a counter on the first server gives each out once: whatever the speed
// of the workers, an epoch has every sample once. A step claims the number for the next one, so the
// claim costs no message of its own.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>

#include "tutti/base/status.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"
#include "tutti/nn/initializers.h"
#include "tutti/nn/variables.h"
#include "tutti/train/optimizers/optimizer.h"
#include "tutti/train/strategies/ps/async.h"
#include "tutti/train/strategies/ps/queue_peers.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

constexpr const char* kScope = "ps-async";
constexpr const char* kStopRequests = "ps-async/stop_requests";

double NumberOf(const Tensor& scalar) {
  return scalar.dtype() == kFloat64 ? scalar.scalar<double>() : double(scalar.scalar<float>());
}

// In the graphs of all workers the same: the worker is fed.
struct AsyncNodes final : StrategyNodes {
  GradientCheck check;
  Output worker;               // placeholder, int64
  Output read_step;            // the global step that the variables were read at
  Output counted;              // the global step after the update
  Output claimed;              // one more than the number of the next batch
  const Node* step = nullptr;  // update, and wait where the strategy bounds the staleness
  const Node* leave = nullptr;
};

class AsyncDriver final : public StepDriver {
 public:
  AsyncDriver(Session& session, const StepNodes& nodes, const AsyncNodes& own,
              const StepRange& range, std::shared_ptr<QueuePeers> peers, bool skip_bad)
      : session_(session),
        own_(own),
        fetches_{nodes.joint.loss, nodes.joint.samples, nodes.joint.stop, own.read_step,
                 own.counted,      own.claimed,         own.check.finite},
        step_(range.first),
        end_(range.end),
        peers_(std::move(peers)),
        worker_(own.worker, Tensor::Scalar<int64_t>(peers_->rank())),
        skip_bad_(skip_bad) {
    if (step_ < end_) batch_ = session_.Run(own.claimed).scalar<int64_t>() - 1;
  }
  ~AsyncDriver() override {
    try {
      Leave();
    } catch (const Error&) {
      // The servers are gone, and whoever would wait with them.
    }
  }

  int64_t NextBatch() override { return step_ < end_ ? batch_ : -1; }

  StepResult Run(std::span<const Feed> feeds, const RunOptions& options) override {
    feeds_.assign(feeds.begin(), feeds.end());
    feeds_.push_back(worker_);
    RunOptions stoppable = options;
    stoppable.stop = peers_->aborted();
    try {
      session_.RunInto(feeds_, fetches_, std::span(&own_.step, 1), fetched_, stoppable);
    } catch (const Error& error) {
      peers_->Rethrow(error);
    }
    step_ = fetched_[kCounted].scalar<int64_t>();
    batch_ = fetched_[kClaimed].scalar<int64_t>() - 1;
    StepResult result = {.step = step_,
                         .loss = NumberOf(fetched_[kLoss]),
                         .samples = NumberOf(fetched_[kSamples]),
                         .stop = fetched_[kStop].scalar<float>() > 0,
                         .bad = FirstBad(own_.check, fetched_[kFinite])};
    if (result.bad.empty()) {
      ++staleness_[step_ - 1 - fetched_[kReadStep].scalar<int64_t>()];
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
    return facts;
  }

 private:
  enum { kLoss, kSamples, kStop, kReadStep, kCounted, kClaimed, kFinite, kFetches };

  Session& session_;
  const AsyncNodes own_;
  const std::array<Output, kFetches> fetches_;
  std::array<Tensor, kFetches> fetched_;
  std::vector<Feed> feeds_;
  int64_t step_;
  const int64_t end_;
  int64_t batch_ = -1;
  const std::shared_ptr<QueuePeers> peers_;
  const Feed worker_;
  const bool skip_bad_;
  bool left_ = false;
  std::map<int64_t, int64_t> staleness_;  // how many gradients had which
  int64_t skipped_ = 0;
};

class AsyncStrategy final : public ServersStrategy {
 public:
  AsyncStrategy(ParameterServers servers, const AsyncOptions& options)
      : ServersStrategy(std::move(servers), options.common), async_(options) {}

  std::string_view name() const override { return async_.most_lead < 0 ? "ps-async" : "ps-ssp"; }
  bool InLockstep() const override { return false; }
  int BatchesPerUpdate() const override { return 1; }

  Output Differentiated(const WorkerStep& step) const override { return step.loss; }

  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    Graph& graph = step.loss.graph();
    NameScope scope(graph, kScope);
    auto nodes = std::make_shared<AsyncNodes>();
    nodes->check = CheckGradients(list);
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
    *joint = {step.loss, step.samples, AssignAdd(StopRequests(graph), step.stop), How(), nodes};
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
    own.claimed = AssignAdd(Counter(graph, "next_batch", kInt64), int64_t{1});
    own.step = nodes.update;
    if (async_.most_lead < 0) return;
    const Output clock = Clock(graph, servers().workers, "clock");
    own.leave = ClockLeave(clock, own.worker);
    const ControlScope updated(graph, {nodes.update});
    const Output time = ClockAdvance(clock, own.worker);
    const ControlScope advanced(graph, {time.node});
    own.step = ClockWait(clock, own.worker, async_.most_lead).node;
  }

  void Initialize(Graph& graph, Session& session) const override {
    if (servers().rank == 0) {
      session.Initialize();
      // A training that was stopped and is taken up again goes on.
      for (const Output& variable : nn::Variables(graph)) {
        if (!variable.node->name().ends_with(kStopRequests)) continue;
        session.Run(Assign(variable, 0.0f));
      }
    }
    peers().Gather("initialised by worker 0", "");
  }

  std::unique_ptr<StepDriver> MakeDriver(Session& session, const StepNodes& nodes,
                                         const StepRange& range) const override {
    return std::make_unique<AsyncDriver>(session, nodes,
                                         static_cast<const AsyncNodes&>(*nodes.joint.nodes), range,
                                         queue_peers(), options().skip_bad);
  }

 private:
  // A variable of the strategy's own; scalars that do not train are on the first server.
  static Output Counter(Graph& graph, std::string_view name, DType dtype) {
    return Variable(graph, Zeros({}, dtype), name, {.trainable = false});
  }
  static Output StopRequests(Graph& graph) { return Counter(graph, "stop_requests", kFloat32); }

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

}  // namespace tutti
