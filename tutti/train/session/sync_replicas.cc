// The nodes of a synchronous step are drawn in strategies/ps/sync_step.cc. Here is what runs them
// without an Estimator, where workers and chief may be lost and started again at any time.
//
// Gates, accumulators and token queues live on ps tasks and outlive whoever uses them. So that
// nothing of a step that was broken off is taken for part of a later one, steps are fed to them as
//
//   generation * 2^40 + global step
//
// and a token says the same, with one bit more when the training is over. The generation grows each
// time the chief gives the variables their values (training_session.cc). What is left of an older
// generation is older than all steps of the new one: accumulators and gates forget it.
//
//   a worker is lost            the update waits; started again, it reads the step and pushes
//                               to it; what it had pushed before counts once
//   the chief is lost           no update is made; started again, it goes back to its checkpoint
//                               under a new generation, and wakes the workers, who wait for tokens
//                               of the old one, with a token for the step to go on with
//   a ps is lost                the steps of all fail, all make new sessions and wait for
//                               the chief, which goes back to its checkpoint
#include "tutti/train/session/sync_replicas.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/source.h"
#include "tutti/train/strategies/ps/sync_step.h"

namespace tutti {
namespace {

constexpr const char* kScope = "sync_replicas";
constexpr int kStepBits = 40;
constexpr int64_t kOver = int64_t{1} << (kStepBits - 1);  // in a token: there are no more steps
// A worker that has left so many tokens is gone or stuck, and gets no more until it takes them.
constexpr int64_t kMostTokens = 1024;

Output Element(Output vector, int64_t index) {
  return StridedSlice(vector, {.begin = {index}, .end = {index + 1}, .shrink_mask = 1});
}

class ReplicasHook final : public Hook {
 public:
  ReplicasHook(std::shared_ptr<const SyncStep> sync, double patience_seconds)
      : sync_(std::move(sync)),
        patience_(std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::duration<double>(patience_seconds))) {}
  ~ReplicasHook() override { StopUpdates(); }

  bool KeepsLiveState() const override { return false; }

  void OnSession(const SessionStart& start) override {
    session_ = &start.session;
    worker_ = start.worker;
    is_chief_ = start.is_chief;
    if (worker_ < 0 || worker_ >= sync_->options().workers) {
      ThrowInvalidArgument(
          fmt::format("SyncReplicas: this is worker {}, and SyncReplicasOptions::total is {}; "
                      "expected a worker "
                      "from 0 to {}",
                      worker_, sync_->options().workers, sync_->options().workers - 1));
    }
    step_ = (start.generation << kStepBits) + start.step;
    {
      const std::lock_guard lock(mutex_);
      failure_.reset();
      stop_ = std::stop_source();
    }
    if (!is_chief_) return TakeOldTokens();
    Wake(step_);
    const int64_t end = (start.generation << kStepBits) + start.max_steps;
    updates_ = ValueOrThrow(StartThread("the thread that makes the updates",
                                        [this, first = step_, end] { MakeUpdates(first, end); }));
  }

  void BeforeRun(SessionRun& run) override {
    AddFeeds(run.feeds);
    at_ = run.fetches.size();
    if (sync_->has_backups()) {
      run.fetches.push_back(sync_->admitted);
    } else {
      run.fetches.push_back(release().step);
    }
    run.options.timeout = patience_;
    run.options.stop = stop_.get_token();
  }

  void AfterRun(SessionRun& run, std::span<const Tensor> fetched) override {
    int64_t token = 0;
    if (sync_->has_backups()) {
      // The gradients are held on the worker until it is known whether they count.
      const bool admitted = fetched[at_].scalar<bool>();
      token = Await(admitted ? sync_->send_held : sync_->drop_held);
    } else {
      token = fetched[at_].scalar<int64_t>();
    }
    // Tokens of a generation before this one are left over.
    while (token >> kStepBits < step_ >> kStepBits) token = Await(nullptr);
    run.over = (token & kOver) != 0;
    step_ = token & ~kOver;
    run.step = token & (kOver - 1);
  }

  void OnRunError(const Error& /*error*/) override {
    const std::lock_guard lock(mutex_);
    if (failure_) throw Error(*failure_);
  }

  void OnSessionEnd(bool well) override {
    StopUpdates();
    if (well && is_chief_ && session_ != nullptr) Wake(step_ | kOver);
    session_ = nullptr;
  }

 private:
  const SyncStep::Release& release() const { return sync_->release[size_t(worker_)]; }

  void AddFeeds(std::vector<Feed>& feeds) const {
    feeds.emplace_back(sync_->worker, Tensor::Scalar<int64_t>(worker_));
    feeds.emplace_back(sync_->step, Tensor::Scalar<int64_t>(step_));
  }

  // Waits for a token, with `target` if there is one.
  int64_t Await(const Node* target) {
    std::vector<Feed> feeds;
    if (target != nullptr) AddFeeds(feeds);
    const Output fetches[] = {release().step};
    const std::span<const Node* const> targets(&target, target == nullptr ? 0 : 1);
    return session_
        ->Run(feeds, fetches, targets, {.timeout = patience_, .stop = stop_.get_token()})[0]
        .scalar<int64_t>();
  }

  // What an earlier self of this worker has not taken.
  void TakeOldTokens() {
    const Output waiting = sync_->waiting_tokens[size_t(worker_)];
    if (session_->Run(waiting).scalar<int64_t>() == 0) return;
    step_ = std::max(step_, Await(nullptr) & ~kOver);
  }

