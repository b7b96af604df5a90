#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/train/estimator/estimator.h"
#include "tutti/train/estimator/training_graph.h"
#include "tutti/train/reporting/time_table.h"
#include "tutti/train/reporting/training_metrics.h"
#include "tutti/train/run_config.h"

namespace tutti {

// What is trained and by whom, on standard error: a line each; with --verbose also how gradients
// travel, and with that or --summary the layers of the model.
void ShowStart(const RunConfig& config, const Graph& graph, const TrainingGraph& training,
               const Dataset& dataset);

// Measures where the time of a training goes, from its construction on, and tells at the end.
class TrainingReport {
 public:
  // `how` is JointStep's.
  TrainingReport(const RunConfig& config, std::string_view how);

  // Waiting for a batch took so long.
  void CountInput(int64_t nanos) { input_nanos_ += nanos; }
  // Running a step took so long, without what is done around it.
  void CountRun(int64_t nanos) { run_nanos_ += nanos; }
  // One more step, over the samples of all workers in lockstep.
  void CountStep(const StepResult& step);

  // What a worker tells of itself besides: {"dropped", "3"}.
  using Facts = std::vector<std::pair<std::string, std::string>>;

  // The training is over. All workers call it; the one that leads shows the table, and writes
  // --report. Throws Error.
  TrainResult Finish(double loss, const Facts& own_facts = {});

 private:
  WorkerTime OwnTime(int64_t nanos) const;
  void Write(const TrainResult& result, const WorkerTime& own, const std::string& workers,
             const std::string& servers) const;
  // Since the beginning.
  std::vector<TaskLoad> ServerLoads() const;

  const RunConfig& config_;
  const std::string how_;
  const CommunicationStats before_;
  const TaskLoad own_before_;
  const std::vector<TaskLoad> servers_before_;  // on the worker that leads
  const int64_t begin_;
  int64_t input_nanos_ = 0, run_nanos_ = 0;
  int64_t steps_ = 0;
  double samples_ = 0;
  std::map<int64_t, int64_t> staleness_;    // how many gradients had which
  int64_t times_told_ = 0;                  // when the metrics were
  std::optional<TrainingMetrics> metrics_;  // none: nobody can look at them
};

}  // namespace tutti
