#include "tutti/train/evaluation.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/nn/layer.h"

namespace tutti {

Evaluation::Evaluation(Graph& graph, const ModelFunction& model, const Dataset& dataset) {
  nn::ReuseScope reuse(graph, "", "evaluate");
  inputs_ = BatchInputs(graph, ExampleOf(dataset), "input");
  const ModelSpec spec = model(Features(inputs_.columns, inputs_.first), Mode::kEvaluate);
  names_.push_back("loss");
  values_.push_back(RequireFloatScalar(spec.loss, "loss"));
  for (const auto& [name, value] : spec.metrics) {
    names_.push_back(name);
    values_.push_back(RequireFloatScalar(value, fmt::format("metric \"{}\"", name)));
  }
}

Metrics Evaluation::Run(Session& session, const Dataset& dataset,
                        collective::Communicator* communicator) const {
  // Sums over samples, and last their number.
  std::vector<double> sums(values_.size() + 1);
  std::vector<Feed> feeds;
  const auto reader = dataset.Read();
  Minibatch batch;
  while (reader->Next(&batch)) {
    if (batch.count == 0) continue;
    feeds.clear();
    inputs_.Feed(batch, dataset.batch_size(), feeds);
    const std::vector<Tensor> means = session.Run(feeds, values_);
    for (size_t i = 0; i < means.size(); ++i) {
      const double mean = means[i].dtype() == kFloat64 ? means[i].scalar<double>()
                                                       : double(means[i].scalar<float>());
      sums[i] += mean * double(batch.count);
    }
    sums.back() += double(batch.count);
  }
  if (communicator != nullptr) {
    ThrowIfError(communicator->world()
                     .AllReduce(sums.data(), int64_t(sums.size()), kFloat64, {.key = "evaluate"})
                     .Wait());
  }
  if (sums.back() == 0) {
    ThrowInvalidArgument("Estimator::Evaluate: the dataset is empty; expected at least one sample");
  }
  Metrics metrics;
  for (size_t i = 0; i < names_.size(); ++i) metrics[names_[i]] = sums[i] / sums.back();
  return metrics;
}

}  // namespace tutti
