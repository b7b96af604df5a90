#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/train/metrics/metric.h"

namespace tutti {

struct RunConfig;
struct RunTrace;
struct TrainingGraph;

// The arguments of hooks. References and spans are valid during the call only.

// Before the first step of a call of Train.
struct TrainingStart {
  const RunConfig& config;
  const Graph& graph;
  const TrainingGraph& training;
  Session& session;
  int64_t step = 0;  // updates made before: 0, or where a checkpoint left off
  int64_t max_steps = 0;
  int64_t samples = 0;  // of the dataset
};

struct StepEnd {
  int64_t step = 0;    // updates made so far, this one included
  double loss = 0;     // the mean over all samples of the step, from before the update
  double samples = 0;  // of all workers
  // What RunConfig::show asks for: learning_rate, gradient_norm, train_accuracy and so on. Metrics
  // are those of this worker's samples.
  const Metrics& values;
  Session& session;
  std::span<const Feed> feeds;             // of this worker
  std::span<const Tensor> gradients = {};  // as TrainingGraph::gradients; mostly empty
  const RunTrace* trace = nullptr;         // if a hook wanted it
  std::string_view bad_gradient = {};      // of this worker, not finite: its variable
};

// A checkpoint was written, or could not be.
struct SaveEnd {
  int64_t step = 0;
  std::string path;
  std::string error;   // empty: it is there
  double seconds = 0;  // from the step until it was durable
};

struct EvaluationEnd {
  int64_t step = 0;
  const Metrics& metrics;
};

struct TrainingEnd {
  int64_t step = 0;
  double seconds = 0;
  std::span<const Feed> feeds;  // of the last step; empty if there was none
  int64_t samples = 0;          // of this worker in the last step
  Session& session;
};

// A TrainingSession (session/training_session.h) has a session, the first time or after a task was
// lost.
struct SessionStart {
  Session& session;
  bool is_chief = true;
  int worker = 0;
  // How many times the chief has initialised or restored the variables. A greater number than in
  // the previous session means that it has done so since.
  int64_t generation = 1;
  int64_t step = 0;  // updates made before
  int64_t max_steps = 0;
};

// A step of a TrainingSession, to which hooks may add.
struct SessionRun {
  std::vector<Feed> feeds;
  std::vector<Output> fetches;  // those of the caller first
  std::vector<const Node*> targets;
  RunOptions options = {};
  int64_t step = 0;   // updates made after it; set before AfterRun, which may know better
  bool over = false;  // set by AfterRun when there are no more steps to make
};

// How a hook ends a training. All workers stop after the same step.
class TrainingControl {
 public:
  // Any worker may call it. One more step may be made, which passes the request on to the others.
  void Stop(std::string reason) {
    if (reason_.empty()) reason_ = std::move(reason);
  }
  // Without one more step. REQUIRES: the hooks of all workers call it after the same step, such as
  // those that decide by the metrics of an evaluation, which are the same everywhere.
  void StopHere(std::string reason) {
    Stop(std::move(reason));
    here_ = true;
  }
  const std::string& reason() const { return reason_; }  // empty: go on
  bool here() const { return here_; }
  void Clear() { *this = {}; }

 private:
  std::string reason_;
  bool here_ = false;
};

// Code that runs around the steps, saves and evaluations of a training: TrainSpec::hooks. Every
// worker has its own hooks; a hook that writes or prints should check RunConfig::leads(). Hooks are
// called on the training's thread, in the order of the list, OnEnd in reverse. An exception from a
// hook ends the training.
class Hook {
 public:
  virtual ~Hook() = default;
  virtual void OnStart(const TrainingStart& /*start*/) {}
  // `step` updates were made before. Return true to get StepEnd::trace. All workers must return the
  // same.
  virtual bool BeforeStep(int64_t /*step*/) { return false; }
  virtual void AfterStep(const StepEnd& /*end*/, TrainingControl& /*control*/) {}
  // On the worker that leads. A save goes on beside training: AfterSave comes some steps later.
  virtual void BeforeSave(int64_t /*step*/) {}
  virtual void AfterSave(const SaveEnd& /*end*/) {}
  virtual void AfterEvaluation(const EvaluationEnd& /*end*/, TrainingControl& /*control*/) {}
  virtual void OnEnd(const TrainingEnd& /*end*/) {}

  // In a TrainingSession only: what belongs to one session, and to its runs. After a task is lost
  // there is another session; OnSession comes again then.
  virtual void OnSession(const SessionStart& /*start*/) {}
  virtual void BeforeRun(SessionRun& /*run*/) {}
  virtual void AfterRun(SessionRun& /*run*/, std::span<const Tensor> /*fetched*/) {}
  // The run failed with `error`; a hook that knows why may throw that instead.
  virtual void OnRunError(const Error& /*error*/) {}
  // The hook must not use the session after it returns. `well`: the training ended, without error.
  virtual void OnSessionEnd(bool /*well*/) {}
  // True if the chief may keep the variables as they are when all of them have values. Otherwise it
  // restores its last checkpoint.
  virtual bool KeepsLiveState() const { return true; }
};

// Calls `function` after every `every`-th step; where the steps of this worker jump over it, after
// the next one (train/every_steps.h).
std::shared_ptr<Hook> AfterSteps(int64_t every,
                                 std::function<void(const StepEnd&, TrainingControl&)> function);

}  // namespace tutti