  void Wake(int64_t step) {
    const std::vector<Feed> feeds = {{sync_->update_step, Tensor::Scalar<int64_t>(step)}};
    std::vector<const Node*> targets;
    for (size_t w = 0; w < sync_->wake.size(); ++w) {
      // The chief's worker needs no waking.
      if (int(w) != worker_) targets.push_back(sync_->wake[w]);
    }
    if (!targets.empty()) session_->Run(feeds, {}, targets, {.timeout = patience_});
  }

  void StopUpdates() {
    stop_.request_stop();
    if (updates_.joinable()) updates_.join();
  }

  void MakeUpdates(int64_t step, int64_t end) {
    try {
      std::vector<int64_t> waiting(sync_->tokens.size(), 0);
      for (; step < end; ++step) {
        std::vector<const Node*> targets = {sync_->update};
        for (size_t w = 0; w < waiting.size(); ++w) {
          if (waiting[w] < kMostTokens) targets.push_back(sync_->tokens[w]);
        }
        const std::vector<Feed> feeds = {{sync_->update_step, Tensor::Scalar<int64_t>(step)}};
        const auto fetched =
            session_->Run(feeds, sync_->waiting_tokens, targets, {.stop = stop_.get_token()});
        for (size_t w = 0; w < waiting.size(); ++w) waiting[w] = fetched[w].scalar<int64_t>();
      }
    } catch (const Error& error) {
      if (stop_.stop_requested()) return;
      {
        const std::lock_guard lock(mutex_);
        failure_ = Error(error.code(), fmt::format("the update failed: {}", error.what()));
      }
      // Nobody would be released any more.
      stop_.request_stop();
    }
  }

  const std::shared_ptr<const SyncStep> sync_;
  const std::chrono::nanoseconds patience_;
  Session* session_ = nullptr;
  int worker_ = 0;
  bool is_chief_ = false;
  int64_t step_ = 0;  // with its generation
  size_t at_ = 0;     // of its fetches in those of a run
  std::mutex mutex_;
  std::optional<Error> failure_;  // of the updates
  std::stop_source stop_;
  std::thread updates_;
};

}  // namespace

SyncReplicas::SyncReplicas(std::shared_ptr<const Optimizer> optimizer,
                           const SyncReplicasOptions& options)
    : optimizer_(std::move(optimizer)), options_(options) {
  if (optimizer_ == nullptr) ThrowInvalidArgument("SyncReplicas: the optimizer is null");
  if (options_.aggregate == 0) options_.aggregate = options_.total;
  if (options_.total < 1 || options_.aggregate < 1 || options_.aggregate > options_.total) {
    ThrowInvalidArgument(
        fmt::format("SyncReplicas: aggregate is {} and total {}; expected 1 <= aggregate <= total, "
                    "since a worker gives one gradient to an update",
                    options_.aggregate, options_.total));
  }
  if (!(options_.patience_seconds > 0)) {
    ThrowInvalidArgument(fmt::format("SyncReplicas: patience_seconds is {}; expected more than 0",
                                     options_.patience_seconds));
  }
}

const Node* SyncReplicas::Apply(std::span<const GradientAndVariable> list) {
  if (step_ != nullptr) ThrowInvalidArgument("SyncReplicas::Apply: it was called before");
  if (list.empty()) ThrowInvalidArgument("SyncReplicas::Apply: the list is empty");
  Graph& graph = list.front().variable.graph();
  const Output global_step = GlobalStep(graph);
  const std::string device = options_.device.empty() ? global_step.node->device() : options_.device;
  NameScope scope(graph, kScope);
  step_ = std::make_shared<SyncStep>(graph, SyncStepOptions{.device = device,
                                                            .admit = options_.aggregate,
                                                            .workers = options_.total,
                                                            .wire = options_.wire,
                                                            .once = true});
  const GradientCheck check = CheckGradients(list, options_.wire);
  // How many gave gradients, and how many of these are not finite.
  const Output own = Pack({Constant(graph, 1.0), Sub(1.0, Cast(check.all, kFloat64))});
  const Output counts = step_->Summed(own, device);
  std::vector<GradientAndVariable> mean(list.begin(), list.end());
  for (GradientAndVariable& entry : mean) step_->Sum(entry);
  const DeviceScope on(graph, device);
  const Output inverse = Div(1.0, Maximum(Element(counts, 0), 1.0));
  const Output scale = Mul(inverse, Cast(Equal(Element(counts, 1), 0.0), kFloat64));
  for (GradientAndVariable& entry : mean) {
    if (!entry.gradient.empty()) entry = Scaled(entry, scale);
  }
  const auto join_state = [&](std::span<const StateChange> changes) {
    std::vector<StateChange> joined(changes.begin(), changes.end());
    for (StateChange& entry : joined) {
      const Output sum = step_->Summed(entry.change, entry.variable.node->device());
      entry.change = Mul(sum, sum.dtype() == kFloat64 ? inverse : Cast(inverse, sum.dtype()));
    }
    return joined;
  };
  Output counted;
  const Node* const update = optimizer_->Apply(
      mean,
      {.counted = &counted, .computed = {list.begin(), list.end()}, .join_state = join_state});
  step_->Finish(update, counts);
  return step_->push;
}

std::shared_ptr<Hook> SyncReplicas::MakeHook() const {
  if (step_ == nullptr) {
    ThrowInvalidArgument("SyncReplicas::MakeHook: call Minimize or Apply first");
  }
  return std::make_shared<ReplicasHook>(step_, options_.patience_seconds);
}

}  // namespace tutti
