#include "tools/tutti/placement_models.h"

#include <fmt/format.h>

#include <functional>

#include "tools/tutti/model_building.h"

namespace tutti::tools {
namespace {

StepModel FinishSquared(ModelBuilding& building, Output result) {
  return building.Finish(Mean(Square(result)), Sgd({.learning_rate = 0.001}));
}

Output Chain(Output h, int layers, int64_t width) {
  for (int i = 0; i < layers; ++i) h = nn::Dense(h, width, {.activation = nn::kRelu});
  return h;
}

StepModel Click() {
  constexpr int64_t kBatch = 128, kWords = 26, kRows = 10000, kWidth = 16;
  ModelBuilding building;
  const Output words = building.Rows({kBatch, kWords}, kRows, "words");
  const Output numbers = building.Input({kBatch, 13}, "numbers");
  const Output rows = nn::Embedding(words, kRows, kWidth);
  const Output h = Concat({Reshape(rows, Shape{kBatch, kWords * kWidth}), numbers}, 1);
  return FinishSquared(building, nn::Dense(Chain(Chain(h, 1, 256), 1, 128), 1));
}

StepModel TwoBranches() {
  ModelBuilding building;
  const Output x = building.Input({256, 512}, "x");
  return FinishSquared(building, Sub(Chain(x, 6, 512), Chain(x, 6, 512)));
}

}  // namespace

std::vector<std::string_view> PlacementModelNames() {
  return {"mlp-small", "mlp-large",  "cnn",        "transformer",   "resnet",      "lstm",
          "click",     "two-towers", "mlp-narrow", "transformer-4", "two-branches"};
}

// As in examples/two_towers.cc.
StepModel MakeTwoTowers(std::span<const int> devices) {
  constexpr int64_t kBatch = 256, kFeatures = 64, kWidth = 512, kVector = 32;
  ModelBuilding building;
  Graph& graph = building.graph();
  const auto on = [&](int group, const std::function<Output()>& build) {
    if (devices.empty()) return build();
    const DeviceScope scope(graph, fmt::format("/cpu:{}", devices[size_t(group)]));
    return build();
  };
  int group = 0;
  const auto tower = [&](const char* name) {
    Output h = building.Input({kBatch, kFeatures}, name);
    for (const bool last : {false, false, true}) {
      h = on(group++, [&] {
        return last ? nn::Dense(h, kVector) : nn::Dense(h, kWidth, {.activation = nn::kRelu});
      });
    }
    return h;
  };
  const Output user = tower("user"), item = tower("item");
  const Output fits = building.Input({kBatch}, "fits");
  const Output loss =
      on(group, [&] { return Mean(SigmoidCrossEntropy(Sum(user * item, {.axes = {1}}), fits)); });
  return building.Finish(loss, Adam({.learning_rate = 0.001}));
}

StepModel MakePlacementModel(std::string_view model) {
  if (model == "mlp-small") return MakeStepModel(model, 64);
  if (model == "mlp-large") return MakeStepModel(model, 64);
  if (model == "cnn") return MakeStepModel(model, 32);
  if (model == "transformer" || model == "transformer-4") return MakeStepModel(model, 4);
  if (model == "resnet" || model == "lstm") return MakeStepModel(model, 16);
  if (model == "click") return Click();
  if (model == "two-towers") return MakeTwoTowers({});
  if (model == "two-branches") return TwoBranches();
  ModelBuilding building;
  return FinishSquared(building, nn::Dense(Chain(building.Input({64, 48}, "x"), 20, 48), 1));
}

}  // namespace tutti::tools
