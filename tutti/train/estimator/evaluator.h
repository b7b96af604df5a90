#pragma once

#include <functional>
#include <string>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/train/metrics/metric.h"
#include "tutti/train/run_config.h"

namespace tutti {

// What the task evaluator does: evaluates the checkpoints of RunConfig::model_dir, the oldest
// first, as a training makes them, and the last one in any case; returns when the training is over.
// `evaluate` gives the metrics of one, which is not removed meanwhile; `until` is how far the
// training is to go (checkpoint::Finish). What it finds goes to MODEL_DIR/eval
// (summaries/evaluation_log.h). Gives the metrics of the last one; none if that was evaluated by an
// evaluator before this one.
//
// The training does not wait for it: the two meet in the directory, or in a mirror of it where the
// evaluator stands in the cluster and sees another disk (evaluator.cc). Throws
// Error: kUnavailable when nobody trains there and no training has ended there; kCancelled after a
// stop (train/stop.h).
Metrics EvaluateCheckpoints(
    const RunConfig& config, const std::string& until,
    const std::function<Metrics(const checkpoint::SavedCheckpoint&)>& evaluate);

// "accuracy 91.42%  loss 0.2401"
std::string TextOf(const Metrics& metrics);

}  // namespace tutti
