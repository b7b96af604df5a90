// Saves and restores a training of dense layers with Adam, sized to the requested number of bytes,
// with the same code as an Estimator (train/checkpoints/checkpoints.h).
#include "tools/tutti/bench/checkpoint.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/checkpoint/file.h"
#include "tutti/topology/quantity.h"
#include "tutti/train/checkpoints/checkpoints.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

constexpr int64_t kUnits = 2048;  // of a layer, about
constexpr int64_t kBatch = 32;
constexpr int kQuietSteps = 8;          // between two saves, to know what a step takes
constexpr int64_t kBytesOfWeight = 12;  // with Adam's two slots

double Since(int64_t begin) { return double(NowNanos() - begin) * 1e-9; }

// A field of /proc/self/status, in bytes; 0 where there is none.
int64_t MemoryField(std::string_view name) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::atoll(line.c_str() + name.size() + 1) * 1024;
  }
  return 0;
}

// From here on VmHWM is the most since now.
void ForgetPeak() { std::ofstream("/proc/self/clear_refs") << "5"; }

struct Model {
  Graph graph;
  Output x, loss;
  const Node* train = nullptr;
  int64_t bytes = 0;  // of variables and slots

  explicit Model(int64_t wanted) {
    const int64_t weights = std::max<int64_t>(1, wanted / kBytesOfWeight);
    const int64_t layers = std::max<int64_t>(1, weights / (kUnits * kUnits));
    const auto units = int64_t(std::sqrt(double(weights) / double(layers)));
    x = Placeholder(graph, kFloat32, {kBatch, units}, "x");
    Output h = x;
    for (int64_t i = 0; i < layers; ++i) {
      h = nn::Dense(h, units, {.activation = nn::kRelu, .bias = false});
    }
    loss = Mean(Square(h));
    train = Adam({.learning_rate = 1e-4}).Minimize(loss);
    bytes = layers * units * units * kBytesOfWeight;
  }
};

class Bench {
 public:
  Bench(const std::string& folder, int64_t bytes) : model_(bytes), session_(model_.graph) {
    config_.model_dir = folder;
    config_.save_every = "1";
    config_.keep = 1;
    config_.program = "tutti bench checkpoint";
    config_.Join();
    session_.Initialize();
    checkpoints_.emplace(config_, Checkpoints::Use::kTrain);
    checkpoints_->BeginTraining(model_.graph, {});
    Tensor values(kFloat32, model_.x.shape());
    for (float& value : values.values<float>()) value = 1;
    feed_ = {{model_.x, values}};
  }

  int64_t bytes() const { return model_.bytes; }

  struct Figures {
    double alone = 0, beside = 0, extra = 0, extra_removal = 0, removal = 0, restore = 0,
           memory = 0;
  };
  // Steps without a save, then those from the beginning of one until it is durable, and those until
  // the checkpoint before it is removed; then a save and a restore with nothing beside them.
  Figures Round() {
    Figures figures;
    std::vector<double> quiet;
    for (int i = 0; i < kQuietSteps; ++i) quiet.push_back(Step());
    const double usual = Median(quiet);
    ::malloc_trim(0);  // what is free already does not count as used
    const int64_t before = MemoryField("VmRSS:");
    ForgetPeak();
    std::optional<SaveEnd> ended;
    for (bool saves = true; !ended; saves = false) {
      figures.extra += Step(saves) - usual;
      ended = checkpoints_->TakeEnded();
    }
    if (!ended->error.empty()) throw Error(Code::kDataLoss, ended->error);
    figures.beside = ended->seconds;
    figures.memory = 1 + double(MemoryField("VmHWM:") - before) / double(bytes());
    while (checkpoints_->Busy()) figures.extra_removal += Step() - usual;
    Step();
    const int64_t last = NowNanos();
    ThrowIfError(checkpoints_->Finish(session_, step_, 0));
    figures.alone = checkpoints_->TakeEnded()->seconds;
    figures.removal = Since(last) - figures.alone;
    const int64_t begin = NowNanos();
    Checkpoints reader(config_, Checkpoints::Use::kEvaluate);
    if (!reader.Restore(model_.graph, session_)) {
      throw Error(Code::kNotFound, "there is no checkpoint to restore");
    }
    figures.restore = Since(begin);
    return figures;
  }

 private:
  double Step(bool saves = false) {
    const int64_t begin = NowNanos();
    const Node* const targets[] = {model_.train};
    session_.Run(feed_, std::span<const Output>(), targets);
    ++step_;
    if (saves) checkpoints_->AfterStep(session_, step_, 0);
    return Since(begin);
  }

  Model model_;
  Session session_;
  RunConfig config_;
  std::optional<Checkpoints> checkpoints_;
  std::vector<Feed> feed_;
  int64_t step_ = 0;
};

}  // namespace

void BenchCheckpoint(const CheckpointBench& options) {
  const auto bytes = topology::ParseBytes(options.bytes);
  ThrowIfError(WithPrefix(bytes.status(), "bench checkpoint: --bytes: "));
  const std::string folder =
      fmt::format("{}/tutti-bench-checkpoint-{}", options.folder, ::getpid());
  std::vector<Bench::Figures> rounds;
  int64_t state = 0;
  try {
    Bench bench(folder, int64_t(*bytes));
    state = bench.bytes();
    for (int round = 0; round <= options.rounds; ++round) {
      const Bench::Figures figures = bench.Round();
      if (round > 0) rounds.push_back(figures);  // the first compiles and warms up
    }
  } catch (...) {
    (void)checkpoint::RemoveTree(checkpoint::FileSystem::System(), folder);
    throw;
  }
  (void)checkpoint::RemoveTree(checkpoint::FileSystem::System(), folder);
  const std::string size = topology::FormatBytes(double(state));
  const auto report = [&](std::string_view what, double Bench::Figures::*figure, const char* unit) {
    std::vector<double> values;
    for (const Bench::Figures& round : rounds) values.push_back(round.*figure);
    Report({"checkpoint", fmt::format("{}, {}", size, what), Median(values), unit}, options.json);
  };
  using Figures = Bench::Figures;
  report("save to durable", &Figures::alone, "s");
  report("removal of the one before", &Figures::removal, "s");
  report("save to durable beside steps", &Figures::beside, "s");
  report("extra time of the steps meanwhile", &Figures::extra, "s");
  report("extra time of the steps during the removal", &Figures::extra_removal, "s");
  report("most memory meanwhile", &Figures::memory, "times the state");
  report("restore", &Figures::restore, "s");
}

}  // namespace tutti::tools
