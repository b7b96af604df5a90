// A classifier as an Estimator: model function, input function, and Main for everything else.
#include <tutti/tutti.h>

#include <cmath>

using namespace tutti;

// Points on the plane, and the third of the circle in which each lies.
Dataset Points(int64_t count, uint64_t seed) {
  Tensor points(kFloat32, {count, 2}), sectors(kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    const double angle = 2 * M_PI * double((uint64_t(i) * 7919 + seed) % 1000) / 1000;
    points.data<float>()[2 * i] = float(std::cos(angle));
    points.data<float>()[2 * i + 1] = float(std::sin(angle));
    sectors.data<int32_t>()[i] = int32_t(3 * angle / (2 * M_PI));
  }
  return Dataset::FromTensors({{"point", points}, {"sector", sectors}});
}

ModelSpec Classifier(const Features& batch, Mode mode) {
  Output hidden = nn::Dense(batch["point"], 16, {.activation = nn::kRelu});
  Output logits = nn::Dense(hidden, 3);
  return MultiClassHead(3).Spec(logits, batch["sector"], Adam({.learning_rate = 0.01}), mode);
}

int main(int argc, char** argv) {
  const MainOptions options = {.summary = "Learns the thirds of a circle.",
                               .defaults = {.max_steps = 500}};
  return Main(argc, argv, options, [](const RunConfig& config) {
    Estimator estimator(Classifier, config);
    TrainAndEvaluate(estimator,
                     {.input = [&] { return Points(6000, 1).Shuffle(config.seed).Repeat(); }},
                     {.input = [] { return Points(1000, 500); }});
  });
}
