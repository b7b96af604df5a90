#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/train/strategies/ps/parameter_servers.h"

namespace tutti {

struct SyncStepOptions {
  std::string device;  // of the gate, the counts and the token queues
  int admit = 1;       // workers whose gradients make an update
  int workers = 1;
  std::string wire = "as-is";  // how float32 values are pushed
  bool once = false;           // what a worker pushes again to a step is ignored
};

// The nodes of a synchronous step: what a worker pushes, what is summed, and who is released. A
// graph has the part of every worker and that of the chief, and is the same for all; which worker
// it is, and for which step, is fed.
//
//   SyncStep sync(graph, {.device = ps0, .admit = 2, .workers = 3});
//   Output sum = sync.Summed(gradient, ps1);     // for each gradient
//   Output counts = sync.Summed(..., ps0);
//   const Node* update = ...;                    // from the sums
//   sync.Finish(update, values);
class SyncStep final : public StrategyNodes {
 public:
  SyncStep(Graph& graph, const SyncStepOptions& options);

  // The sum, over the admitted workers in their order, of `own`, made on `device`.
  Output Summed(Output own, const std::string& device);
  // The same for rows of a variable of `shape`: the rows of all admitted workers.
  GradientValue SummedRows(const GradientValue& own, const Shape& shape, const std::string& device);

  // Replaces a gradient by its sum, where its variable is. Throws Error when the shape of the
  // variable is not known.
  void Sum(GradientAndVariable& entry);

  // Call it last. `update` is what the chief runs once the sums are there; `values` (float64, a
  // vector) is told to every worker then.
  void Finish(const Node* update, Output values);

  const SyncStepOptions& options() const { return options_; }
  bool has_backups() const { return options_.admit < options_.workers; }

  // What is fed. Scalars, int64.
  Output worker, step;  // of a worker's part
  Output update_step;   // of the chief's

  // A worker's part. Without backups `push` gives the gradients; with backups it holds them on the
  // worker, and `admitted` tells whether send_held or drop_held must follow.
  const Node* push = nullptr;
  Output admitted;
  const Node* send_held = nullptr;
  const Node* drop_held = nullptr;
  // By worker: waits for an update, and gives the step after it and its values.
  struct Release {
    Output step;
    Output values;
  };
  std::vector<Release> release;
  const Node* leave = nullptr;  // nobody waits for `worker` any more
  Output join;                  // `worker` is back: the newest step
  Output contains;              // was `worker` admitted to `step`?

  // The chief's part: the update, and by worker the token that releases it, after the update.
  const Node* update = nullptr;
  std::vector<const Node*> tokens;
  std::vector<Output> waiting_tokens;  // by worker: how many it has not taken
  // By worker: a token for `update_step` itself, with zeros for values, that follows no update.
  std::vector<const Node*> wake;
  Output update_values;

 private:
  struct Push {
    Output accumulator;
    Output indices;  // empty: dense
    Output values;
  };
  const Node* Apply(const Push& push, Output indices, Output values) const;
  void PushHeld(const std::vector<const Node*>& computed);

  Graph& graph_;
  const SyncStepOptions options_;
  Output gate_;
  Output members_;  // the workers of the update
  std::vector<Push> pushes_;
};

// Runs the steps of a worker; on the chief a thread makes the updates beside it.
class SyncDriver final : public StepDriver {
 public:
  // The values of tokens are SyncCounts.
  SyncDriver(Session& session, std::shared_ptr<const SyncStep> sync, const StepRange& range,
             std::shared_ptr<QueuePeers> peers, const GradientCheck& check, bool skip_bad);
  ~SyncDriver() override;

  int64_t NextBatch() override;
  StepResult Run(const StepCall& call) override;
  void Leave() override;
  std::vector<std::pair<std::string, std::string>> Report() const override;

 private:
  class Updater;
  void Lost(int rank, const std::string& why);
  void WarnOfLate();
  std::vector<Tensor> RunPart(std::span<const Feed> feeds, std::span<const Output> fetches,
                              const Node* target, const RunOptions& options);
  std::vector<Tensor> RunWithBackups(const StepCall& call);

  Session& session_;
  const std::shared_ptr<const SyncStep> sync_;
  const std::shared_ptr<QueuePeers> peers_;
  const GradientCheck check_;
  const bool skip_bad_;
  const int64_t first_;
  int64_t step_;
  const int64_t end_;
  bool over_ = false;
  int64_t pushed_ = 0, dropped_ = 0, skipped_ = 0;
  bool last_dropped_ = false;
  std::vector<Feed> feeds_;
  std::unique_ptr<Updater> updater_;
};

}  // namespace tutti
