#include "tutti/train/estimator/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/nn/layer.h"
#include "tutti/train/estimator/joint_stop.h"
#include "tutti/train/stop.h"

namespace tutti {

Evaluation::Evaluation(Graph& graph, const ModelFunction& model, const Dataset& dataset,
                       bool reuse) {
  std::optional<nn::ReuseScope> scope;
  if (reuse) scope.emplace(graph, "", "evaluate");
  inputs_ = BatchInputs(graph, ExampleOf(dataset), "input");
  const ModelSpec spec =
      model(Features(inputs_.columns, inputs_.first, Mode::kEvaluate), Mode::kEvaluate);
  std::map<std::string, Metric> metrics = spec.metrics;
  metrics["loss"] = RequireFloatScalar(spec.loss, "loss");
  metrics_ = MetricStates(std::move(metrics));
}

int64_t Evaluation::AddBatches(Session& session, const Dataset& dataset, int64_t max_steps,
                               MetricStates& states) const {
  int64_t samples = 0;
  std::vector<Feed> feeds;
  const auto reader = dataset.Read();
  Minibatch batch;
  for (int64_t step = 0; max_steps == 0 || step < max_steps; ++step) {
    if (StopRequested()) return -1;
    if (!reader->Next(&batch)) break;
    if (batch.count == 0) continue;
    feeds.clear();
    inputs_.Feed(batch, dataset.batch_size(), feeds);
    states.Add(session.Run(feeds, states.outputs()), batch.count);
    samples += batch.count;
  }
  return samples;
}

Metrics Evaluation::Run(Session& session, const Dataset& dataset, int64_t max_steps,
                        Peers& peers) const {
  for (;;) {
    const std::vector<int> workers = peers.Present();
    const auto all_there = [&] {
      const std::vector<int> now = peers.Present();
      return std::includes(now.begin(), now.end(), workers.begin(), workers.end());
    };
    const auto own = std::find(workers.begin(), workers.end(), peers.rank());
    MetricStates states = metrics_;
    int64_t samples = 0;
    if (own != workers.end()) {
      const Dataset part = dataset.Shard(int(own - workers.begin()), int(workers.size()));
      samples = AddBatches(session, part, max_steps, states);
    }
    // The number of samples, and of workers that were asked to stop.
    enum { kCount, kStops, kSums };
    double sums[kSums] = {double(std::max<int64_t>(samples, 0)), samples < 0 ? 1.0 : 0.0};
    peers.Sum("evaluate", sums);
    if (sums[kStops] > 0) {
      throw Error(Code::kCancelled,
                  fmt::format("Estimator::Evaluate: stopped by {}; there are no metrics",
                              DescribeStop(AgreeOnStop(peers))));
    }
    const bool counted = all_there();
    if (counted && sums[kCount] == 0) {
      ThrowInvalidArgument(
          "Estimator::Evaluate: the dataset is empty; expected at least one sample");
    }
    states.Merge(peers);
    if (counted && all_there()) return states.Finish();
    // A worker was lost, and its part with it: those that are there share the dataset anew.
  }
}

}  // namespace tutti
