// How an evaluator and a training that do not communicate end together. All they share is the model
// directory:
//
//   training                                       evaluator
//   locks the directory, removes "finished"
//   publishes checkpoints                          evaluates those that are new, oldest first
//   publishes the last checkpoint
//   writes "finished"                              reads it, then lists once more: nothing new
//   ends                                           ends
//
// The evaluator reads "finished" before it lists the checkpoints. The last one is published before
// that file is written, so whoever has seen the file finds the last checkpoint in the list.
//
// A "finished" may be of an earlier training, when the evaluator is the first task of a job to
// start. It counts if one of these holds:
//   - that training was to go as far as this one: then there is nothing left to train;
//   - the evaluator has seen the directory locked and without the file since it started: then the
//     file was written later;
//   - nobody has locked the directory for a while.
// Where nobody has locked it for a while and there is no such file, the training has died or was
// never started. "A while" is twice --start-timeout, because workers may wait that long for each
// other before the chief opens the directory.
//
// Where the chief writes to another disk, the part of the training in all this is played by a
// mirror of its directory (mirror/directory_mirror.h).
#include "tutti/train/estimator/evaluator.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/train/checkpoints/checkpoints.h"
#include "tutti/train/estimator/joint_stop.h"
#include "tutti/train/mirror/directory_mirror.h"
#include "tutti/train/stop.h"
#include "tutti/train/summaries/evaluation_log.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::SavedCheckpoint;

constexpr auto kLook = std::chrono::milliseconds(100);  // for signals and checkpoints

FileSystem& Files() { return FileSystem::System(); }

class Evaluator {
 public:
  Evaluator(const RunConfig& config, std::string until,
            const std::function<Metrics(const SavedCheckpoint&)>& evaluate)
      : config_(config),
        until_(std::move(until)),
        evaluate_(evaluate),
        patience_(2 * config.start_timeout),
        log_(ValueOrThrow(EvaluationLog::Open(config.model_dir))),
        mirror_(DirectoryMirror::Start(config)),
        held_at_(NowNanos()) {}

  Metrics Run() {
    const std::string where = fmt::format("the checkpoints in {}", config_.model_dir);
    Tell(log_.empty() ? fmt::format("evaluates {}", where)
                      : fmt::format("goes on to evaluate {}, behind that of step {}", where,
                                    log_.last_step()));
    for (;;) {
      ThrowIfStopped();
      if (mirror_ != nullptr) ThrowIfError(WithPrefix(mirror_->status(), "--model-dir: "));
      const bool over = IsOver();
      if (const auto step = Next()) {
        Evaluate(*step);
      } else if (over) {
        break;
      } else {
        Wait();
      }
    }
    if (!failed_.ok()) ThrowIfError(failed_);
    return last_;
  }

 private:
  void Tell(std::string_view text) const {
    if (config_.Tells()) FormatTo(stderr, "{}: {}\n", config_.program, text);
  }

  void ThrowIfStopped() const {
    if (!StopRequested()) return;
    throw Error(Code::kCancelled,
                fmt::format("stopped by {}", DescribeStop({.signal = StopSignal()})));
  }

  // The oldest checkpoint that is still to be evaluated.
  std::optional<int64_t> Next() {
    auto steps = ValueOrThrow(checkpoint::ListCheckpoints(Files(), config_.model_dir));
    std::erase_if(steps, [this](int64_t step) { return unusable_.contains(step); });
    return ValueOrThrow(log_.Next(steps));
  }

  bool IsOver() {
    const auto finish = ValueOrThrow(checkpoint::ReadFinish(Files(), config_.model_dir));
    const bool held = ValueOrThrow(checkpoint::IsHeld(Files(), config_.model_dir));
    if (held) held_at_ = NowNanos();
    if (held && !finish) seen_ = true;
    if (finish && (seen_ || finish->until == until_)) return true;
    const double idle = double(NowNanos() - held_at_) * 1e-9;
    if (idle < patience_) return false;
    if (finish) return true;
    throw Error(
        Code::kUnavailable,
        fmt::format("no job has trained in {} for {:.0f} s, and none has finished there; is the "
                    "training running, with this --model-dir on a disk that both share, or with "
                    "this evaluator in its cluster?",
                    config_.model_dir, idle));
  }

  void Evaluate(int64_t step) {
    const std::string name = checkpoint::CheckpointName(step);
    absl::Status status;
    try {
      // Held until its metrics are noted, so that the best one is not removed before.
      const auto saved = SavedCheckpoint::Open(Files(), config_.model_dir + "/" + name);
      if (absl::IsNotFound(saved.status())) return;  // removed since it was listed
      ThrowIfError(saved.status());
      const Metrics metrics = evaluate_(*saved);
      ThrowIfError(log_.Add(step, metrics));
      if (config_.has_evaluator && !config_.keep_best.empty()) {
        ThrowIfError(NoteBest(Files(), config_.model_dir, step, config_.keep_best, metrics));
      }
      Tell(fmt::format("{}: {}", name, TextOf(metrics)));
      last_ = metrics;
      failed_ = absl::OkStatus();
      return;
    } catch (const Error& error) {
      if (error.code() == Code::kCancelled) throw;
      status = StatusFromCurrentException();
      // Another model, or something that every checkpoint would meet.
      if (!absl::IsDataLoss(status) && !absl::IsNotFound(status)) throw;
    }
    Tell(fmt::format("{} cannot be evaluated: {}", name, MessageOf(status)));
    unusable_.insert(step);
    failed_ = status;
  }

  void Wait() const {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable never;
    never.wait_for(lock, kLook);
  }

  const RunConfig& config_;
  const std::string until_;
  const std::function<Metrics(const SavedCheckpoint&)>& evaluate_;
  const double patience_;  // seconds
  EvaluationLog log_;
  std::unique_ptr<DirectoryMirror> mirror_;  // null: the directory must be the training's
  int64_t held_at_;                          // when a job last had the directory, or this began
  bool seen_ = false;                        // a training under way
  std::set<int64_t> unusable_;               // checkpoints that are damaged
  absl::Status failed_;                      // of the last one, if that could not be evaluated
  Metrics last_;
};

}  // namespace

Metrics EvaluateCheckpoints(const RunConfig& config, const std::string& until,
                            const std::function<Metrics(const SavedCheckpoint&)>& evaluate) {
  if (config.model_dir.empty()) {
    ThrowInvalidArgument(
        "an evaluator needs RunConfig::model_dir, the directory that a training writes its "
        "checkpoints to");
  }
  return Evaluator(config, until, evaluate).Run();
}

std::string TextOf(const Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) {
    text += text.empty() ? "" : "  ";
    text += name == "accuracy" ? fmt::format("{} {:.2f}%", name, 100 * value)
                               : fmt::format("{} {:.4f}", name, value);
  }
  return text;
}

}  // namespace tutti
