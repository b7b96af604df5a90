// Every variable has a ledger beside it, on its device, with the newest push of each worker:
//
//   worker w, push p                 device of the variable
//   gradient  ---------------------> enter (w, p) into the ledger: 1 if it is newer, else 0
//                                    update, with that as its scale; a scale of 0 changes nothing
//                                    confirm (w, p)
//
// When a run fails, each device takes back what was entered and not confirmed. So a run that is
// made again with the same number updates the variables that it had not updated. There is one
// ledger for each variable, because a run may fail between two updates on one device. An update
// counts twice only if the run fails after it and before its confirmation, which is the next node.
//
// The number of a push is generation * 2^40 + the global step that the worker knew before, or a
// larger one. A run that is made again keeps its number, unless the chief has restored the
// variables since: then nothing is left of what the run had applied.
#include "tutti/train/session/async_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tutti/base/status.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/sync.h"

namespace tutti {

struct AsyncReplicas::Nodes {
  Output worker, push;  // placeholders
  Output counted;       // the global step after the update
  int total = 1;
};

namespace {

constexpr const char* kScope = "async_replicas";
constexpr int kStepBits = 40;

// The ledgers of variables, and what is entered into them.
class Ledgers {
 public:
  Ledgers(int total, Output worker, Output push) : total_(total), worker_(worker), push_(push) {}

  // Does the push count for `variable`? A scalar of `dtype`, 0 or 1.
  Output Counts(Output variable, DType dtype) {
    const DeviceScope device(variable.graph(), *variable.node);
    auto [found, is_new] = entries_.try_emplace(variable);
    if (is_new) {
      found->second.ledger = Ledger(variable.graph(), total_, variable.node->name());
      found->second.entered = LedgerEnter(found->second.ledger, worker_, push_);
    }
    return Cast(found->second.entered, dtype);
  }
  // Runs after the update of `variable`.
  const Node* Confirm(Output variable, const Node* update) const {
    const DeviceScope device(variable.graph(), *variable.node);
    const ControlScope after(variable.graph(), {update});
    return LedgerConfirm(entries_.at(variable).ledger, worker_, push_);
  }

 private:
  struct Entry {
    Output ledger, entered;
  };
  const int total_;
  const Output worker_, push_;
  std::unordered_map<Output, Entry, OutputHash> entries_;
};

}  // namespace

AsyncReplicas::AsyncReplicas(std::shared_ptr<const Optimizer> optimizer,
                             const AsyncReplicasOptions& options)
    : optimizer_(std::move(optimizer)), options_(options) {
  if (optimizer_ == nullptr) ThrowInvalidArgument("AsyncReplicas: the optimizer is null");
  if (options_.total < 1) {
    ThrowInvalidArgument(
        fmt::format("AsyncReplicas: total is {}; expected 1 or more workers", options_.total));
  }
}

AsyncReplicas::~AsyncReplicas() = default;

const Node* AsyncReplicas::Apply(std::span<const GradientAndVariable> list) {
  if (nodes_ != nullptr) ThrowInvalidArgument("AsyncReplicas::Apply: it was called before");
  if (list.empty()) ThrowInvalidArgument("AsyncReplicas::Apply: the list is empty");
  Graph& graph = list.front().variable.graph();
  const Output global_step = GlobalStep(graph);
  NameScope scope(graph, kScope);
  auto nodes = std::make_shared<Nodes>();
  nodes->total = options_.total;
  nodes->worker = Placeholder(graph, kInt64, Shape{}, "worker");
  nodes->push = Placeholder(graph, kInt64, Shape{}, "push");
  Ledgers ledgers(options_.total, nodes->worker, nodes->push);
  std::vector<GradientAndVariable> counted(list.begin(), list.end());
  for (GradientAndVariable& entry : counted) {
    if (entry.gradient.empty()) continue;
    entry = Scaled(entry, ledgers.Counts(entry.variable, kFloat32));
  }
  const auto join_state = [&](std::span<const StateChange> changes) {
    std::vector<StateChange> joined(changes.begin(), changes.end());
    for (StateChange& entry : joined) {
      const DeviceScope device(graph, *entry.variable.node);
      const Output counts = ledgers.Counts(entry.variable, kBool);
      entry.change = Select(counts, entry.change, ZerosLike(entry.change));
    }
    return joined;
  };
  const Node* const updates = optimizer_->Apply(
      counted,
      {.count_step = false, .computed = {list.begin(), list.end()}, .join_state = join_state});
  std::vector<const Node*> all = {updates};
  // The updates of the list in its order, then those of moving averages.
  auto entry = counted.begin();
  for (const Node* const update : updates->control_inputs()) {
    while (entry != counted.end() && entry->gradient.empty()) ++entry;
    const Output variable = entry != counted.end() ? (entry++)->variable : update->input(0);
    all.push_back(ledgers.Confirm(variable, update));
  }
  {
    const DeviceScope device(graph, *global_step.node);
    nodes->counted = AssignAdd(global_step, ledgers.Counts(global_step, kInt64));
  }
  all.push_back(ledgers.Confirm(global_step, nodes->counted.node));
  nodes_ = std::move(nodes);
  return Group(graph, all);
}

class AsyncReplicas::PushHook final : public Hook {
 public:
  explicit PushHook(std::shared_ptr<const Nodes> nodes) : nodes_(std::move(nodes)) {}

  void OnSession(const SessionStart& start) override {
    if (start.worker < 0 || start.worker >= nodes_->total) {
      ThrowInvalidArgument(
          fmt::format("AsyncReplicas: this is worker {}, and AsyncReplicasOptions::total is {}; "
                      "expected a worker from 0 to {}",
                      start.worker, nodes_->total, nodes_->total - 1));
    }
    worker_ = start.worker;
    if (start.generation != generation_) again_ = false;
    generation_ = start.generation;
    step_ = start.step;
  }

  void BeforeRun(SessionRun& run) override {
    if (!again_) push_ = std::max(push_ + 1, (generation_ << kStepBits) + step_);
    again_ = true;
    run.feeds.emplace_back(nodes_->worker, Tensor::Scalar<int64_t>(worker_));
    run.feeds.emplace_back(nodes_->push, Tensor::Scalar<int64_t>(push_));
    at_ = run.fetches.size();
    run.fetches.push_back(nodes_->counted);
  }

  void AfterRun(SessionRun& run, std::span<const Tensor> fetched) override {
    run.step = step_ = fetched[at_].scalar<int64_t>();
    again_ = false;
  }

  void OnRunError(const Error& error) override {
    // After these errors the session runs the step again.
    again_ = error.code() == Code::kUnavailable || error.code() == Code::kAborted;
  }

 private:
  const std::shared_ptr<const Nodes> nodes_;
  int64_t worker_ = 0, generation_ = 0, step_ = 0;
  int64_t push_ = -1;   // the number of the newest run
  bool again_ = false;  // the next run is the newest once more
  size_t at_ = 0;       // of its fetch in those of a run
};

std::shared_ptr<Hook> AsyncReplicas::MakeHook() const {
  if (nodes_ == nullptr) {
    ThrowInvalidArgument("AsyncReplicas::MakeHook: call Minimize or Apply first");
  }
  return std::make_shared<PushHook>(nodes_);
}

}  // namespace tutti
