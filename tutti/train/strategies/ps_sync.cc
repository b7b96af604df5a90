// Between-graph replication with variables on parameter servers, in step: an update is made from
// the sum of the gradients of `workers - K` workers (ps/sync_step.cc draws it).
//
// Gradients travel as sums over samples, and their number with them, as in allreduce.cc: a worker
// with fewer samples counts less, one with none counts nothing. Accumulators add in the order of
// workers, so the result depends neither on who comes first nor on the number of servers.
//
// The update is built once, from the sums, and the chief runs it, on a thread beside its own worker
// (ps/sync_driver.cc): so a slow chief is a slow worker and nothing more.
#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/train/strategies/ps/join_servers.h"
#include "tutti/train/strategies/ps/queue_peers.h"
#include "tutti/train/strategies/ps/sync.h"
#include "tutti/train/strategies/ps/sync_counts.h"
#include "tutti/train/strategies/ps/sync_step.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

constexpr const char* kScope = "ps-sync";

Output As(Output value, DType dtype) { return value.dtype() == dtype ? value : Cast(value, dtype); }

// A mean over this worker's samples as a sum; 0 where there are none, whatever the mean is then.
Output Counted(Output mean, Output samples) {
  return Select(Greater(samples, 0.0f), Mul(mean, As(samples, mean.dtype())), ZerosLike(mean));
}

Output Element(Output vector, int64_t index) {
  return StridedSlice(vector, {.begin = {index}, .end = {index + 1}, .shrink_mask = 1});
}

struct SyncNodes final : StrategyNodes {
  std::shared_ptr<SyncStep> step;
  GradientCheck check;
  Output samples;  // of all admitted workers, float64
  Output values;   // SyncCounts, as every worker is told
};

class SyncStrategy final : public ServersStrategy {
 public:
  SyncStrategy(ParameterServers servers, const SyncOptions& options)
      : ServersStrategy(
            std::move(servers), options.common,
            options.backups > 0 ? QueuePeers::Losses::kAreLeftOut : QueuePeers::Losses::kEndTheJob),
        backups_(options.backups) {}

  std::string_view name() const override { return "ps-sync"; }
  int BatchesPerUpdate() const override { return servers().workers - backups_; }
  std::string UpdateDevice() const override { return first_server(); }

