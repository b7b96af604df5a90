// How workers that share nothing but variables on ps tasks begin together, and begin again after
// one of these tasks was lost.
//
// Every device that has variables of the graph has one more, the generation: 0 while the chief
// gives values, then a number that grows each time it does. A chief that leaves the values gives
// all devices the number that the newest of them have.
//
//   chief                                          another worker
//   all variables have values, and hooks agree:
//     leaves them
//   else: generations := 0
//     first values, then those of the checkpoint   waits until all variables have values,
//     generations := largest so far + 1            then until all generations are one number
//
// A worker looks at the values first and at the generations in a later run. So when it finds all
// values, a chief that is giving new ones has set the generations to 0 before, and the worker goes
// on to wait.
//
// The generations are in a graph of their own: checkpoints keep the variables of the training's
// graph alone.
#include "tutti/train/session/training_session.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <set>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/cluster/server.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/text/format.h"
#include "tutti/nn/initializers.h"
#include "tutti/train/checkpoints/checkpoints.h"
#include "tutti/train/estimator/agreement.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/hooks/hook_list.h"
#include "tutti/train/optimizers/optimizer.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/ps/placer.h"

namespace tutti {
namespace {

constexpr auto kLook = std::chrono::milliseconds(20);  // for the chief, and for lost tasks

// Tells a RunConfig who leads. Nothing is exchanged: workers meet in their variables.
class LoopPeers final : public Peers {
 public:
  LoopPeers(int workers, int rank) : workers_(workers), rank_(rank) {}
  int workers() const override { return workers_; }
  int rank() const override { return rank_; }
  std::vector<std::string> Gather(std::string_view /*what*/, std::string_view own) override {
    return {std::string(own)};
  }
  void Sum(std::string_view /*what*/, std::span<double> /*values*/) override {}
  void Abort(Code /*code*/, std::string_view /*message*/) override {}
  std::string Failure() const override { return ""; }
  CommunicationStats stats() const override { return {}; }

 private:
  const int workers_;
  const int rank_;
};

class LoopStrategy final : public Strategy {
 public:
  LoopStrategy(int workers, int rank) : Strategy(std::make_shared<LoopPeers>(workers, rank)) {}
  std::string_view name() const override { return "training-session"; }
  bool InLockstep() const override { return false; }
  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& /*step*/,
                                             JointStep* /*joint*/) const override {
    return {list.begin(), list.end()};
  }
};

// Is it what the loss of a task gives, which another session may cure?
bool IsLoss(const Error& error) {
  return error.code() == Code::kUnavailable || error.code() == Code::kAborted;
}

double NumberOf(const Tensor& scalar) {
  return scalar.dtype() == kFloat64 ? scalar.scalar<double>() : double(scalar.scalar<float>());
}

// What workers tell each other beside the graph of the training: see above.
class Meeting {
 public:
  Meeting(const std::set<std::string>& devices, const std::string& first) {
    value_ = Placeholder(graph_, kInt64, Shape{}, "generation");
    for (const std::string& device : devices) {
      const DeviceScope on(graph_, device);
      const Output generation =
          Variable(graph_, Zeros({}, kInt64), fmt::format("training_session/{}", devices_.size()),
                   {.trainable = false});
      generations_.push_back(generation);
      known_.push_back(IsInitialized(generation));
      assign_.push_back(Assign(generation, value_).node);
      devices_.push_back(device);
    }
    const DeviceScope on(graph_, first);
    const Output ended =
        FIFOQueue(graph_, {{kInt64, Shape{}}}, {.capacity = 1 << 16}, "training_session/ended");
    tell_ = Enqueue(ended, {value_});
    hear_ = Dequeue(ended)[0];
  }

  void Open(const SessionOptions& options) { session_.emplace(graph_, options); }
  void Close() { session_.reset(); }

  // The largest one; 0 where there is none.
  int64_t Largest() {
    return Fold([](int64_t a, int64_t b) { return std::max(a, b); });
  }
  // The one that all devices have; 0 if they do not.
  int64_t Common() {
    return Fold([](int64_t a, int64_t b) { return a == b ? a : 0; });
  }
  void Set(int64_t generation) {
    const std::vector<Feed> feeds = {{value_, Tensor::Scalar(generation)}};
    session_->Run(feeds, {}, assign_);
  }

  void TellEnd(int64_t worker, std::chrono::nanoseconds patience) {
    session_->RunTargets({{value_, Tensor::Scalar(worker)}}, {tell_}, {.timeout = patience});
  }
  void AwaitEnd(std::chrono::nanoseconds patience) { session_->Run(hear_, {.timeout = patience}); }

