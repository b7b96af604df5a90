// Trains one of the models of benchmarks/compare-training on numbers made up in memory, to tell how
// many samples a second a user's program gets: it is written as one, with Main and an Estimator.
//
//   build/bin/tutti run --workers 2 --cores-per-worker 1 -- build/bin/train_bench
//       --model cnn --batch-size 64 --strategy allreduce --max-steps 200 --report report.json
//
// trains --untimed-steps first, and then the --max-steps that the report is about; only these are
// in its samples_per_second. The models are those of peers/models.py, a larger MLP, and look-up
// tables, whose gradients are rows: many small ones, or a large one (click).
#include <tutti/tutti.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tools/tutti/even_values.h"

using namespace tutti;

namespace {

constexpr int64_t kClasses = 10;
// Few, so that they stay in the cache: peers train on one batch again and again.
constexpr int64_t kBatches = 4;
// The look-up tables of the model "tables": as many as a recommender has categorical features.
constexpr int64_t kTables = 26;
constexpr int64_t kTableRows = 10'000;
constexpr int64_t kTableWidth = 16;
// The click model: as many words a sample, in one table, in turns of more batches: a batch's words
// are not in the cache because the last batch had them.
constexpr int64_t kClickRows = 1'000'000;
constexpr int64_t kClickBatches = 64;
constexpr double kClickZipf = 1.2;

// GlorotUniform's, or the first values of our peers: layer after layer another stream.
InitializerOf FirstWeights(bool of_peers) {
  if (!of_peers) return GlorotUniform;
  return [stream = uint32_t{0}](const Shape& shape, DType) mutable {
    return Value(tools::EvenWeights(shape, ++stream));
  };
}

// `weights`: makes the first values, layer after layer.
Output Logits(Output images, const std::string& model, const InitializerOf& weights) {
  const auto next = [&](const Shape& shape, DType dtype) { return weights(shape, dtype); };
  Output h = images;
  if (model == "cnn") {
    h = nn::Conv2d(h, 32, {3, 3}, {.activation = nn::kRelu, .filter = next});
    h = nn::MaxPool(h, {2, 2});
    h = nn::Conv2d(h, 64, {3, 3}, {.activation = nn::kRelu, .filter = next});
    h = nn::MaxPool(h, {2, 2});
    h = nn::Dense(nn::Flatten(h), 128, {.activation = nn::kRelu, .weights = next});
  } else if (model == "mlp-97mb" || model == "mlp-330mb") {
    h = nn::Flatten(h);
    const int64_t wide = model == "mlp-97mb" ? 4096 : 8192;
    for (const int64_t units : {wide, wide, int64_t{1024}}) {
      h = nn::Dense(h, units, {.activation = nn::kRelu, .weights = next});
    }
  } else if (model == "mlp-50mb") {
    h = nn::Flatten(h);
    for (int layer = 0; layer < 6; ++layer) {
      h = nn::Dense(h, 1504, {.activation = nn::kRelu, .weights = next});
    }
  } else {
    h = nn::Dense(nn::Flatten(h), 100, {.activation = nn::kRelu, .weights = next});
  }
  return nn::Dense(h, kClasses, {.weights = next});
}

// The gradients of the tables are rows.
Output TableLogits(const Features& batch) {
  std::vector<Output> rows;
  for (int64_t t = 0; t < kTables; ++t) {
    const std::string name = "id" + std::to_string(t);
    rows.push_back(nn::Embedding(batch[name], kTableRows, kTableWidth, {}, name));
  }
  return nn::Dense(nn::Dense(Concat(rows, 1), 64, {.activation = nn::kRelu}), kClasses);
}

Dataset TableSamples(int64_t count) {
  std::mt19937 random(2);
  std::uniform_int_distribution<int32_t> id(0, kTableRows - 1), label(0, kClasses - 1);
  Columns columns;
  for (int64_t t = 0; t <= kTables; ++t) {
    Tensor values = Tensor::Zeros(kInt32, {count});
    for (int32_t& value : values.values<int32_t>())
      value = t < kTables ? id(random) : label(random);
    columns.emplace(t < kTables ? "id" + std::to_string(t) : "label", values);
  }
  return Dataset::FromTensors(std::move(columns));
}

Output ClickLogits(const Features& batch) {
  const Output rows = nn::Embedding(batch["words"], kClickRows, kTableWidth, {}, "table");
  Output h = Reshape(rows, Shape{-1, kTables * kTableWidth});
  for (const int64_t units : {256, 128}) h = nn::Dense(h, units, {.activation = nn::kRelu});
  return Reshape(nn::Dense(h, 1), Shape{-1});
}

Dataset ClickSamples(int64_t count) {
  std::vector<double> chances(kClickRows);  // of the most frequent words, up to each
  double sum = 0;
  for (int64_t rank = 0; rank < kClickRows; ++rank) {
    chances[size_t(rank)] = sum += std::pow(double(rank + 1), -kClickZipf);
  }
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> chance(0, sum);
  Tensor words = Tensor::Zeros(kInt64, {count, kTables}),
         clicked = Tensor::Zeros(kFloat32, {count});
  for (int64_t& word : words.values<int64_t>()) {
    const auto found = std::lower_bound(chances.begin(), chances.end(), chance(random));
    // Neighbours in rank lie apart in the table, as the words of a dictionary do.
    word = int64_t(found - chances.begin()) * 7919 % kClickRows;
  }
  for (float& value : clicked.values<float>()) value = float(random() % 2);
  return Dataset::FromTensors({{"words", words}, {"clicked", clicked}});
}

// Prints how many different words a batch has, on average, as a line of JSON.
void TellDistinctWords(const Dataset& samples, int64_t batch_size) {
  double batches = 0, distinct = 0;
  const auto reader = samples.Batch(batch_size).Read();
  for (Minibatch next; reader->Next(&next); ++batches) {
    const Tensor column = next.columns.at("words");
    const auto words = column.values<int64_t>();
    distinct += double(std::set<int64_t>(words.begin(), words.end()).size());
  }
  std::printf("{\"bench\":\"train\",\"case\":\"distinct words\",\"value\":%g,\"unit\":\"\"}\n",
              distinct / batches);
}

// The same on every worker, as the samples of one dataset are.
Dataset Samples(const std::string& model, int64_t count) {
  if (model == "tables") return TableSamples(count);
  if (model == "click") return ClickSamples(count);
  const Tensor images = tools::EvenData({count, 28, 28, 1}, tools::kDataStream);
  const Tensor labels = tools::MixedLabels(count, tools::kDataStream + 1, uint32_t(kClasses));
  Tensor ids = Tensor::Zeros(kInt64, {count});
  for (int64_t i = 0; i < count; ++i) ids.data<int64_t>()[i] = i;
  return Dataset::FromTensors({{"image", images}, {"label", labels}, {"id", ids}});
}

// Slows workers down, and notes every step of this one: benchmarks/compare-stragglers.
class StragglerHook final : public Hook {
 public:
  struct Options {
    int64_t slow_worker = -1;   // sleeps after each of its steps; -2: in each step a random one
    double slow_seconds = 0;    // how long
    std::string step_log = {};  // + ".RANK": a line a step; empty: none
  };
  StragglerHook(const Options& options, const RunConfig& config)
      : options_(options), rank_(config.rank()), workers_(config.workers()) {
    if (options.step_log.empty()) return;
    const std::string path = options.step_log + "." + std::to_string(rank_);
    log_.open(path, std::ios::app);  // one that was started again goes on
    if (!log_) throw Error(Code::kUnavailable, path + " cannot be written");
  }

