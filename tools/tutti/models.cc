#include "tools/tutti/models.h"

#include "tools/tutti/model_building.h"

namespace tutti::tools {
namespace {

// "cnn" and "-adam" of "cnn-adam".
std::pair<std::string_view, std::string_view> ModelAndOptimizer(std::string_view name) {
  for (const std::string_view optimizer : {"-momentum", "-adam"}) {
    if (name.ends_with(optimizer)) {
      return {name.substr(0, name.size() - optimizer.size()), optimizer};
    }
  }
  return {name, ""};
}

std::unique_ptr<Optimizer> MakeOptimizer(std::string_view optimizer) {
  if (optimizer == "-momentum") return std::make_unique<Momentum>();
  if (optimizer == "-adam") return std::make_unique<Adam>();
  return std::make_unique<Sgd>();
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

Output Resnet(Output x) {
  Output h = nn::Conv2d(x, 32, {3, 3}, {.activation = nn::kRelu});
  for (int block = 0; block < 2; ++block) {
    const Output around = h;
    h = nn::Conv2d(h, 32, {3, 3}, {.activation = nn::kRelu});
    h = Relu(Add(around, nn::Conv2d(h, 32, {3, 3})));
  }
  return nn::Dense(nn::Flatten(nn::MaxPool(h, {2, 2})), 10);
}

// The inputs of all steps are known beforehand, and multiplied at once.
Output Lstm(ModelBuilding& building, int64_t batch) {
  constexpr int64_t kInputs = 64, kUnits = 128;
  constexpr int kSteps = 20;
  Graph& graph = building.graph();
  const Output from_input = Variable(graph, GlorotUniform({kInputs, 4 * kUnits}), "from_input");
  const Output from_output = Variable(graph, GlorotUniform({kUnits, 4 * kUnits}), "from_output");
  const Output x = building.Input({kSteps * batch, kInputs}, "x");
  const std::vector<Output> steps = Split(MatMul(x, from_input), 0, kSteps);
  Output output = Constant(graph, Tensor::Zeros(kFloat32, {batch, kUnits}));
  Output state = output;
  for (const Output& step : steps) {
    const std::vector<Output> gates = Split(Add(step, MatMul(output, from_output)), 1, 4);
    state = Add(Mul(Sigmoid(gates[0]), state), Mul(Sigmoid(gates[1]), Tanh(gates[2])));
    output = Mul(Sigmoid(gates[3]), Tanh(state));
  }
  return output;
}

Output EncoderBlocks(Output x, int blocks, int64_t width) {
  for (int block = 0; block < blocks; ++block) {
    x = nn::LayerNorm(Add(x, nn::MultiHeadAttention(x, {.heads = 4})));
    const Output hidden = nn::Dense(x, 4 * width, {.activation = nn::kRelu});
    x = nn::LayerNorm(Add(x, nn::Dense(hidden, width)));
  }
  return x;
}

// Without the softmax loss.
Output Squared(ModelBuilding& building, std::string_view model, int64_t batch) {
  if (model == "resnet") return Resnet(building.Input({batch, 16, 16, 3}, "x"));
  if (model == "lstm") return Lstm(building, batch);
  if (model == "transformer") return EncoderBlocks(building.Input({batch, 128, 256}, "x"), 1, 256);
  if (model == "transformer-4") {
    return EncoderBlocks(building.Input({batch, 64, 128}, "x"), 4, 128);
  }
  return {};
}

}  // namespace

int64_t DefaultBatch(std::string_view name) {
  const std::string_view model = ModelAndOptimizer(name).first;
  if (model == "mlp-large") return 128;
  if (model == "cnn") return 64;
  return model.starts_with("transformer") ? 8 : 32;
}

StepModel MakeStepModel(std::string_view name, int64_t batch) {
  const auto [model, optimizer] = ModelAndOptimizer(name);
  ModelBuilding building;
  Output loss;
  if (const Output result = Squared(building, model, batch)) {
    loss = Mean(Square(result));
  } else {
    const bool images = model == "cnn";
    const Output x = building.Input(images ? Shape{batch, 28, 28, 1} : Shape{batch, 784}, "x");
    const Output labels = building.Labels(batch);
    const Output logits = images                 ? Cnn(x)
                          : model == "mlp-large" ? Mlp(x, {1024, 1024})
                                                 : Mlp(x, {100});
    loss = nn::SparseSoftmaxLoss(logits, labels);
  }
  return building.Finish(loss, *MakeOptimizer(optimizer));
}

}  // namespace tutti::tools
