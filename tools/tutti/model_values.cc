#include "tools/tutti/model_values.h"

#include <string>

#include "tools/tutti/even_values.h"

namespace tutti::tools {

FirstValues AddFirstValues(StepModel& model) {
  FirstValues first;
  for (const Output& variable : nn::TrainableVariables(*model.graph)) {
    const Shape& shape = variable.shape();
    if (shape.rank() < 2) continue;
    const auto stream = uint32_t(first.targets.size() + 1);
    const Output value =
        Placeholder(*model.graph, kFloat32, shape, "first_value" + std::to_string(stream));
    first.feeds.emplace_back(value, EvenWeights(shape, stream));
    first.targets.push_back(Assign(variable, value).node);
  }
  return first;
}

}  // namespace tutti::tools
