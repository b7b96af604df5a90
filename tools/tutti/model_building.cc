#include "tools/tutti/model_building.h"

#include "tools/tutti/even_values.h"

namespace tutti::tools {

uint32_t ModelBuilding::NextStream() const { return kDataStream + uint32_t(model_.feeds.size()); }

Output ModelBuilding::Input(const Shape& shape, std::string_view name) {
  const Output x = Placeholder(*model_.graph, kFloat32, shape, name);
  model_.feeds.emplace_back(x, EvenData(shape, NextStream()));
  return x;
}

Output ModelBuilding::Labels(int64_t batch) {
  const Output labels = Placeholder(*model_.graph, kInt32, {batch}, "labels");
  model_.feeds.emplace_back(labels, MixedLabels(batch, NextStream(), 10));
  return labels;
}

Output ModelBuilding::Rows(const Shape& shape, int64_t rows, std::string_view name) {
  const Output x = Placeholder(*model_.graph, kInt64, shape, name);
  Tensor values(kInt64, shape);
  uint32_t i = 0;
  for (int64_t& value : values.values<int64_t>()) {
    value = int64_t(MixedNumber(NextStream(), i++)) % rows;
  }
  model_.feeds.emplace_back(x, std::move(values));
  return x;
}

}  // namespace tutti::tools
