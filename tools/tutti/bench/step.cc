#include <fmt/format.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/model_values.h"
#include "tools/tutti/models.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"

extern char** environ;

namespace tutti::tools {
namespace {

std::string CaseName(std::string_view model, int64_t batch, int threads) {
  return fmt::format("{} batch {}, {} thread{}", model, batch, threads, threads == 1 ? "" : "s");
}

void BenchModel(std::string_view name, const BenchOptions& options) {
  const int64_t batch = options.batch > 0 ? options.batch : DefaultBatch(name);
  const int threads = ThreadsOf(options);
  const StepModel model = MakeStepModel(name, batch);
  Session session(*model.graph, {.cores_per_device = threads});
  session.Initialize();
  Tensor loss;
  const auto step = [&] {
    session.RunInto(model.feeds, std::span(&model.loss, 1), std::span(&model.train, 1),
                    std::span(&loss, 1));
  };
  for (int i = 0; i < 5; ++i) step();
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(options.seconds * 1e9);
  for (int64_t before = NowNanos(); before < end || times.size() < 5;) {
    step();
    const int64_t after = NowNanos();
    times.push_back(double(after - before) * 1e-6);
    before = after;
  }
  Report({"step", CaseName(name, batch, threads), Median(times), "ms"}, options.json);
}

void BenchLosses(std::string_view name, const BenchOptions& options) {
  constexpr int kSteps = 3;
  const int64_t batch = options.batch > 0 ? options.batch : DefaultBatch(name);
  const int threads = ThreadsOf(options);
  StepModel model = MakeStepModel(name, batch);
  const FirstValues first = AddFirstValues(model);
  Session session(*model.graph, {.cores_per_device = threads});
  session.Initialize();
  session.Run(first.feeds, {}, first.targets);
  for (int step = 1; step <= kSteps; ++step) {
    const std::vector<Tensor> results =
        session.Run(model.feeds, std::span(&model.loss, 1), std::span(&model.train, 1));
    Report({"step", fmt::format("{}, loss of step {}", CaseName(name, batch, threads), step),
            double(results[0].scalar<float>()), ""},
           options.json);
  }
}

// Bytes that the process has had in memory at most.
int64_t PeakResidentBytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return int64_t(usage.ru_maxrss) * 1024;
}

int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0;
  int64_t resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

void BenchStep(const BenchOptions& options) {
  for (const std::string_view name : kModelNames) {
    if (!options.model.empty() && options.model != name) continue;
    BenchModel(name, options);
    if (options.losses) BenchLosses(name, options);
  }
}

void BenchPeak(const BenchOptions& options) {
  const std::string name = options.model.empty() ? "cnn" : options.model;
  const int64_t batch = options.batch > 0 ? options.batch : 256;
  const int threads = ThreadsOf(options);
  const StepModel model = MakeStepModel(name, batch);
  int64_t outside = 0;
  for (const Output& variable : nn::Variables(*model.graph)) {
    outside += variable.shape().elements() * int64_t(SizeOf(variable.dtype()));
  }
  for (const Feed& feed : model.feeds) outside += int64_t(feed.second.bytes());
  const int64_t before = ResidentBytes();
  Session session(*model.graph, {.cores_per_device = threads});
  session.Initialize();
  RunTrace trace;
  for (int i = 0; i < 3; ++i) {
    session.Run(model.feeds, std::span(&model.loss, 1), std::span(&model.train, 1),
                {.trace = i == 2, .trace_result = i == 2 ? &trace : nullptr});
  }
  const double mega = 1e-6;
  const std::string what = CaseName(name, batch, threads);
  Report({"peak", what + ", tensors", double(trace.arena_bytes + outside) * mega, "MB"},
         options.json);
  Report({"peak", what + ", process", double(PeakResidentBytes() - before) * mega, "MB"},
         options.json);
  if (!options.list) return;
  for (const PeakTrace& peak : trace.peaks) {
    int64_t alive = 0;
    for (const auto& value : peak.values) alive += value.bytes;
    Report({"peak", what + ", alive at " + peak.node, double(alive) * mega, "MB"}, options.json);
    for (const auto& [value, bytes] : peak.values) {
      Report({"peak", what + ", alive: " + value, double(bytes) * mega, "MB"}, options.json);
    }
  }
}

void StartupChild() {
  const StepModel model = MakeStepModel("mlp-small", DefaultBatch("mlp-small"));
  Session session(*model.graph);
  session.Initialize();
  session.Run(model.feeds, std::span(&model.loss, 1), std::span(&model.train, 1));
  // Past every destructor: the moment that counts is the end of the step.
  FormatTo(stdout, "{}\n", NowNanos());
}

void BenchStartup(const BenchOptions& options, const std::string& program) {
  constexpr int kRounds = 11;
  std::vector<double> times;
  for (int round = 0; round < kRounds; ++round) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error(Code::kInternal, "bench startup: no pipe");
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    std::string words[] = {program, "bench", "startup", "--child"};
    char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(),
                         nullptr};
    pid_t child = 0;
    const int64_t start = NowNanos();
    const int failed =
        ::posix_spawn(&child, program.c_str(), &actions, nullptr, arguments, environ);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    std::string text(64, '\0');
    ssize_t got = 0;
    if (failed == 0) {
      got = ::read(ends[0], text.data(), text.size());
      int status = 0;
      ::waitpid(child, &status, 0);
    }
    ::close(ends[0]);
    if (failed != 0 || got <= 0) {
      throw Error(Code::kInternal,
                  fmt::format("bench startup: {} did not run its first step{}{}", program,
                              failed != 0 ? ": " : "", failed != 0 ? std::strerror(failed) : ""));
    }
    times.push_back(double(std::stoll(text) - start) * 1e-6);
  }
  Report({"startup", "process start to end of first step, mlp-small", Median(times), "ms"},
         options.json);
}

}  // namespace tutti::tools
