#include "tools/tutti/models.h"

#include <random>

namespace tutti::tools {
namespace {

Tensor RandomValues(const Shape& shape) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  Tensor values(kFloat32, shape);
  for (float& value : values.values<float>()) value = normal(random);
  return values;
}

Tensor RandomLabels(int64_t count) {
  std::mt19937 random(2);
  Tensor labels(kInt32, {count});
  for (int32_t& label : labels.values<int32_t>()) label = int32_t(random() % 10);
  return labels;
}

Output Mlp(Output x, std::initializer_list<int64_t> hidden) {
  for (const int64_t units : hidden) x = nn::Dense(x, units, {.activation = nn::kRelu});
  return nn::Dense(x, 10);
}

Output Cnn(Output x) {
  x = nn::MaxPool(nn::Conv2d(x, 32, {3, 3}, {.activation = nn::kRelu}), {2, 2});
  x = nn::MaxPool(nn::Conv2d(x, 64, {3, 3}, {.activation = nn::kRelu}), {2, 2});
  return Mlp(nn::Flatten(x), {128});
}

Output EncoderBlock(Output x) {
  x = nn::LayerNorm(Add(x, nn::MultiHeadAttention(x, {.heads = 4})));
  const Output hidden = nn::Dense(x, 1024, {.activation = nn::kRelu});
  return nn::LayerNorm(Add(x, nn::Dense(hidden, 256)));
}

}  // namespace

int64_t DefaultBatch(std::string_view model) {
  if (model == "mlp-small") return 32;
  if (model == "mlp-large") return 128;
  return model == "cnn" ? 64 : 8;
}

StepModel MakeStepModel(std::string_view model, int64_t batch) {
  StepModel result;
  result.graph = std::make_unique<Graph>();
  Graph& graph = *result.graph;
  const Shape shape = model == "cnn"           ? Shape{batch, 28, 28, 1}
                      : model == "transformer" ? Shape{batch, 128, 256}
                                               : Shape{batch, 784};
  const Output x = Placeholder(graph, kFloat32, shape, "x");
  result.feeds.emplace_back(x, RandomValues(shape));
  if (model == "transformer") {
    result.loss = Mean(Square(EncoderBlock(x)));
  } else {
    const Output labels = Placeholder(graph, kInt32, {batch}, "labels");
    result.feeds.emplace_back(labels, RandomLabels(batch));
    const Output logits = model == "cnn"         ? Cnn(x)
                          : model == "mlp-large" ? Mlp(x, {1024, 1024})
                                                 : Mlp(x, {100});
    result.loss = nn::SparseSoftmaxLoss(logits, labels);
  }
  result.train = Sgd({.learning_rate = 0.01}).Minimize(result.loss);
  return result;
}

}  // namespace tutti::tools
