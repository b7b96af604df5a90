#include "tools/tutti/placement_models.h"

#include <random>

namespace tutti::tools {
namespace {

Tensor Values(const Shape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Tensor values(kFloat32, shape);
  for (float& value : values.values<float>()) value = normal(random);
  return values;
}

// A model over placeholders that are filled at once.
class Building {
 public:
  Building() { model_.graph = std::make_unique<Graph>(); }

  Output Input(const Shape& shape, std::string_view name) {
    const Output x = Placeholder(*model_.graph, kFloat32, shape, name);
    model_.feeds.emplace_back(x, Values(shape, uint32_t(model_.feeds.size())));
    return x;
  }
  Output Rows(const Shape& shape, int64_t rows, std::string_view name) {
    const Output x = Placeholder(*model_.graph, kInt64, shape, name);
    Tensor values(kInt64, shape);
    std::mt19937 random(5);
    for (int64_t& value : values.values<int64_t>()) value = int64_t(random() % uint64_t(rows));
    model_.feeds.emplace_back(x, std::move(values));
    return x;
  }
  StepModel Finish(Output result) {
    model_.loss = Mean(Square(result));
    model_.train = Sgd({.learning_rate = 0.001}).Minimize(model_.loss);
    return std::move(model_);
  }
  Graph& graph() { return *model_.graph; }

 private:
  StepModel model_;
};

Output Chain(Output h, int layers, int64_t width) {
  for (int i = 0; i < layers; ++i) h = nn::Dense(h, width, {.activation = nn::kRelu});
  return h;
}

StepModel Resnet() {
  Building building;
  Output h =
      nn::Conv2d(building.Input({16, 16, 16, 3}, "x"), 32, {3, 3}, {.activation = nn::kRelu});
  for (int block = 0; block < 2; ++block) {
    const Output around = h;
    h = nn::Conv2d(h, 32, {3, 3}, {.activation = nn::kRelu});
    h = Relu(Add(around, nn::Conv2d(h, 32, {3, 3})));
  }
  return building.Finish(nn::Dense(nn::Flatten(nn::MaxPool(h, {2, 2})), 10));
}

// Gates of one product each, of the input and the last output side by side.
StepModel Lstm() {
  constexpr int64_t kBatch = 16, kInputs = 64, kUnits = 128;
  constexpr int kSteps = 20;
  Building building;
  const Output weights =
      Variable(building.graph(), RandomUniform({kInputs + kUnits, 4 * kUnits}, -0.1, 0.1), "w");
  Output output = Constant(building.graph(), Tensor::Zeros(kFloat32, {kBatch, kUnits}));
  Output state = output;
  for (int t = 0; t < kSteps; ++t) {
    const Output x = building.Input({kBatch, kInputs}, "x" + std::to_string(t));
    const std::vector<Output> gates = Split(MatMul(Concat({x, output}, 1), weights), 4, 1);
    state = Add(Mul(Sigmoid(gates[0]), state), Mul(Sigmoid(gates[1]), Tanh(gates[2])));
    output = Mul(Sigmoid(gates[3]), Tanh(state));
  }
  return building.Finish(output);
}

StepModel Click() {
  constexpr int64_t kBatch = 128, kWords = 26, kRows = 10000, kWidth = 16;
  Building building;
  const Output words = building.Rows({kBatch, kWords}, kRows, "words");
  const Output numbers = building.Input({kBatch, 13}, "numbers");
  const Output rows = nn::Embedding(words, kRows, kWidth);
  const Output h = Concat({Reshape(rows, Shape{kBatch, kWords * kWidth}), numbers}, 1);
  return building.Finish(nn::Dense(Chain(Chain(h, 1, 256), 1, 128), 1));
}

StepModel TwoTowers() {
  Building building;
  const Output user = nn::Dense(Chain(building.Input({256, 64}, "user"), 2, 512), 32);
  const Output item = nn::Dense(Chain(building.Input({256, 64}, "item"), 2, 512), 32);
  return building.Finish(Sum(Mul(user, item), {.axes = {1}}));
}

StepModel TransformerBlocks() {
  Building building;
  Output x = building.Input({4, 64, 128}, "x");
  for (int block = 0; block < 4; ++block) {
    x = nn::LayerNorm(Add(x, nn::MultiHeadAttention(x, {.heads = 4})));
    x = nn::LayerNorm(Add(x, nn::Dense(Chain(x, 1, 512), 128)));
  }
  return building.Finish(x);
}

StepModel TwoBranches() {
  Building building;
  const Output x = building.Input({256, 512}, "x");
  return building.Finish(Sub(Chain(x, 6, 512), Chain(x, 6, 512)));
}

}  // namespace

std::vector<std::string_view> PlacementModelNames() {
  return {"mlp-small", "mlp-large",  "cnn",        "transformer",   "resnet",      "lstm",
          "click",     "two-towers", "mlp-narrow", "transformer-4", "two-branches"};
}

StepModel MakePlacementModel(std::string_view model) {
  if (model == "mlp-small") return MakeStepModel(model, 64);
  if (model == "mlp-large") return MakeStepModel(model, 64);
  if (model == "cnn") return MakeStepModel(model, 32);
  if (model == "transformer") return MakeStepModel(model, 4);
  if (model == "resnet") return Resnet();
  if (model == "lstm") return Lstm();
  if (model == "click") return Click();
  if (model == "two-towers") return TwoTowers();
  if (model == "transformer-4") return TransformerBlocks();
  if (model == "two-branches") return TwoBranches();
  Building building;
  return building.Finish(nn::Dense(Chain(building.Input({64, 48}, "x"), 20, 48), 1));
}

}  // namespace tutti::tools
