#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/train/checkpoints/run_facts.h"
#include "tutti/train/checkpoints/save_schedule.h"
#include "tutti/train/checkpoints/saved_names.h"
#include "tutti/train/hooks/hook.h"

namespace tutti {

// Where a training goes on.
struct ResumePoint {
  int64_t step = 0;
  int64_t position = 0;          // samples taken, over all workers
  checkpoint::Facts order = {};  // what the order of sums depended on
  std::string path = {};         // of the checkpoint
};

// The checkpoints of one Estimator, in RunConfig::model_dir. The worker that leads writes and reads
// them; the others get from it what they must know, and their values by
// Strategy::SynchronizeState. A save is written by a thread of its own while training goes on: see
// checkpoints.cc. All methods throw Error unless they say otherwise. Not thread-safe.
class Checkpoints {
 public:
  // To train: makes, locks and checks the directory, on the worker that leads.
  // To evaluate: only looks. `config` must outlive this.
  enum class Use { kTrain, kEvaluate };
  Checkpoints(const RunConfig& config, Use use);
  ~Checkpoints();  // waits for the save that is under way

  // The newest checkpoint there is, before the graph is built. All workers call it, and all get the
  // same.
  std::optional<ResumePoint> Find();

  // Gives the variables of the graph what they have in the newest checkpoint that is whole, after
  // Session::Initialize; nothing when there is none. One that is damaged is told of and put aside.
  // All workers call it before they synchronize their state; one that `gives` no values only learns
  // of it. May add nodes to the graph.
  std::optional<ResumePoint> Restore(Graph& graph, Session& session, bool gives = true);

  // Takes what fits from RunConfig::warm_start, and lists what does not.
  void WarmStart(Graph& graph, Session& session);

  // The training begins after `step` updates, with these variables and facts; tells when it cannot
  // have the bits of an unbroken one. May add nodes to the graph.
  void BeginTraining(Graph& graph, RunFacts facts, int64_t step = 0);

  // After each step: begins a save if one is due and none is under way, or if NoteMetrics has found
  // the step to be the best so far. A save that fails is told of, and the training goes on; only
  // an error that has ended the session or lost a task is thrown. Does nothing on other workers
  // than the one that leads.
  void AfterStep(Session& session, int64_t step, int64_t position);
  // At the end of a training: waits for the save under way, and saves this step unless that is
  // done. The error of that save, which has been told.
  absl::Status Finish(Session& session, int64_t step, int64_t position);

  // Will AfterStep, or at the end of a training Finish, save this step? For hooks.
  bool WillSave(int64_t step, bool last);
  // Is a save under way, or the removal of older checkpoints after one?
  bool Busy() const { return busy_.load(std::memory_order_acquire); }
  // The save that has ended since the last call, if one has: it is durable or has failed. Older
  // checkpoints may still be being removed.
  std::optional<SaveEnd> TakeEnded();

  // At the beginning of a call of Train and at its end, for evaluators: RunConfig::model_dir says
  // whether a training is over, and how far it was to go (checkpoint::Finish::until).
  void MarkRunning();
  void MarkFinished(int64_t step, const std::string& until);

  // After an evaluation of this step: if RunConfig::keep_best finds it the best one so far, and
  // nobody else evaluates, its checkpoint is kept. Where there is none yet, the next AfterStep or
  // Finish writes it. Waits for a save that is under way.
  void NoteMetrics(int64_t step, const std::map<std::string, double>& metrics);

 private:
  // The variables of one device.
  struct Shard {
    std::vector<SavedName> names;
    std::string file;
    const Node* take = nullptr;
    Output path;  // placeholder
    Output save;
    Output probe;          // writes an empty file to `path`; empty: this process has the variables
    bool travels = false;  // its task does not see the directory
    std::vector<Tensor> values = {};  // of a shard that travels, for the save under way
  };

