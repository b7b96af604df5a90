#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tutti/graph/graph.h"

namespace tutti {

// Adds the state `other` to `state`, which is empty at first.
using MergeStates = std::function<void(std::vector<double>& state, std::span<const double> other)>;
// The figure that a state stands for; `state` is never empty.
using FinishState = std::function<double(std::span<const double> state)>;

// A figure over many samples, such as accuracy, as a state that can be merged: every batch gives a
// state, `merge` combines the states of all batches and workers, and `finish` computes the figure.
// Unlike a mean of batch means, the result does not depend on how samples are divided into batches
// and over workers. metrics.h has the usual ones. One of your own:
//
//   spec.metrics["largest"] = Metric({Max(Abs(error))},
//       [](std::span<const double> s) { return s[0]; },
//       [](std::vector<double>& s, std::span<const double> other) {
//         if (s.empty()) s = {other[0]};
//         s[0] = std::max(s[0], other[0]);
//       });
struct Metric {
  // The state of one batch: the elements of these outputs one after the other, of any type but
  // empty ones, as float64.
  std::vector<Output> state;
  FinishState finish = {};
  MergeStates merge = {};  // empty: element by element, the sum

  Metric() = default;
  // A scalar that is a mean over the samples of a batch: the mean over all samples.
  Metric(Output batch_mean) : state{batch_mean} {}  // NOLINT: implicit
  Metric(std::vector<Output> batch_state, FinishState finish_state, MergeStates merge_states = {})
      : state(std::move(batch_state)),
        finish(std::move(finish_state)),
        merge(std::move(merge_states)) {}

  bool is_batch_mean() const { return !finish; }
};

using Metrics = std::map<std::string, double>;  // "loss", "accuracy"

}  // namespace tutti