  bool BeforeStep(int64_t /*step*/) override {
    begin_ = Now();
    return false;
  }
  // "begin end id samples": nanoseconds of the host's clock, and the first sample of the batch.
  void AfterStep(const StepEnd& end, TrainingControl& /*control*/) override {
    if (log_.is_open()) {
      log_ << begin_ << ' ' << Now() << ' ' << FirstId(end.feeds) << std::endl;  // NOLINT: flushed
    }
    ++steps_;
    const int64_t slow = options_.slow_worker == -2
                             ? int64_t(std::mt19937_64(uint64_t(steps_))() % uint64_t(workers_))
                             : options_.slow_worker;
    if (slow == rank_) {
      std::this_thread::sleep_for(std::chrono::duration<double>(options_.slow_seconds));
    }
  }

 private:
  static int64_t Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
  static std::string FirstId(std::span<const Feed> feeds) {
    for (const auto& [output, value] : feeds) {
      if (output.dtype() != kInt64 || output.node->name().find("id") == std::string::npos) continue;
      return std::to_string(value.data<int64_t>()[0]) + ' ' + std::to_string(value.elements());
    }
    return "-1 0";
  }

  const Options options_;
  const int rank_, workers_;
  std::ofstream log_;
  int64_t begin_ = 0, steps_ = 0;
};

// Prints what a pass forward takes, as a line of JSON.
void TimeForward(Estimator& estimator, const Dataset& samples, const RunConfig& config,
                 int64_t steps) {
  using Clock = std::chrono::steady_clock;
  const EvalSpec spec = {.input = [&] { return samples; },
                         .batch_size = config.batch_size * config.workers()};
  estimator.Evaluate(spec);
  const auto begin = Clock::now();
  int64_t done = 0;
  for (; done < steps; done += kBatches) estimator.Evaluate(spec);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (!estimator.leads()) return;
  std::printf("{\"bench\":\"train\",\"case\":\"forward\",\"value\":%g,\"unit\":\"s\"}\n",
              seconds / double(done));
}

}  // namespace