 private:
  template <typename Join>
  int64_t Fold(const Join& join) {
    const std::vector<Tensor> known = session_->Run(std::span<const Feed>(), known_);
    std::vector<Output> there;
    for (size_t i = 0; i < known.size(); ++i) {
      if (known[i].scalar<bool>()) there.push_back(generations_[i]);
    }
    if (there.empty()) return 0;
    const std::vector<Tensor> values = session_->Run(std::span<const Feed>(), there);
    int64_t joined = there.size() == generations_.size() ? -1 : 0;
    for (const Tensor& value : values) {
      joined = joined < 0 ? value.scalar<int64_t>() : join(joined, value.scalar<int64_t>());
    }
    return std::max<int64_t>(joined, 0);
  }

  Graph graph_;
  std::optional<Session> session_;
  Output value_;  // placeholder
  std::vector<std::string> devices_;
  std::vector<Output> generations_, known_;
  std::vector<const Node*> assign_;
  const Node* tell_ = nullptr;
  Output hear_;
};

std::set<std::string> DevicesOf(std::span<const SavedName> variables) {
  std::set<std::string> devices;
  for (const SavedName& variable : variables) devices.insert(variable.variable.node->device());
  return devices;
}

}  // namespace

class TrainingSession::Impl {
 public:
  Impl(Graph& graph, const TrainingSessionOptions& options)
      : graph_(graph),
        options_(options),
        config_(options.run),
        global_step_(GlobalStep(graph)),
        variables_(SavedNames(graph)),
        fingerprint_(Digest(ToText(graph))),
        meeting_(DevicesOf(variables_), global_step_.node->device()) {
    CheckOptions();
    config_.role = fmt::format("worker {}", options.worker);
    config_.strategy = "training-session";
    config_.strategy_object = std::make_shared<LoopStrategy>(
        options.workers, options.is_chief ? 0 : std::max(1, options.worker));
    for (const SavedName& variable : variables_) known_.push_back(IsInitialized(variable.variable));
    training_.spec.loss = options.loss;
    training_.model_nodes = graph.size();
    if (options.loss) hooks_.Add(MakeNanHook(config_));
    for (const auto& hook : options.hooks) hooks_.Add(hook);
    OpenSession();
    // The profiler counts from the step that the session begins with.
    hooks_.Add(MakeProfilerHook(config_, step_, config_.max_steps));
    hooks_.Add(MakeSummaryHook(config_));
    hooks_.Add(MakeLogHook(config_));
    hooks_.Add(MakeProgressHook(config_));
    hooks_.OnStart({config_, graph_, training_, *session_, step_, config_.max_steps, 0});
    began_ = NowNanos();
  }

  bool ShouldStop() const {
    return over_ || step_ >= config_.max_steps || !hooks_.control().reason().empty() ||
           StopRequested();
  }
  int64_t step() const { return step_; }
  Session& session() {
    if (!session_) OpenSession();
    return *session_;
  }

  std::vector<Tensor> Run(std::span<const Feed> feeds, std::span<const Output> fetches,
                          const Node* train) {
    if (closed_) ThrowInvalidArgument("TrainingSession::Run: it is closed");
    for (;;) {
      if (!session_) OpenSession();
      try {
        return RunOnce(feeds, fetches, train);
      } catch (const Error& error) {
        if (!IsLoss(error) || recoveries_ >= options_.recoveries) throw;
        ++recoveries_;
        Tell(fmt::format("step {} failed: {}; making a new session", step_, error.what()));
        CloseSession(/*well=*/false);
      }
    }
  }

  void Close(bool well) {
    if (closed_) return;
    closed_ = true;
    if (!well || !session_) return CloseSession(false);
    hooks_.OnEnd({step_, double(NowNanos() - began_) * 1e-9, {}, 0, *session_});
    const auto patience = std::chrono::duration_cast<std::chrono::nanoseconds>(
        std::chrono::duration<double>(config_.start_timeout));
    if (!options_.is_chief) {
      hooks_.OnSessionEnd(true);
      meeting_.TellEnd(options_.worker, patience);
      return DropSessions();
    }
    hooks_.OnSessionEnd(true);
    const absl::Status saved = checkpoints_->Finish(*session_, step_, 0);
    if (!StopRequested()) {
      checkpoints_->MarkFinished(step_, fmt::format("{} steps", config_.max_steps));
    }
    AwaitOthers(patience);
    DropSessions();
    ThrowIfError(WithPrefix(saved,
                            "the training is done, but its last checkpoint could not be "
                            "written: "));
  }

