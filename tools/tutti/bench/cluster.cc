// `tutti bench cluster`: this process is worker 0 of a cluster on this host, whose ps tasks are
// processes of their own, and runs steps over them.
#include <algorithm>
#include <csignal>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/cluster/cluster_file.h"
#include "tutti/launch/local_cluster.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

constexpr int64_t kMega = 1'000'000;

// The cluster, and a session of its worker.
class Bed {
 public:
  Bed(const BenchOptions& options, const std::string& program, Graph& graph)
      : cluster_(options.config.empty() ? StartTasks(program) : nullptr),
        server_({.job = "worker",
                 .task = 0,
                 .cluster = cluster_ != nullptr
                                ? cluster_->jobs()
                                : ValueOrThrow(ReadClusterFile(options.config)).cluster.jobs(),
                 .token = options.token}),
        session_(graph, {.server = &server_}) {}
  Session& session() { return session_; }

 private:
  static std::unique_ptr<LocalCluster> StartTasks(const std::string& program) {
    return std::make_unique<LocalCluster>(LocalClusterOptions{
        .program = program, .jobs = {{"ps", 2}, {"worker", 1}}, .not_started = "worker"});
  }

  const std::unique_ptr<LocalCluster> cluster_;  // null: the tasks of a cluster file
  Server server_;
  Session session_;
};

Output VariableOn(Graph& graph, int ps, const Shape& shape, const std::string& name) {
  const DeviceScope there(graph, "/job:ps/task:" + std::to_string(ps));
  return Variable(graph, Ones(shape), name);
}

// The median time of a step in microseconds. `before`, if any, runs before each, and is not timed.
double Measure(
    double seconds, const std::function<void()>& step,
    const std::function<void()>& before = [] {}) {
  for (int i = 0; i < 3; ++i) {
    before();
    step();
  }
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  constexpr size_t kLeast = 5;
  while (NowNanos() < end || times.size() < kLeast) {
    before();
    const int64_t start = NowNanos();
    step();
    times.push_back(double(NowNanos() - start) / 1e3);
  }
  return Median(std::move(times));
}

void Expect(bool right) {
  if (!right) throw Error(Code::kInternal, "bench cluster: a step gave a wrong value");
}

void Null(const BenchOptions& options, const std::string& program) {
  Graph graph;
  const Output sum = VariableOn(graph, 0, {}, "a") + VariableOn(graph, 1, {}, "b");
  Bed bed(options, program, graph);
  bed.session().Initialize();
  const double micros =
      Measure(options.seconds, [&] { Expect(bed.session().Run(sum).scalar<float>() == 2); });
  Report({"cluster", "null step over 2 ps", micros, "us"}, options.json);
}

// A tensor that a kernel of one task writes and a kernel of another reads. The step takes longer by
// the transfer than the same one with both kernels on the worker.
void Transfer(const BenchOptions& options, const std::string& program) {
  constexpr int64_t kBytes = 128 * kMega;
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, Shape{}, "x");
  const auto summed = [&](const std::string& device, const std::string& name) {
    Output written;
    {
      const DeviceScope there(graph, device);
      written = Variable(graph, Ones({kBytes / 4}), name) + x;
    }
    return Sum(written);
  };
  const Output there = summed("/job:ps/task:0", "there"), here = summed("", "here");
  Bed bed(options, program, graph);
  bed.session().Initialize();
  const auto measure = [&](const Output& sum) {
    return Measure(options.seconds, [&] {
      Expect(bed.session().Run({{x, Tensor::Scalar(1.0f)}}, sum).scalar<float>() > 0);
    });
  };
  const double micros = measure(there), kernels = measure(here);
  Report({"cluster", "128 MB, written on ps 0, summed on the worker", micros / 1e3, "ms"},
         options.json);
  Report({"cluster", "128 MB, rate of that step", double(kBytes) / micros / 1e3, "GB/s"},
         options.json);
  Report({"cluster", "128 MB, rate without both kernels", double(kBytes) / (micros - kernels) / 1e3,
          "GB/s"},
         options.json);
}

