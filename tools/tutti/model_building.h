#pragma once

#include <memory>
#include <string_view>
#include <utility>

#include "tools/tutti/models.h"

namespace tutti::tools {

// Puts a StepModel together: placeholders, each with its data (even_values.h), then the loss and
// the optimizer.
class ModelBuilding {
 public:
  ModelBuilding() { model_.graph = std::make_unique<Graph>(); }

  // Numbers of mean 0 and variance 1.
  Output Input(const Shape& shape, std::string_view name);
  // One of ten classes for each sample.
  Output Labels(int64_t batch);
  // Numbers of rows of a table that has `rows`.
  Output Rows(const Shape& shape, int64_t rows, std::string_view name);

  StepModel Finish(Output loss, const Optimizer& optimizer) {
    model_.loss = loss;
    model_.train = optimizer.Minimize(loss);
    return std::move(model_);
  }
  Graph& graph() { return *model_.graph; }

 private:
  uint32_t NextStream() const;

  StepModel model_;
};

}  // namespace tutti::tools
