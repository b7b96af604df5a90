// Fits a line with any number of workers. An update is made from the samples of all of them.
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti;

ModelSpec Line(const Features& batch, Mode mode) {
  Output y = nn::Dense(batch["x"], 1, {.weights = Zeros}, "line");
  return RegressionHead().Spec(y, batch["y"], Sgd({.learning_rate = 0.2}), mode);
}

Dataset Samples() {
  Tensor x(kFloat32, {1000, 1}), y(kFloat32, {1000, 1});
  for (int i = 0; i < 1000; ++i) {
    x.data<float>()[i] = float(i * 37 % 101) / 50 - 1;
    y.data<float>()[i] = 3 * x.data<float>()[i] - 1;
  }
  return Dataset::FromTensors({{"x", x}, {"y", y}});
}

int main(int argc, char** argv) {
  const MainOptions options = {.defaults = {.max_steps = 20, .quiet = true}};
  return Main(argc, argv, options, [](const RunConfig& config) {
    Estimator estimator(Line, config);
    estimator.Train({.input = [] { return Samples().Shuffle(1).Repeat(); }});
    const auto values = estimator.Variables();
    if (!config.leads()) return;
    std::printf("%d worker(s), %lld samples each: w %.4f, b %.4f\n", config.workers(),
                (long long)config.batch_size, double(values.at("line/weights").scalar<float>()),
                double(values.at("line/bias").scalar<float>()));
  });
}