// All parameters were written by their tasks right before they are sent, as an update does it. They
// are 1 and 2 in turn: sums of these are exact.
void Dense(const BenchOptions& options, const std::string& program) {
  constexpr int kVariables = 20;
  constexpr int64_t kElements = 5 * kMega / 4;
  Graph graph;
  const Output change = Placeholder(graph, kFloat32, Shape{}, "change");
  std::vector<Output> sums;
  std::vector<const Node*> updates;
  for (int i = 0; i < kVariables; ++i) {
    const Output v = VariableOn(graph, i % 2, {kElements}, "v" + std::to_string(i));
    sums.push_back(Sum(v));
    const DeviceScope there(graph, "/job:ps/task:" + std::to_string(i % 2));
    updates.push_back(Assign(v, v + change).node);
  }
  Output all = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) all = all + sums[i];
  Bed bed(options, program, graph);
  bed.session().Initialize();
  bool two = false;
  const double micros = Measure(
      options.seconds,
      [&] {
        const float wanted = float(kVariables * kElements * (two ? 2 : 1));
        Expect(bed.session().Run(all).scalar<float>() == wanted);
      },
      [&] {
        two = !two;
        const Feed feed = {change, Tensor::Scalar(two ? 1.0f : -1.0f)};
        bed.session().Run(std::span(&feed, 1), {}, updates);
      });
  Report({"cluster", "100 MB of parameters on 2 ps, summed by the worker", micros / 1e3, "ms"},
         options.json);
}

void Rows(const BenchOptions& options, const std::string& program) {
  Graph graph;
  constexpr int64_t kColumns = 64;
  constexpr int64_t kRows = 2'000'000;  // 512 MB a ps task
  const Output rows = Placeholder(graph, kInt64, {16}, "rows");
  std::vector<Output> parts;
  for (int ps = 0; ps < 2; ++ps) {
    const Output table = VariableOn(graph, ps, {kRows, kColumns}, "table" + std::to_string(ps));
    const DeviceScope there(graph, "/job:ps/task:" + std::to_string(ps));
    parts.push_back(Gather(table, rows));
  }
  const Output both = Concat(parts, 0);
  Bed bed(options, program, graph);
  bed.session().Initialize();
  Tensor wanted(kInt64, {16});
  int64_t next = 0;
  const double micros = Measure(options.seconds, [&] {
    for (int64_t& row : wanted.values<int64_t>()) row = (next += 7919) % kRows;
    Expect(bed.session().Run({{rows, wanted}}, both).shape() == Shape({32, kColumns}));
  });
  Report({"cluster", "32 rows of a table of 1 GB on 2 ps", micros, "us"}, options.json);
}

// A thousand values that one task makes and another joins, sent one by one, and the same step with
// the values joined before they are sent. Both have the same kernels: the difference is the cost of
// the transfers.
void ManySmall(const BenchOptions& options, const std::string& program) {
  constexpr int kTensors = 1000;
  double micros[2] = {};
  for (const bool one : {false, true}) {
    Graph graph;
    const Output v = VariableOn(graph, 0, {100}, "v");
    const Output x = Placeholder(graph, kFloat32, Shape{}, "x");
    Output joined;
    {
      const DeviceScope there(graph, "/job:ps/task:0");
      std::vector<Output> made;
      for (int i = 0; i < kTensors; ++i) made.push_back(v * (x + Constant(graph, float(i))));
      const DeviceScope sent(graph, one ? "/job:ps/task:0" : "/job:worker/task:0");
      joined = Concat(made, 0);
    }
    const Output all = Neg(joined);
    Bed bed(options, program, graph);
    bed.session().Initialize();
    micros[one ? 1 : 0] = Measure(options.seconds, [&] {
      const Tensor result = bed.session().Run({{x, Tensor::Scalar(1.0f)}}, all);
      Expect(result.elements() == 100 * kTensors);
    });
  }
  Report({"cluster", "1,000 tensors of 100 floats", micros[0], "us"}, options.json);
  Report({"cluster", "the same values as one tensor", micros[1], "us"}, options.json);
  Report({"cluster", "a tensor of 100 floats more", (micros[0] - micros[1]) / kTensors, "us"},
         options.json);
}

