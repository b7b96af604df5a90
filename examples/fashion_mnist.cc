// Trains a small network on Fashion-MNIST and tells its accuracy on the test images.
//
//   build/bin/fashion_mnist                                                       # one process
//   tutti run --workers 2 -- build/bin/fashion_mnist --strategy allreduce --max-steps 2345
//
// trains the CNN conv32-pool-conv64-pool-dense128-10 for 5 epochs with Adam and ends with a test
// accuracy of at least 91%. --model mlp trains 784-100-10 instead, which takes a few seconds and
// ends near 87%. --help lists the flags.
#include <tutti/tutti.h>

#include <string>

using namespace tutti;

namespace {

// images: uint8 [batch, 28, 28, 1].
Output Logits(Output images, const std::string& model, double dropout) {
  Output h = Cast(images, kFloat32) * (1.0f / 255);
  if (model == "mlp") {
    return nn::Dense(nn::Dense(nn::Flatten(h), 100, {.activation = nn::kRelu}), 10);
  }
  h = nn::Conv2d(h, 32, {3, 3}, {.activation = nn::kRelu});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Conv2d(h, 64, {3, 3}, {.activation = nn::kRelu});
  h = nn::MaxPool(h, {2, 2});
  h = nn::Dense(nn::Flatten(h), 128, {.activation = nn::kRelu});
  if (dropout > 0) h = nn::Dropout(h, dropout);
  return nn::Dense(h, 10);
}

Dataset Samples(const LabeledImages& data) {
  return Dataset::FromTensors({{"image", data.images}, {"label", data.labels}});
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "cnn";
  double dropout = 0;
  Flags flags("");
  flags.Add("model", &model, "conv32-pool-conv64-pool-dense128-10, or 784-100-10", {"cnn", "mlp"});
  flags.Add("dropout", &dropout, "share of the CNN's last layer that is dropped in training", 0.0);
  const MainOptions options = {
      .summary =
          "Trains a small network on Fashion-MNIST and tells its accuracy on the test images.",
      .defaults = {.max_steps = 4690},
      .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& config) {
    const FashionMnist data = LoadFashionMnist();
    const auto classifier = [&](const Features& batch, Mode mode) {
      const Output logits = Logits(batch["image"], model, mode == Mode::kTrain ? dropout : 0);
      const LearningRate rate = config.Adjusted(
          CosineDecay({.initial = config.learning_rate, .steps = config.max_steps}));
      return MultiClassHead(10).Spec(logits, batch["label"], Adam({.learning_rate = rate}), mode);
    };
    Estimator estimator(classifier, config);
    TrainAndEvaluate(
        estimator,
        {.input = [&] { return Samples(data.train).Shuffle(uint64_t(config.seed)).Repeat(); }},
        {.input = [&] { return Samples(data.test); }});
  });
}