  Output Differentiated(const WorkerStep& step) const override {
    NameScope scope(step.loss.graph(), kScope);
    const DeviceScope device(step.loss.graph(), step.loss.node->device());
    return Mul(step.loss, As(step.samples, step.loss.dtype()));
  }

  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    Graph& graph = step.loss.graph();
    NameScope scope(graph, kScope);
    auto nodes = std::make_shared<SyncNodes>();
    nodes->check = CheckGradients(list, options().wire);
    nodes->step =
        std::make_shared<SyncStep>(graph, SyncStepOptions{.device = first_server(),
                                                          .admit = servers().workers - backups_,
                                                          .workers = servers().workers,
                                                          .wire = options().wire});
    const Output counts = nodes->step->Summed(OwnCounts(step, nodes->check), first_server());
    std::vector<GradientAndVariable> summed(list.begin(), list.end());
    for (GradientAndVariable& entry : summed) nodes->step->Sum(entry);
    nodes->samples = Element(counts, SyncCounts::kSamples);
    const Output bad = Element(counts, SyncCounts::kBad);
    const Output inverse = Div(1.0, Maximum(nodes->samples, 1.0));
    const Output loss = Mul(Element(counts, SyncCounts::kLoss), inverse);
    nodes->values = Pack({nodes->samples, Element(counts, SyncCounts::kStop), loss, bad});
    // Nothing changes without samples, and by a sum that is not finite.
    const Output applies = LogicalAnd(Greater(nodes->samples, 0.0), Equal(bad, 0.0));
    const Output scale = Mul(inverse, Cast(applies, kFloat64));
    for (GradientAndVariable& entry : summed) {
      if (!entry.gradient.empty()) entry = Scaled(entry, scale);
    }
    *joint = {.loss = Cast(loss, kFloat32),
              .samples = Cast(nodes->samples, kFloat32),
              .stop = Cast(Element(counts, SyncCounts::kStop), kFloat32),
              .how = How(),
              .nodes = nodes};
    return summed;
  }

  std::vector<Output> AggregateState(std::span<const Output> changes, const WorkerStep& step,
                                     const JointStep& joint) const override {
    Graph& graph = step.loss.graph();
    NameScope scope(graph, kScope);
    auto& nodes = static_cast<SyncNodes&>(*joint.nodes);
    const Output inverse = Div(1.0, Maximum(nodes.samples, 1.0));
    std::vector<Output> joined;
    for (const Output& change : changes) {
      Output counted;
      {
        const DeviceScope worker(graph, change.node->device());
        counted = Counted(change, step.samples);
      }
      const Output sum = nodes.step->Summed(counted, first_server());
      joined.push_back(Mul(sum, As(inverse, change.dtype())));
    }
    return joined;
  }

  void Complete(StepNodes& nodes, const WorkerStep& step) const override {
    NameScope scope(step.loss.graph(), kScope);
    auto& own = static_cast<SyncNodes&>(*nodes.joint.nodes);
    own.step->Finish(nodes.update, own.values);
  }

  std::unique_ptr<StepDriver> MakeDriver(Session& session, const StepNodes& nodes,
                                         const StepRange& range) const override {
    const auto& own = static_cast<const SyncNodes&>(*nodes.joint.nodes);
    return std::make_unique<SyncDriver>(session, own.step, range, queue_peers(), own.check,
                                        options().skip_bad);
  }

 private:
  // On the worker.
  Output OwnCounts(const WorkerStep& step, const GradientCheck& check) const {
    const DeviceScope device(step.loss.graph(), step.loss.node->device());
    const Output bad = Sub(1.0, Cast(check.all, kFloat64));
    return Pack({As(step.samples, kFloat64), As(step.stop, kFloat64),
                 Counted(As(step.loss, kFloat64), step.samples), bad});
  }

  std::string How() const {
    if (backups_ == 0) return "the gradients of all workers make an update";
    return fmt::format("the first {} of {} workers to have their gradients make an update",
                       servers().workers - backups_, servers().workers);
  }

  const int backups_;
};

// K of "backup=K"; 0 of "". -1 if the text is neither.
int BackupsOf(std::string_view text) {
  constexpr std::string_view kName = "backup=";
  constexpr int64_t kMost = 1 << 20;
  if (text.empty()) return 0;
  if (!text.starts_with(kName)) return -1;
  const int64_t backups = WholeNumber(text.substr(kName.size()), 0);
  return backups <= kMost ? int(backups) : -1;
}

void CheckBackups(int backups, int workers) {
  if (backups >= 0 && backups < workers) return;
  ThrowInvalidArgument(fmt::format(
      "--strategy ps-sync:backup={}: there are {} workers; expected 0 to {}, so that at "
      "least one makes an update",
      backups, workers, workers - 1));
}

}  // namespace

std::shared_ptr<const Strategy> MakeSyncStrategy(ParameterServers servers,
                                                 const SyncOptions& options) {
  RequireServers(servers, "ps-sync");
  CheckBackups(options.backups, servers.workers);
  return std::make_shared<SyncStrategy>(std::move(servers), options);
}

StrategyDef PsSyncStrategyDef() {
  return {.name = "ps-sync",
          .summary = "variables on parameter servers, workers in step, K of them backups",
          .argument = {.syntax = "[backup=K]",
                       .expected =
                           [](std::string_view text) {
                             return BackupsOf(text) >= 0 ? "" : "K a whole number from 0 on";
                           }},
          .others = {{"ps", ServeVariables}},
          .flags = ServerFlags(),
          .make = [](const Launch& launch) {
            const SyncOptions options = {.common = ServerOptionsOf(launch),
                                         .backups = BackupsOf(launch.argument())};
            CheckBackups(options.backups,
                         int(launch.task == nullptr ? 1 : launch.task->cluster.Trainers().size()));
            return MakeSyncStrategy(JoinServers(launch, "ps-sync"), options);
          }};
}

}  // namespace tutti