 private:
  void CheckOptions() const {
    if (options_.workers < 1 || options_.worker < 0 || options_.worker >= options_.workers) {
      ThrowInvalidArgument(
          fmt::format("TrainingSession: worker is {} of {}; expected 0 <= worker < workers",
                      options_.worker, options_.workers));
    }
    const Output& loss = options_.loss;
    if (loss &&
        ((loss.dtype() != kFloat32 && loss.dtype() != kFloat64) || loss.shape().rank() != 0)) {
      ThrowInvalidArgument(fmt::format(
          "TrainingSession: the loss {} is {} {}; expected a scalar of float32 or float64",
          loss.node->Describe(), NameOf(loss.dtype()), loss.shape().ToString()));
    }
  }

  void Tell(std::string_view text) const {
    if (!config_.quiet) {
      FormatTo(stderr, "{}: worker {}: {}\n", config_.program, options_.worker, text);
    }
  }

  // Tries for RunConfig::start_timeout: tasks may be starting, for the first time or again.
  void OpenSession() {
    const int64_t deadline = NowNanos() + int64_t(config_.start_timeout * 1e9);
    for (;;) {
      try {
        session_.emplace(graph_, options_.session);
        meeting_.Open(options_.session);
        if (options_.is_chief) {
          GiveValues();
        } else {
          AwaitChief(deadline);
        }
        step_ = session_->Run(global_step_).scalar<int64_t>();
        hooks_.OnSession(
            {*session_, options_.is_chief, options_.worker, generation_, step_, config_.max_steps});
        // Whoever waits for the generation finds what the hooks have left for it.
        if (options_.is_chief) meeting_.Set(generation_);
        return;
      } catch (const Error& error) {
        CloseSession(/*well=*/false);
        if (!IsLoss(error) || NowNanos() > deadline) throw;
        // Tasks that end with their coordinator do not come back to a server that lost it, too.
        Server* const server = options_.session.server;
        if (server != nullptr && server->JoinFor(std::chrono::milliseconds(0))) throw;
      }
      std::this_thread::sleep_for(kLook);
    }
  }

  void CloseSession(bool well) {
    hooks_.OnSessionEnd(well);
    DropSessions();
  }
  void DropSessions() {
    checkpoints_.reset();  // waits for a save, which uses the session
    meeting_.Close();
    session_.reset();
  }

  // Those that have no value.
  std::vector<const SavedName*> Missing() {
    const std::vector<Tensor> known = session_->Run(std::span<const Feed>(), known_);
    std::vector<const SavedName*> missing;
    for (size_t i = 0; i < known.size(); ++i) {
      if (!known[i].scalar<bool>()) missing.push_back(&variables_[i]);
    }
    return missing;
  }

  void GiveValues() {
    const auto missing = Missing();
    const int64_t before = std::max(meeting_.Largest(), generation_);
    generation_ = before;
    checkpoints_.emplace(config_, Checkpoints::Use::kTrain);
    checkpoints_->MarkRunning();
    if (!missing.empty() || before == 0 || !hooks_.KeepsLiveState()) {
      meeting_.Set(0);
      session_->Initialize();
      const auto point = checkpoints_->Restore(graph_, *session_);
      if (point) {
        Tell(fmt::format("goes on from step {}, the newest checkpoint in {}", point->step,
                         config_.model_dir));
      } else if (before > 0 && !missing.empty() && missing.size() < variables_.size()) {
        throw Error(Code::kDataLoss,
                    fmt::format("{} variables lost their values with a task, the first of them {} "
                                "on {}, and there is no checkpoint to go back to; give the chief a "
                                "model_dir, and start all tasks again",
                                missing.size(), missing.front()->name,
                                missing.front()->variable.node->device()));
      }
      generation_ = before + 1;
    }
    RunFacts facts;
    facts.seed = config_.seed;
    facts.fingerprint = fingerprint_;
    facts.order = {{"strategy", "training-session"},
                   {"workers", fmt::format("{}", options_.workers)}};
    step_ = session_->Run(global_step_).scalar<int64_t>();
    checkpoints_->BeginTraining(graph_, std::move(facts), step_);
  }

  void AwaitChief(int64_t deadline) {
    for (;;) {
      const auto missing = Missing();
      if (missing.empty()) {
        generation_ = meeting_.Common();
        if (generation_ > 0) return;
      }
      if (NowNanos() > deadline) {
        const std::string what = missing.empty()
                                     ? "is still giving them values"
                                     : fmt::format(
                                           "has given no value to {} of {} variables, the first of "
                                           "them {} on \"{}\"",
                                           missing.size(), variables_.size(), missing.front()->name,
                                           missing.front()->variable.node->device());
        throw Error(Code::kDeadlineExceeded,
                    fmt::format("after {} s the chief {}; is it running, and are all variables on "
                                "tasks that all workers share?",
                                config_.start_timeout, what));
      }
      if (StopRequested()) throw Error(Code::kCancelled, "stopped while waiting for the chief");
      std::this_thread::sleep_for(kLook);
    }
  }