  void Begin(Session& session, int64_t step, int64_t position);
  // Finds the tasks that do not see `folder`, where checkpoints are written.
  void FindPrivateDisks(Session& session, const std::string& folder);
  // The values of all variables, for the save that begins; throws Error.
  void HoldValues(Session& session);
  // After a save that failed before they were written.
  void ReleaseValues(Session& session);
  void Wait();
  // On the thread of the save.
  static SavedVariables WriteHere(Shard& shard, const std::string& folder, int64_t step);
  absl::Status Write(Session& session, const std::string& folder, checkpoint::Manifest manifest);
  // Of a checkpoint that is there; a failure is told.
  void NoteAsBest(const checkpoint::Best& best);
  void RemoveOlder();
  void TellSuccess(int64_t step);
  void TellFailure(int64_t step, const absl::Status& status);
  std::optional<ResumePoint> RestoreNewest(Graph& graph, Session& session, int attempts);
  void PutAside(int64_t step, std::string_view why);
  void Tell(std::string_view text) const;

  const RunConfig& config_;
  const Use use_;
  const std::string path_;  // absolute
  SaveSchedule schedule_;
  std::optional<checkpoint::ModelDirectory> directory_;  // of the worker that leads a training
  std::optional<checkpoint::Manifest> restored_;
  RunFacts facts_;
  std::vector<Shard> shards_;
  bool probed_ = false;  // is Shard::travels known?
  std::thread writer_;
  std::atomic<bool> writing_{false};  // until it is durable or has failed
  std::atomic<bool> busy_{false};     // until writer_ has removed older ones, too
  int64_t begun_ = -1;                // the step of the last save that began
  int64_t taken_ = -1;                // that of the last one that TakeEnded told of
  int64_t began_ = 0;                 // when it began, as NowNanos
  // Of the writer while writing_ is set.
  absl::Status last_;                     // how the last save ended
  double seconds_ = 0;                    // and how long it took
  int64_t saved_ = -1;                    // the last step that is in a checkpoint
  std::optional<checkpoint::Best> best_;  // what the next save is, if it is the best so far
};

// What to note as the best checkpoint of a model directory if the metric called `name` is better
// than that of the best one before; else nothing.
std::optional<checkpoint::Best> BetterThanBest(checkpoint::FileSystem& files,
                                               const std::string& path, int64_t step,
                                               const std::string& name,
                                               const std::map<std::string, double>& metrics);

// Notes the checkpoint of `step` in a model directory as the best one if the metric called `name`
// is better than that of the best one before.
absl::Status NoteBest(checkpoint::FileSystem& files, const std::string& path, int64_t step,
                      const std::string& name, const std::map<std::string, double>& metrics);

// Which variables are saved and restored together: those of one device. Of a variable that the cost
// model places the device is not known here, so it has a shard of its own.
std::string ShardOf(const RunConfig& config, const Output& variable);

// The nodes that give variables what the tensors called `names` hold in a checkpoint.
class RestoreNodes {
 public:
  // Adds them to the graph.
  RestoreNodes(const RunConfig& config, Graph& graph, std::span<const SavedName> variables,
               const std::vector<std::string>& names);
  // From the checkpoint at `path`, which is absolute. Throws Error.
  void Run(Session& session, const std::string& path) const;

 private:
  Output path_;  // placeholder
  std::vector<const Node*> targets_;
};

// Restores them once. Tasks that do not see the directory get their values from this process.
void RestoreVariables(const RunConfig& config, Graph& graph, Session& session,
                      const checkpoint::SavedCheckpoint& saved,
                      std::span<const SavedName> variables, const std::vector<std::string>& names);

// The names of the tensors that these variables are saved as.
std::vector<std::string> NamesOf(std::span<const SavedName> variables);

// Throws Error (kInvalidArgument) with the first differences unless the checkpoint has a tensor for
// each variable; if `all`, and a variable for each tensor.
void RequireModel(std::span<const SavedName> variables, const checkpoint::SavedCheckpoint& saved,
                  bool all);

// Can an older checkpoint be used where this error came from one? Not if it would fail as well.
bool IsDamage(const absl::Status& status);

}  // namespace tutti
