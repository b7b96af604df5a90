#include "tutti/train/export/prediction.h"

#include <fmt/format.h>

#include <cstring>
#include <optional>

#include "tutti/base/status.h"
#include "tutti/nn/layer.h"
#include "tutti/train/estimator/batch_inputs.h"

namespace tutti {
namespace {

std::vector<bool> NodesUnder(const Graph& graph, const std::map<std::string, Output>& outputs) {
  std::vector<bool> under(size_t(graph.size()), false);
  for (const auto& [name, output] : outputs) under[size_t(output.node->id())] = true;
  for (int64_t id = graph.size() - 1; id >= 0; --id) {
    if (!under[size_t(id)]) continue;
    const Node& node = *graph.nodes()[size_t(id)];
    for (const Output& input : node.inputs()) under[size_t(input.node->id())] = true;
    for (const Node* input : node.control_inputs()) under[size_t(input->id())] = true;
  }
  return under;
}

void CheckPredictions(const std::map<std::string, Output>& predictions) {
  if (predictions.empty()) {
    ThrowInvalidArgument(
        "the model function gave no predictions for Mode::kPredict; heads do, and a model of your "
        "own sets ModelSpec::predictions");
  }
  for (const auto& [name, value] : predictions) {
    if (!value) ThrowInvalidArgument(fmt::format("the prediction \"{}\" is empty", name));
    if (value.shape().has_rank() && value.shape().rank() == 0) {
      ThrowInvalidArgument(
          fmt::format("the prediction \"{}\", {}, is a scalar; expected a first "
                      "dimension that counts the samples",
                      name, value.node->Describe()));
    }
  }
}

}  // namespace

Prediction::Prediction(Graph& graph, const ModelFunction& model, const Dataset& dataset,
                       bool reuse) {
  std::optional<nn::ReuseScope> scope;
  if (reuse) scope.emplace(graph, "", "predict");
  const BatchInputs inputs(graph, ExampleOf(dataset), "input");
  outputs_ =
      model(Features(inputs.columns, inputs.first, Mode::kPredict), Mode::kPredict).predictions;
  CheckPredictions(outputs_);
  const std::vector<bool> under = NodesUnder(graph, outputs_);
  for (const auto& [name, column] : inputs.columns) {
    if (under[size_t(column.node->id())]) inputs_[name] = column;
  }
  for (const Output& place : {inputs.first, inputs.samples}) {
    if (!under[size_t(place.node->id())]) continue;
    ThrowInvalidArgument(fmt::format(
        "the predictions depend on {}, the place of a batch in a training step; leave that out in "
        "Mode::kPredict",
        place.node->Describe()));
  }
}

Columns Prediction::Run(Session& session, const Dataset& dataset) const {
  if (dataset.epochs() < 0) {
    ThrowInvalidArgument(
        "Estimator::Predict: the dataset repeats for ever, so there would be no end; leave out "
        "Repeat()");
  }
  std::vector<Output> fetches;
  for (const auto& [name, output] : outputs_) fetches.push_back(output);
  std::vector<Columns> batches;
  const auto reader = dataset.Read();
  Minibatch batch;
  while (reader->Next(&batch)) {
    std::vector<Feed> feeds;
    for (const auto& [name, placeholder] : inputs_) {
      const auto column = batch.columns.find(name);
      if (column == batch.columns.end()) {
        ThrowInvalidArgument(
            fmt::format("Estimator::Predict: the dataset has the columns {}; the predictions need "
                        "a column \"{}\"",
                        DescribeTypes(batch.columns), name));
      }
      feeds.emplace_back(placeholder, column->second);
    }
    const std::vector<Tensor> values = session.Run(feeds, fetches);
    Columns named;
    size_t i = 0;
    for (const auto& [name, output] : outputs_) named[name] = values[i++];
    batches.push_back(std::move(named));
  }
  return JoinRows(batches);
}

Columns JoinRows(const std::vector<Columns>& batches) {
  if (batches.empty()) return {};
  Columns joined;
  for (const auto& [name, first] : batches[0]) {
    int64_t rows = 0;
    for (const Columns& batch : batches) {
      const Shape& shape = batch.at(name).shape();
      if (shape.rank() == 0 || shape.WithDim(0, 0) != first.shape().WithDim(0, 0)) {
        ThrowInvalidArgument(
            fmt::format("the prediction \"{}\" is {} for one batch and {} for "
                        "another; only the first dimension may differ",
                        name, first.shape().ToString(), shape.ToString()));
      }
      rows += shape[0];
    }
    Tensor all(first.dtype(), first.shape().WithDim(0, rows));
    auto* to = static_cast<std::byte*>(all.raw());
    for (const Columns& batch : batches) {
      const Tensor& part = batch.at(name);
      if (part.bytes() > 0) std::memcpy(to, part.raw(), part.bytes());
      to += part.bytes();
    }
    joined[name] = std::move(all);
  }
  return joined;
}

}  // namespace tutti
