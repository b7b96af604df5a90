// A wide-and-deep model that tells whether a user clicks, on generated data in the shape of
// Criteo's: 13 numbers and 26 words a sample, the words looked up in one large table.
//
//   build/bin/click_model                                                         # one process
//   build/bin/tutti run --workers 2 --ps 2 -- build/bin/click_model --strategy ps-async
//
// With parameter servers the table is split over them by rows, and only the rows that a batch uses
// travel, in both directions. It shows how such a model is spread, not how well one can be: after
// --max-steps 2000 in one process the test auc is 0.57. --help lists the flags.
#include <tutti/tutti.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <string>

using namespace tutti;

namespace {

constexpr int64_t kNumbers = 13, kWords = 26, kWidth = 16;

// A number from 0 to 1 that depends on nothing but its arguments.
double Hashed(uint64_t a, uint64_t b) {
  uint64_t h = a * 0x9E3779B97F4A7C15u + b * 0xC2B2AE3D27D4EB4Fu;
  h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 29)) * 0x94D049BB133111EBu;
  return double((h ^ (h >> 32)) >> 11) * 0x1.0p-53;
}

// Words follow Zipf's law, each column with its own: few are in most samples. Every word and number
// moves the odds of a click by a little that only the generator knows.
Dataset Clicks(int64_t samples, int64_t rows, uint64_t seed) {
  Tensor numbers(kFloat32, {samples, kNumbers}), words(kInt64, {samples, kWords}),
      clicked(kFloat32, {samples});
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0.0, 1.0);
  std::normal_distribution<double> normal(0.0, 1.0);
  for (int64_t s = 0; s < samples; ++s) {
    double odds = -1.2;
    for (int64_t i = 0; i < kNumbers; ++i) {
      const double value = normal(random);
      numbers.data<float>()[s * kNumbers + i] = float(value);
      odds += 0.25 * value * (Hashed(7, uint64_t(i)) - 0.5);
    }
    for (int64_t i = 0; i < kWords; ++i) {
      // The inverse of a distribution whose density falls with the power 1.2.
      const double rank = std::pow(1 - uniform(random) * 0.99, -5.0) - 1;
      const auto word = int64_t(std::fmod(rank * 37 + double(i) * 7919, double(rows)));
      words.data<int64_t>()[s * kWords + i] = word;
      odds += 0.9 * (Hashed(11, uint64_t(word)) - 0.5);
    }
    clicked.data<float>()[s] = uniform(random) < 1 / (1 + std::exp(-odds)) ? 1.0f : 0.0f;
  }
  return Dataset::FromTensors({{"numbers", numbers}, {"words", words}, {"clicked", clicked}});
}

}  // namespace

int main(int argc, char** argv) {
  int64_t rows = 100000, samples = 200000;
  Flags flags("");
  flags.Add("rows", &rows, "of the table", 1);
  flags.Add("samples", &samples, "to generate for training", 1);
  const MainOptions options = {.summary = "Trains a wide-and-deep click model on generated data.",
                               .defaults = {.max_steps = 2000, .batch_size = 256},
                               .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& config) {
    const Dataset train = Clicks(samples, rows, 1), test = Clicks(20000, rows, 2);
    const auto model = [&](const Features& batch, Mode mode) {
      const Output numbers = batch["numbers"];
      const Output deep_rows = nn::Embedding(batch["words"], rows, kWidth, {}, "deep");
      const Output wide_rows = nn::Embedding(batch["words"], rows, 1, {}, "wide");
      Output h = Concat({Reshape(deep_rows, Shape{-1, kWords * kWidth}), numbers}, 1);
      h = nn::Dense(h, 256, {.activation = nn::kRelu});
      h = nn::Dense(h, 128, {.activation = nn::kRelu});
      const Output logits = nn::Dense(h, 1) + Sum(wide_rows, {.axes = {1}});
      return BinaryHead().Spec(Reshape(logits, Shape{-1}), batch["clicked"],
                               Adam({.learning_rate = config.Adjusted(config.learning_rate)}),
                               mode);
    };
    Estimator estimator(model, config);
    TrainAndEvaluate(estimator,
                     {.input = [&] { return train.Shuffle(uint64_t(config.seed)).Repeat(); }},
                     {.input = [&] { return test; }});
  });
}