  std::vector<Tensor> RunOnce(std::span<const Feed> feeds, std::span<const Output> fetches,
                              const Node* train) {
    RunTrace trace;
    SessionRun run;
    const bool traced = hooks_.BeforeStep(step_);
    if (traced) run.options = {.trace = true, .trace_result = &trace};
    run.feeds.assign(feeds.begin(), feeds.end());
    run.fetches.assign(fetches.begin(), fetches.end());
    run.fetches.push_back(global_step_);
    if (options_.loss) run.fetches.push_back(options_.loss);
    run.targets.push_back(train);
    hooks_.BeforeRun(run);
    std::vector<Tensor> fetched;
    try {
      fetched = session_->Run(run.feeds, run.fetches, run.targets, run.options);
    } catch (const Error& error) {
      hooks_.OnRunError(error);
      throw;
    }
    run.step = fetched[fetches.size()].scalar<int64_t>() + 1;
    const double loss = options_.loss ? NumberOf(fetched[fetches.size() + 1]) : 0;
    hooks_.AfterRun(run, fetched);
    over_ = over_ || run.over;
    step_ = run.step;
    hooks_.AfterStep({.step = step_,
                      .loss = loss,
                      .values = values_,
                      .session = *session_,
                      .feeds = run.feeds,
                      .trace = traced ? &trace : nullptr});
    if (options_.is_chief && !ShouldStop()) Save();
    fetched.resize(fetches.size());
    return fetched;
  }

  void Save() {
    if (const auto ended = checkpoints_->TakeEnded()) hooks_.AfterSave(*ended);
    if (checkpoints_->WillSave(step_, /*last=*/false)) hooks_.BeforeSave(step_);
    checkpoints_->AfterStep(*session_, step_, 0);
  }

  // So that tasks which end with the chief are there until nobody needs them.
  void AwaitOthers(std::chrono::nanoseconds patience) {
    for (int i = 1; i < options_.workers; ++i) {
      try {
        meeting_.AwaitEnd(patience);
      } catch (const Error& error) {
        return Tell(fmt::format("{} of {} other workers have not ended: {}", options_.workers - i,
                                options_.workers - 1, error.what()));
      }
    }
  }

  Graph& graph_;
  const TrainingSessionOptions options_;
  RunConfig config_;
  const Output global_step_;
  const std::vector<SavedName> variables_;
  const std::string fingerprint_;  // of the graph as the program has made it
  std::vector<Output> known_;      // of each variable: has it a value?
  Meeting meeting_;
  TrainingGraph training_;  // for hooks: the loss, and the number of nodes that the program made
  const Metrics values_;    // the same
  HookList hooks_;
  std::optional<Session> session_;
  std::optional<Checkpoints> checkpoints_;  // of the chief
  int64_t generation_ = 0;
  int64_t step_ = 0;
  int64_t began_ = 0;
  int recoveries_ = 0;
  bool over_ = false;  // a hook has said so
  bool closed_ = false;
};

TrainingSession::TrainingSession(Graph& graph, const TrainingSessionOptions& options)
    : impl_(std::make_unique<Impl>(graph, options)) {}

TrainingSession::~TrainingSession() {
  try {
    impl_->Close(/*well=*/false);
  } catch (const Error&) {
    // Whoever wants to know calls Close.
  }
}

bool TrainingSession::ShouldStop() const { return impl_->ShouldStop(); }
int64_t TrainingSession::step() const { return impl_->step(); }
Session& TrainingSession::session() { return impl_->session(); }
void TrainingSession::Close(bool well) { impl_->Close(well); }
std::vector<Tensor> TrainingSession::Run(std::span<const Feed> feeds,
                                         std::span<const Output> fetches, const Node* train) {
  return impl_->Run(feeds, fetches, train);
}

VariablePlacementScope::Place PlaceOn(std::vector<std::string> devices) {
  if (devices.empty()) ThrowInvalidArgument("PlaceOn: there is no device; expected at least one");
  constexpr int64_t kSplitBytes = 1 << 20;
  const auto placer = std::make_shared<ServerPlacer>(std::move(devices), kSplitBytes);
  return [placer](const VariableRequest& request) { return placer->Place(request); };
}

}  // namespace tutti
