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
  const ModelSpec spec = model(Features(inputs_.columns, inputs_.first), Mode::kEvaluate);
  names_.push_back("loss");
  values_.push_back(RequireFloatScalar(spec.loss, "loss"));
  for (const auto& [name, value] : spec.metrics) {
    names_.push_back(name);
    values_.push_back(RequireFloatScalar(value, fmt::format("metric \"{}\"", name)));
  }
}

Metrics Evaluation::Run(Session& session, const Dataset& dataset, int64_t max_steps,
                        Peers& peers) const {
  // Sums over samples, then their number, and how many workers were asked to stop.
  const size_t count = values_.size(), stops = count + 1;
  std::vector<double> sums(values_.size() + 2);
  std::vector<Feed> feeds;
  const auto reader = dataset.Read();
  Minibatch batch;
  for (int64_t step = 0; max_steps == 0 || step < max_steps; ++step) {
    if (StopRequested()) {
      sums[stops] = 1;
      break;
    }
    if (!reader->Next(&batch)) break;
    if (batch.count == 0) continue;
    feeds.clear();
    inputs_.Feed(batch, dataset.batch_size(), feeds);
    const std::vector<Tensor> means = session.Run(feeds, values_);
    for (size_t i = 0; i < means.size(); ++i) {
      const double mean = means[i].dtype() == kFloat64 ? means[i].scalar<double>()
                                                       : double(means[i].scalar<float>());
      sums[i] += mean * double(batch.count);
    }
    sums[count] += double(batch.count);
  }
  peers.Sum("evaluate", sums);
  if (sums[stops] > 0) {
    throw Error(Code::kCancelled,
                fmt::format("Estimator::Evaluate: stopped by {}; there are no metrics",
                            DescribeStop(AgreeOnStop(peers))));
  }
  if (sums[count] == 0) {
    ThrowInvalidArgument("Estimator::Evaluate: the dataset is empty; expected at least one sample");
  }
  Metrics metrics;
  for (size_t i = 0; i < names_.size(); ++i) metrics[names_[i]] = sums[i] / sums[count];
  return metrics;
}

}  // namespace tutti
