// Learns which of 20,000 words are good news from sentences of five, with a table of words that
// lives on parameter servers. A step moves only the rows of the words in its batch.
#include <tutti/tutti.h>

using namespace tutti;

constexpr int32_t kWords = 20000;

Dataset Sentences(int64_t count, int64_t first) {
  Tensor words(kInt32, {count, 5}), good(kInt32, {count});
  for (int64_t i = 0; i < count; ++i) {
    int votes = 0;
    for (int64_t j = 0; j < 5; ++j) {
      const auto word = int32_t(((first + i) * 5 + j) * 7919 % kWords);
      words.data<int32_t>()[i * 5 + j] = word;
      votes += word % 3 == 0 ? 2 : -1;
    }
    good.data<int32_t>()[i] = votes > 0 ? 1 : 0;
  }
  return Dataset::FromTensors({{"words", words}, {"good", good}});
}

ModelSpec News(const Features& batch, Mode mode) {
  Output rows = nn::Embedding(batch["words"], kWords, 8);             // [batch, 5, 8]
  Output good = nn::Dense(Mean(rows, {.axes = {1}}), 1, {}, "vote");  // [batch, 1]
  return BinaryHead().Spec(good, batch["good"], Adam({.learning_rate = 0.02}), mode);
}

int main(int argc, char** argv) {
  return Main(argc, argv, {.defaults = {.max_steps = 400}}, [](const RunConfig& config) {
    Estimator estimator(News, config);
    TrainAndEvaluate(estimator, {.input = [] { return Sentences(20000, 0).Shuffle(1).Repeat(); }},
                     {.input = [] { return Sentences(2000, 20000); }});
  });
}
