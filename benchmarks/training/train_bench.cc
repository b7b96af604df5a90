// Trains one of the models of benchmarks/compare-training on numbers made up in memory, to tell how
// many samples a second a user's program gets: it is written as one, with Main and an Estimator.
//
//   build/bin/tutti run --workers 2 --cores-per-worker 1 -- build/bin/train_bench
//       --model cnn --batch-size 64 --strategy allreduce --max-steps 200 --report report.json
//
// trains --untimed-steps first, and then the --max-steps that the report is about; only these are
// in its samples_per_second. The models are those of peers/models.py, a larger MLP, and look-up
// tables, whose gradients are rows.
#include <tutti/tutti.h>

#include <chrono>
#include <cstdio>
#include <random>
#include <string>

using namespace tutti;

namespace {

constexpr int64_t kClasses = 10;
// Few, so that they stay in the cache: peers train on one batch again and again.
constexpr int64_t kBatches = 4;
// The look-up tables of the model "tables": as many as a recommender has categorical features.
constexpr int64_t kTables = 26;
constexpr int64_t kTableRows = 10'000;
constexpr int64_t kTableWidth = 16;

Output Logits(Output images, const std::string& model) {
  Output h = images;
  if (model == "cnn") {
    h = nn::Conv2d(h, 32, {3, 3}, {.activation = nn::kRelu});
    h = nn::MaxPool(h, {2, 2});
    h = nn::Conv2d(h, 64, {3, 3}, {.activation = nn::kRelu});
    h = nn::MaxPool(h, {2, 2});
    h = nn::Dense(nn::Flatten(h), 128, {.activation = nn::kRelu});
  } else if (model == "mlp-97mb" || model == "mlp-330mb") {
    h = nn::Flatten(h);
    const int64_t wide = model == "mlp-97mb" ? 4096 : 8192;
    for (const int64_t units : {wide, wide, int64_t{1024}}) {
      h = nn::Dense(h, units, {.activation = nn::kRelu});
    }
  } else if (model == "mlp-50mb") {
    h = nn::Flatten(h);
    for (int layer = 0; layer < 6; ++layer) h = nn::Dense(h, 1504, {.activation = nn::kRelu});
  } else {
    h = nn::Dense(nn::Flatten(h), 100, {.activation = nn::kRelu});
  }
  return nn::Dense(h, kClasses);
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

// The same on every worker, as the samples of one dataset are.
Dataset Samples(const std::string& model, int64_t count) {
  if (model == "tables") return TableSamples(count);
  std::mt19937 random(2);
  std::normal_distribution<float> pixel;
  std::uniform_int_distribution<int32_t> label(0, kClasses - 1);
  Tensor images = Tensor::Zeros(kFloat32, {count, 28, 28, 1});
  Tensor labels = Tensor::Zeros(kInt32, {count});
  for (float& value : images.values<float>()) value = pixel(random);
  for (int32_t& value : labels.values<int32_t>()) value = label(random);
  return Dataset::FromTensors({{"image", images}, {"label", labels}});
}

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
  int64_t forward_steps = 0;
  Flags flags("");
  flags.Add("model", &model,
            "784-100-10, conv32-pool-conv64-pool-dense128-10, MLPs of so much, or look-up tables",
            {"mlp-small", "cnn", "mlp-50mb", "mlp-97mb", "mlp-330mb", "tables"});
  flags.Add("forward-steps", &forward_steps, "passes forward to time at the end, beside training",
            0);
  flags.Add("untimed-steps", &untimed_steps, "updates before those that count", 1);
  const MainOptions options = {.summary = "Tells how many samples a second a training takes.",
                               .defaults = {.learning_rate = 0.01},
                               .flags = &flags};
  return Main(argc, argv, options, [&](const RunConfig& config) {
    const auto classifier = [&](const Features& batch, Mode mode) {
      const Output logits = model == "tables" ? TableLogits(batch) : Logits(batch["image"], model);
      return MultiClassHead(kClasses).Spec(logits, batch["label"],
                                           Sgd({.learning_rate = config.learning_rate}), mode);
    };
    const Dataset samples = Samples(model, kBatches * config.batch_size * config.workers());
    const auto input = [&] { return samples.Repeat(); };
    Estimator estimator(classifier, config);
    estimator.Train({.input = input, .max_steps = untimed_steps});
    estimator.Train({.input = input, .max_steps = untimed_steps + config.max_steps});
    if (forward_steps > 0) TimeForward(estimator, samples, config, forward_steps);
  });
}
