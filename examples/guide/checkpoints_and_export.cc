// Trains in two parts, as if it had been stopped in between, exports the model, and runs it without
// its code.
#include <tutti/tutti.h>

#include <cstdio>
#include <filesystem>

using namespace tutti;

ModelSpec Line(const Features& batch, Mode mode) {
  Output y = nn::Dense(batch["x"], 1, {}, "line");
  return RegressionHead().Spec(y, batch["y"], Adam({.learning_rate = 0.05}), mode);
}

Dataset Samples() {
  Tensor x(kFloat32, {100, 1}), y(kFloat32, {100, 1});
  for (int i = 0; i < 100; ++i) {
    x.data<float>()[i] = float(i) / 50 - 1;
    y.data<float>()[i] = 3 * x.data<float>()[i] - 1;
  }
  return Dataset::FromTensors({{"x", x}, {"y", y}});
}

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "line";
  std::filesystem::remove_all(folder);
  const auto input = [] { return Samples().Shuffle(1).Repeat(); };
  const RunConfig first = {.max_steps = 300, .model_dir = folder, .quiet = true};
  std::printf("trained %lld steps\n",
              (long long)Estimator(Line, first).Train({.input = input}).steps);

  const RunConfig longer = {.max_steps = 500, .model_dir = folder, .quiet = true};
  Estimator estimator(Line, longer);  // finds the checkpoint of step 300
  std::printf("and %lld more\n", (long long)estimator.Train({.input = input}).steps);
  estimator.Export(folder + "/exported", {.input = Samples});

  const ExportedModel model(folder + "/exported");
  const Columns result = model.Predict({{"x", Tensor::Of<float>({2, 1}, {0.0f, 2.0f})}});
  for (const auto& [name, values] : result)
    std::printf("%s: %s\n", name.c_str(), values.ToString().c_str());
}
