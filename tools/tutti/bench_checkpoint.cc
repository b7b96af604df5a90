#include "tools/tutti/bench_checkpoint.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/register.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/topology/quantity.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

using checkpoint::FileSystem;
using checkpoint::ModelDirectory;

constexpr int64_t kVariableBytes = 16 << 20;
constexpr int kQuietSteps = 5;  // to know what a step takes

double Since(int64_t begin) { return double(NowNanos() - begin) * 1e-9; }

// A graph whose step changes every variable.
struct Model {
  Graph graph;
  std::vector<Output> variables;
  std::vector<std::string> names;
  const Node* step = nullptr;
  const Node* take = nullptr;
  const Node* restore = nullptr;
  Output path, save;

  explicit Model(int64_t bytes) {
    const int64_t count = std::max<int64_t>(1, bytes / kVariableBytes);
    std::vector<const Node*> updates;
    for (int64_t i = 0; i < count; ++i) {
      const Shape shape = {bytes / count / 4};
      const Output variable =
          Variable(graph, RandomUniform(shape, -1, 1), fmt::format("variable_{}", i));
      updates.push_back(AssignAdd(variable, Mul(variable, 1e-3f)).node);
      variables.push_back(variable);
      names.push_back(variable.node->name());
    }
    step = Group(graph, updates);
    path = Placeholder(graph, kUInt8, {kPathBytes}, "path");
    take = TakeSnapshot(variables, "all");
    save = SaveShard(path, variables, "all");
    restore = RestoreShard(path, variables, names, std::vector<int64_t>(names.size(), 0));
  }
};

class Bench {
 public:
  Bench(const CheckpointBench& options, int64_t bytes)
      : model_(bytes), session_(model_.graph), folder_(options.folder) {
    session_.Initialize();
  }

  struct Figures {
    double save = 0, extra = 0, restore = 0;
  };
  Figures Round(int64_t number) {
    Figures figures;
    std::vector<double> quiet;
    for (int i = 0; i < kQuietSteps; ++i) quiet.push_back(Step());
    const double usual = Median(quiet);
    std::atomic<bool> saving{true};
    absl::Status status;
    const int64_t begin = NowNanos();
    session_.RunTargets({}, {model_.take});
    std::thread writer = ValueOrThrow(StartThread("the thread that saves", [&] {
      try {
        Save(number);
      } catch (...) {
        status = StatusFromCurrentException();
      }
      figures.save = Since(begin);
      saving = false;
    }));
    figures.extra = Since(begin);
    while (saving) figures.extra += Step() - usual;
    writer.join();
    ThrowIfError(status);
    const Tensor where = PathTensor(folder_ + "/" + checkpoint::CheckpointName(number));
    const int64_t restore = NowNanos();
    session_.RunTargets({{model_.path, where}}, {model_.restore});
    figures.restore = Since(restore);
    return figures;
  }

 private:
  double Step() {
    const int64_t begin = NowNanos();
    session_.RunTargets({}, {model_.step});
    return Since(begin);
  }

  void Save(int64_t number) {
    FileSystem& files = FileSystem::System();
    const std::string folder = ValueOrThrow(directory_.Begin(number));
    const std::string file = "shard-00000.safetensors";
    const SavedVariables saved = ParseSavedVariables(
        session_.Run({{model_.path, PathTensor(folder + "/" + file)}}, model_.save));
    checkpoint::Manifest manifest = {.step = number};
    manifest.shards = {{file, saved.file_bytes, saved.header_crc}};
    for (size_t i = 0; i < saved.variables.size(); ++i) {
      const SavedVariable& variable = saved.variables[i];
      manifest.tensors.push_back({.name = model_.names[i],
                                  .key = model_.names[i],
                                  .dtype = variable.dtype,
                                  .shape = variable.shape,
                                  .whole = variable.shape,
                                  .crc = variable.crc});
    }
    ThrowIfError(WriteAndSync(files, fmt::format("{}/{}", folder, checkpoint::kManifestName),
                              FormatManifest(manifest)));
    ThrowIfError(directory_.Publish(number));
    ThrowIfError(directory_.Retain(1).status());
  }

  Model model_;
  Session session_;
  const std::string folder_;
  ModelDirectory directory_ =
      ValueOrThrow(ModelDirectory::Open(FileSystem::System(), folder_, "tutti bench checkpoint"));
};

}  // namespace

void BenchCheckpoint(const CheckpointBench& options) {
  RegisterCheckpointKernels();
  const auto bytes = topology::ParseBytes(options.bytes);
  ThrowIfError(WithPrefix(bytes.status(), "bench checkpoint: --bytes: "));
  CheckpointBench own = options;
  own.folder += fmt::format("/tutti-bench-checkpoint-{}", ::getpid());
  std::vector<double> saves, extras, restores;
  try {
    Bench bench(own, int64_t(*bytes));
    for (int round = 0; round <= options.rounds; ++round) {
      const Bench::Figures figures = bench.Round(round);
      if (round == 0) continue;  // compiles and warms up
      saves.push_back(figures.save);
      extras.push_back(figures.extra);
      restores.push_back(figures.restore);
    }
  } catch (...) {
    (void)checkpoint::RemoveTree(FileSystem::System(), own.folder);
    throw;
  }
  (void)checkpoint::RemoveTree(FileSystem::System(), own.folder);
  const std::string size = topology::FormatBytes(double(*bytes));
  Report({"checkpoint", size + ", save to durable", Median(saves), "s"}, options.json);
  Report({"checkpoint", size + ", extra time of the steps meanwhile", Median(extras), "s"},
         options.json);
  Report({"checkpoint", size + ", restore", Median(restores), "s"}, options.json);
}

}  // namespace tutti::tools
