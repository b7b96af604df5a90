#include "tutti/train/estimator/evaluation.h"

#include <fmt/format.h>

#include <optional>

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

Metrics Evaluation::Run(Session& session, const Dataset& dataset, int64_t max_steps,
                        Peers& peers) const {
  // The number of samples, and of workers that were asked to stop.
  enum { kCount, kStops, kSums };
  double sums[kSums] = {};
  MetricStates states = metrics_;
  std::vector<Feed> feeds;
  const auto reader = dataset.Read();
  Minibatch batch;
  for (int64_t step = 0; max_steps == 0 || step < max_steps; ++step) {
    if (StopRequested()) {
      sums[kStops] = 1;
      break;
    }
    if (!reader->Next(&batch)) break;
    if (batch.count == 0) continue;
    feeds.clear();
    inputs_.Feed(batch, dataset.batch_size(), feeds);
    states.Add(session.Run(feeds, states.outputs()), batch.count);
    sums[kCount] += double(batch.count);
  }
  peers.Sum("evaluate", sums);
  if (sums[kStops] > 0) {
    throw Error(Code::kCancelled,
                fmt::format("Estimator::Evaluate: stopped by {}; there are no metrics",
                            DescribeStop(AgreeOnStop(peers))));
  }
  if (sums[kCount] == 0) {
    ThrowInvalidArgument("Estimator::Evaluate: the dataset is empty; expected at least one sample");
  }
  states.Merge(peers);
  return states.Finish();
}

}  // namespace tutti
