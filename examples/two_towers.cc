// A two-tower model, as used to find items for users: one tower turns a user into a vector, the
// other an item, and the product of the vectors tells whether they fit. The towers do not depend on
// each other, so two devices can work on them at once; the cost model finds that out.
//
//   build/bin/two_towers                                   # one device
//   build/bin/two_towers --devices 2 --placement search    # the towers side by side
//
// The second prints where the step spends its time, and both end with the same "test accuracy",
// about 0.8 after 300 steps.
#include <tutti/tutti.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

using namespace tutti;

namespace {

constexpr int64_t kFeatures = 64;  // of a user, and of an item

// A user and an item fit if a fixed random rotation of one points the way of the other.
Dataset Pairs(int64_t samples, uint64_t seed) {
  Tensor users(kFloat32, {samples, kFeatures}), items(kFloat32, {samples, kFeatures}),
      fits(kFloat32, {samples});
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0f, 1.0f);
  for (float& value : users.values<float>()) value = normal(random);
  for (float& value : items.values<float>()) value = normal(random);
  for (int64_t s = 0; s < samples; ++s) {
    const float* const user = users.data<float>() + s * kFeatures;
    const float* const item = items.data<float>() + s * kFeatures;
    float score = 0;
    for (int64_t i = 0; i < 8; ++i) score += user[i] * item[(i * 5 + 3) % kFeatures];
    fits.data<float>()[s] = score > 0 ? 1.0f : 0.0f;
  }
  return Dataset::FromTensors({{"user", users}, {"item", items}, {"fits", fits}});
}

Output Tower(Output features, int64_t width, const std::string& name) {
  NameScope scope(features.graph(), name);
  Output h = nn::Dense(features, width, {.activation = nn::kRelu});
  h = nn::Dense(h, width, {.activation = nn::kRelu});
  return nn::Dense(h, 32);
}

}  // namespace

int main(int argc, char** argv) {
  int64_t width = 512;
  Flags flags("");
  flags.Add("width", &width, "of the towers' layers", 1);
  const MainOptions options = {.summary = "Trains a two-tower model on generated data.",
                               .defaults = {.max_steps = 300, .batch_size = 256},
                               .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& config) {
    const Dataset train = Pairs(20000, 1), test = Pairs(4000, 2);
    const auto model = [&](const Features& batch, Mode mode) {
      const Output user = Tower(batch["user"], width, "user");
      const Output item = Tower(batch["item"], width, "item");
      return BinaryHead().Spec(Sum(user * item, {.axes = {1}}), batch["fits"],
                               Adam({.learning_rate = config.Adjusted(config.learning_rate)}),
                               mode);
    };
    Estimator estimator(model, config);
    TrainAndEvaluate(estimator,
                     {.input = [&] { return train.Shuffle(uint64_t(config.seed)).Repeat(); }},
                     {.input = [&] { return test; }});
  });
}