void Start(const BenchOptions& options, const std::string& program) {
  std::vector<double> millis;
  constexpr int kRounds = 5;
  for (int i = 0; i < kRounds; ++i) {
    const int64_t begin = NowNanos();
    LocalCluster cluster({.program = program, .jobs = {{"ps", 3}, {"worker", 1}}});
    Graph graph;
    Output sum = VariableOn(graph, 0, {}, "v0");
    for (int ps = 1; ps < 3; ++ps) sum = sum + VariableOn(graph, ps, {}, "v" + std::to_string(ps));
    Session session(graph, {.target = cluster.target("/job:worker/task:0")});
    session.Initialize();
    Expect(session.Run(sum).scalar<float>() == 3);
    millis.push_back(double(NowNanos() - begin) / 1e6);
  }
  Report({"cluster", "4 tasks: process start to first step", Median(std::move(millis)), "ms"},
         options.json);
}

// The bytes of memory that a process has for itself, and its share of what it has with others.
int64_t ProportionalBytes(pid_t process) {
  std::ifstream rollup("/proc/" + std::to_string(process) + "/smaps_rollup");
  std::string word;
  while (rollup >> word) {
    if (word != "Pss:") continue;
    int64_t kilobytes = 0;
    rollup >> kilobytes;
    return kilobytes * 1024;
  }
  throw Error(Code::kUnavailable, "bench cluster: the memory of a task cannot be read");
}

// A cluster of 64 tasks, from the start of the first process to the end of the last: a step in
// which every task computes and all values meet on one, then a signal to each.
void ManyTasks(const BenchOptions& options, const std::string& program) {
  constexpr int kTasks = 64;
  const int64_t begin = NowNanos();
  std::vector<double> megabytes;
  {
    LocalCluster cluster(
        {.program = program, .jobs = {{"worker", kTasks}}, .cores = 1, .start_seconds = 60});
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {1}, "x");
    std::vector<Output> parts;
    for (int i = 0; i < kTasks; ++i) {
      const DeviceScope there(graph, "/job:worker/task:" + std::to_string(i));
      parts.push_back(x * float(i));
    }
    const Output all = Sum(Concat(parts, 0));
    {
      Session session(graph, {.target = cluster.target("/job:worker/task:0")});
      const float sum = session.Run({{x, Tensor::Of<float>({1}, {1})}}, all).scalar<float>();
      Expect(sum == kTasks * (kTasks - 1) / 2);
      for (int i = 0; i < kTasks; ++i) {
        const pid_t process = cluster.process("/job:worker/task:" + std::to_string(i));
        megabytes.push_back(double(ProportionalBytes(process)) / 1e6);
      }
    }
    for (int i = 0; i < kTasks; ++i) {
      cluster.Signal("/job:worker/task:" + std::to_string(i), SIGTERM);
    }
    for (int i = 0; i < kTasks; ++i) {
      Expect(cluster.Wait("/job:worker/task:" + std::to_string(i)) == 0);
    }
  }
  Report({"cluster", "64 tasks: start, one step over all, orderly end",
          double(NowNanos() - begin) / 1e9, "s"},
         options.json);
  Report({"cluster", "64 tasks: memory of the largest (PSS)",
          *std::max_element(megabytes.begin(), megabytes.end()), "MB"},
         options.json);
}

void Devices(const BenchOptions& options, const std::string&) {
  Report({"cluster", "more for a step cut over 2 devices of one process",
          CutCost(options.seconds) * 1e6, "us"},
         options.json);
}

}  // namespace

void BenchCluster(const BenchOptions& options, const std::string& program) {
  constexpr std::pair<const char*, void (*)(const BenchOptions&, const std::string&)> kParts[] = {
      {"null", Null},         {"rows", Rows},   {"small", ManySmall}, {"dense", Dense},
      {"transfer", Transfer}, {"start", Start}, {"many", ManyTasks},  {"devices", Devices}};
  for (const auto& [name, run] : kParts) {
    if (options.part.empty() || options.part == name) run(options, program);
  }
}

}  // namespace tutti::tools
