#include "tutti/train/estimator/batch_inputs.h"

#include <fmt/format.h>

#include "tutti/base/status.h"
#include "tutti/graph/ops/source.h"

namespace tutti {

BatchInputs::BatchInputs(Graph& graph, const Columns& example, std::string_view scope) {
  NameScope names(graph, scope);
  for (const auto& [name, column] : example) {
    columns[name] =
        Placeholder(graph, column.dtype(), column.shape().WithDim(0, kUnknownDim), name);
  }
  samples = Placeholder(graph, kFloat32, Shape{}, "samples");
  first = Placeholder(graph, kInt64, Shape{}, "first_sample");
}

void BatchInputs::Feed(const Minibatch& batch, int64_t global_batch,
                       std::vector<tutti::Feed>& feeds) const {
  for (const auto& [name, placeholder] : columns) {
    const auto column = batch.columns.find(name);
    if (column == batch.columns.end()) {
      ThrowInvalidArgument(
          fmt::format("the dataset has the columns {}; the model was built with a column \"{}\", "
                      "which is missing",
                      DescribeTypes(batch.columns), name));
    }
    feeds.emplace_back(placeholder, column->second);
  }
  feeds.emplace_back(samples, Tensor::Scalar(float(batch.count)));
  feeds.emplace_back(first, Tensor::Scalar<int64_t>(batch.position % global_batch));
}

bool BatchByNumber::Read(int64_t number, Minibatch* batch) {
  const int64_t position = begin_ + number * dataset_.batch_size();
  if (reader_ == nullptr || (number != next_ && !reader_->SeekTo(position))) {
    reader_ = dataset_.ReadFrom(position);
  }
  next_ = number + 1;
  return reader_->Next(batch);
}

Columns ExampleOf(const Dataset& dataset) {
  Minibatch batch;
  if (!dataset.Batch(1).Shard(0, 1).Prefetch(0).Read()->Next(&batch)) {
    ThrowInvalidArgument("the dataset is empty; expected at least one sample");
  }
  return batch.columns;
}

std::string DescribeTypes(const Columns& columns) {
  std::string text;
  for (const auto& [name, column] : columns) {
    text += fmt::format("{}{} {} {}", text.empty() ? "" : ", ", name, NameOf(column.dtype()),
                        column.shape().WithDim(0, kUnknownDim).ToString());
  }
  return text;
}

}  // namespace tutti
