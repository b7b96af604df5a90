// Watches a training: a hook after every 50th step, summaries on disk, and one traced run.
#include <tutti/tutti.h>

#include <algorithm>
#include <cstdio>

using namespace tutti;

ModelSpec Line(const Features& batch, Mode mode) {
  Output y = nn::Dense(batch["x"], 1, {}, "line");
  return RegressionHead().Spec(y, batch["y"], Sgd({.learning_rate = 0.1}), mode);
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
  const MainOptions options = {.defaults = {.max_steps = 150, .summary_every = 10}};
  return Main(argc, argv, options, [](const RunConfig& config) {
    Estimator estimator(Line, config);
    const auto watch = [](const StepEnd& end, TrainingControl& control) {
      std::printf("step %lld: loss %.4f\n", (long long)end.step, end.loss);
      if (end.loss < 1e-3) control.Stop("the loss is small enough");
    };
    estimator.Train(
        {.input = [] { return Samples().Shuffle(1).Repeat(); }, .hooks = {AfterSteps(50, watch)}});
  });
}
