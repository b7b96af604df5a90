// The program that README.md begins with: a classifier of the clothes of Fashion-MNIST.
#include <tutti/tutti.h>

using namespace tutti;

ModelSpec Classifier(const Features& batch, Mode mode) {
  Output pixels = nn::Flatten(Cast(batch["image"], kFloat32) * (1.0f / 255));
  Output hidden = nn::Dense(pixels, 100, {.activation = nn::kRelu});
  Output logits = nn::Dense(hidden, 10);
  return MultiClassHead(10).Spec(logits, batch["label"], Adam({.learning_rate = 1e-3}), mode);
}

Dataset Samples(const LabeledImages& data) {
  return Dataset::FromTensors({{"image", data.images}, {"label", data.labels}});
}

int main(int argc, char** argv) {
  return Main(argc, argv, [](const RunConfig& config) {
    const FashionMnist data = LoadFashionMnist();
    Estimator estimator(Classifier, config);
    TrainAndEvaluate(estimator, {.input = [&] { return Samples(data.train).Shuffle(1).Repeat(); }},
                     {.input = [&] { return Samples(data.test); }});
  });
}