int main(int argc, char** argv) {
  std::string model = "cnn";
  int64_t untimed_steps = 10;
  int64_t forward_steps = 0, batches_of_data = 0;
  double slow_milliseconds = 0;
  bool count_words = false, values_of_peers = false;
  std::string optimizer = "sgd";
  StragglerHook::Options straggler;
  Flags flags("");
  flags.Add("model", &model,
            "784-100-10, conv32-pool-conv64-pool-dense128-10, MLPs of so much, or look-up tables",
            {"mlp-small", "cnn", "mlp-50mb", "mlp-97mb", "mlp-330mb", "tables", "click"});
  flags.Add("forward-steps", &forward_steps, "passes forward to time at the end, beside training",
            0);
  flags.Add("untimed-steps", &untimed_steps, "updates before those that count; 0: none", 0);
  flags.Add("batches", &batches_of_data, "of different samples for each worker (4; click: 64)", 0);
  flags.Add("slow-worker", &straggler.slow_worker, "sleeps after its steps; -2: a random one", -2);
  flags.Add("slow-milliseconds", &slow_milliseconds, "that it sleeps", 0.0);
  flags.Add("optimizer", &optimizer, "what updates the variables", {"sgd", "adam"});
  flags.Add("count-words", &count_words, "tell how many different words a click batch has");
  flags.Add("values-of-peers", &values_of_peers,
            "start from the values that benchmarks/peers/models.py gives our peers");
  flags.Add("step-log", &straggler.step_log, "PREFIX of files with a line for every step");
  const MainOptions options = {.summary = "Tells how many samples a second a training takes.",
                               .defaults = {.learning_rate = 0.01},
                               .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& config) {
    const auto classifier = [&](const Features& batch, Mode mode) {
      ModelSpec spec = model == "click"
                           ? BinaryHead().Spec(ClickLogits(batch), batch["clicked"], mode)
                           : MultiClassHead(kClasses).Spec(
                                 model == "tables"
                                     ? TableLogits(batch)
                                     : Logits(batch["image"], model, FirstWeights(values_of_peers)),
                                 batch["label"], mode);
      if (mode != Mode::kTrain) return spec;
      if (optimizer == "adam") {
        spec.optimizer = std::make_shared<Adam>(AdamConfig{.learning_rate = config.learning_rate});
      } else {
        spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = config.learning_rate});
      }
      return spec;
    };
    const int64_t usual = model == "click" ? kClickBatches : kBatches;
    const int64_t batches = batches_of_data > 0 ? batches_of_data : usual;
    const Dataset samples = Samples(model, batches * config.batch_size * config.workers());
    if (count_words && config.leads()) TellDistinctWords(samples, config.batch_size);
    const auto input = [&] { return samples.Repeat(); };
    Estimator estimator(classifier, config);
    straggler.slow_seconds = slow_milliseconds / 1e3;
    const auto hook = std::make_shared<StragglerHook>(straggler, config);
    if (untimed_steps > 0) estimator.Train({.input = input, .max_steps = untimed_steps});
    const int64_t steps = config.epochs > 0 ? 0 : untimed_steps + config.max_steps;
    estimator.Train({.input = input, .max_steps = steps, .hooks = {hook}});
    if (forward_steps > 0) TimeForward(estimator, samples, config, forward_steps);
  });
}
