#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/train/optimizers/learning_rate.h"
#include "tutti/train/strategies/strategy.h"

namespace tutti {

class MetricsRegistry;

// How a program is to be run. Main makes it from flags and the launch environment; a program may
// change defaults beforehand (MainOptions::defaults), or make one by hand:
//
//   Estimator estimator(model, {.max_steps = 100, .strategy = "allreduce",
//                               .strategy_flags = {{"wire", "bfloat16"}}});
struct RunConfig {
  int64_t max_steps = 1000;        // --max-steps: updates to make, over all workers
  int64_t batch_size = 64;         // --batch-size: samples a worker takes for an update
  double learning_rate = 1e-3;     // --learning-rate
  int64_t seed = 1;                // --seed: fixes initial values, the order of samples, dropout
  int64_t log_every = 0;           // --log-every: steps between lines of the log; 0: every 10 s
  std::string strategy = "local";  // --strategy
  int64_t devices = 1;             // --devices: how many this process has, with strategy local
  // --placement: how nodes without a device are placed, with strategy local: manual (first device),
  // greedy or search (docs/placement.md)
  std::string placement = "manual";
  std::string device_memory = {};  // --device-memory: that it may give each: "512MiB"; "": all
  // --target: a task of a running cluster, "tutti://host:port", whose tasks hold and train the
  // model, with strategy local or mirrored; this process only feeds it. Empty: this process trains.
  std::string target = {};
  // The strategy's own flags by name: {{"algorithm", "ring"}}. Others have their defaults.
  std::map<std::string, std::string> strategy_flags = {};
  bool scale_learning_rate = false;  // --scale-learning-rate: times Strategy::BatchesPerUpdate
  int64_t warmup_steps = 0;          // --warmup-steps: of the learning rate
  int64_t ps = 0;                    // --ps: how many MPI, Slurm or torchrun processes are servers
  bool evaluator = false;            // --evaluator: the last of these processes evaluates
  double start_timeout = 60;         // --start-timeout: seconds for all workers to appear
  bool insecure = false;             // --insecure: listen beyond this host without a token
  std::string model_dir = {};  // --model-dir: for checkpoints and summaries; empty: there are none
  // --save-every: how often one is written: steps ("500"), seconds ("60s"), or "0", only at the end
  std::string save_every = "600s";
  int64_t keep = 5;                 // --keep: how many of the newest stay; 0: all
  std::string keep_best = {};       // --keep-best: and the best one by this metric
  std::string warm_start = {};      // --warm-start: a checkpoint; matching variables start from it
  std::string warm_start_map = {};  // --warm-start-map: NEW=OLD,... names for it
  std::string export_dir = {};      // --export: where TrainAndEvaluate exports the model at the end
  std::string report = {};          // --report: what a training took, as JSON
  std::string trace = {};  // --trace: a Chrome trace of all workers: FILE, A..B or A..B:FILE
  std::string http = {};   // --http: PORT or HOST:PORT of /metrics and /healthz
  bool verbose = false;    // --verbose: log how gradients are exchanged; implies --summary
  bool quiet = false;      // --quiet: print nothing but errors
  bool summary = false;    // --summary: show the layers of the model at the start
  // --show: what the log and the summaries tell beside the loss, separated by commas:
  // learning-rate, gradient-norm, metrics (of the training batches).
  std::string show = {};
  int64_t summary_every = 100;  // --summary-every: steps between summaries in the model directory
  bool histograms = false;      // --histograms: of weights and gradients, with each summary
  // --epochs: passes over the data instead of max_steps; 0: max_steps. A learning-rate schedule
  // over max_steps does not follow it.
  int64_t epochs = 0;
  int64_t eval_every = 0;       // --eval-every: steps between evaluations; 0: only at the end
  std::string early_stop = {};  // --early-stop: METRIC:PATIENCE
  // The cluster and the place of this process in it, as the text of TF_CONFIG; empty: there is no
  // cluster. Main takes that of the environment.
  std::string tf_config = {};
  // Every setting and where it came from, as --print-config shows it; Main's.
  std::string settings = {};
  std::string program = "tutti";  // begins messages; Main: the program's file name

  // The metrics of the training; null: none are kept. Main creates the registry if --http is given.
  std::shared_ptr<MetricsRegistry> metrics = nullptr;

  // Set by Join.
  std::string role = "local";  // "/job:worker/task:1"
  std::string job = "local";   // "worker"
  int task = 0;                // 1
  bool has_evaluator = false;  // a task of the cluster evaluates the checkpoints of model_dir
  std::shared_ptr<const Strategy> strategy_object = nullptr;

  // Creates the strategy that `strategy` names, which connects to the other workers of the cluster;
  // an evaluator task connects to none. Does nothing if strategy_object is set. Main calls it, and
  // an Estimator for its own copy of a config without a strategy; call it yourself if several
  // Estimators should share a strategy. Throws Error.
  void Join();

  int workers() const {
    return strategy_object == nullptr ? 1 : strategy_object->peers().workers();
  }
  int rank() const { return strategy_object == nullptr ? 0 : strategy_object->peers().rank(); }
  // `rate` with --scale-learning-rate and --warmup-steps applied.
  LearningRate Adjusted(const LearningRate& rate) const;
  bool evaluates() const { return job == "evaluator"; }  // this task only evaluates checkpoints
  // True if the evaluator task evaluates and the trainers do not. False with early_stop, which
  // needs the metrics during training.
  bool leaves_evaluation() const { return has_evaluator && early_stop.empty(); }
  bool leads() const { return rank() == 0; }  // prints, writes files
  bool Tells() const { return leads() && !quiet; }
  bool Shows(std::string_view what) const;  // is it one of the words of `show`?
};

}  // namespace tutti
