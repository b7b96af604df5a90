// `tutti bench cluster`: this process is worker 0 of a cluster on this host, whose ps tasks are
// processes of their own, and runs steps over them.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tools/tutti/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/launch/local_cluster.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

constexpr int64_t kMega = 1'000'000;

// The cluster, and a session of its worker.
class Bed {
 public:
  Bed(const std::string& program, Graph& graph)
      : cluster_({.program = program, .jobs = {{"ps", 2}, {"worker", 1}}, .not_started = "worker"}),
        server_({.job = "worker", .task = 0, .cluster = cluster_.jobs()}),
        session_(graph, {.server = &server_}) {}
  Session& session() { return session_; }

 private:
  LocalCluster cluster_;
  Server server_;
  Session session_;
};

Output VariableOn(Graph& graph, int ps, const Shape& shape, const std::string& name) {
  const DeviceScope there(graph, "/job:ps/task:" + std::to_string(ps));
  return Variable(graph, Ones(shape), name);
}

// The median time of a step in microseconds.
double Measure(double seconds, const std::function<void()>& step) {
  for (int i = 0; i < 3; ++i) step();
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  constexpr size_t kLeast = 5;
  while (NowNanos() < end || times.size() < kLeast) {
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
  Bed bed(program, graph);
  bed.session().Initialize();
  const double micros =
      Measure(options.seconds, [&] { Expect(bed.session().Run(sum).scalar<float>() == 2); });
  Report({"cluster", "null step over 2 ps", micros, "us"}, options.json);
}

// A tensor that a kernel of one task writes and a kernel of another reads. The rate is that of the
// whole step, both kernels included: the transfer alone is at least as fast.
void Transfer(const BenchOptions& options, const std::string& program) {
  constexpr int64_t kBytes = 128 * kMega;
  Graph graph;
  Output written;
  {
    const DeviceScope there(graph, "/job:ps/task:0");
    const Output v = Variable(graph, Ones({kBytes / 4}), "v");
    written = v + Placeholder(graph, kFloat32, Shape{}, "x");
  }
  const Output sum = Sum(written);
  const Output x = graph.Find("x")->output();
  Bed bed(program, graph);
  bed.session().Initialize();
  const double micros = Measure(options.seconds, [&] {
    Expect(bed.session().Run({{x, Tensor::Scalar(1.0f)}}, sum).scalar<float>() > 0);
  });
  Report({"cluster", "128 MB, written on ps 0, summed on the worker", micros / 1e3, "ms"},
         options.json);
  Report({"cluster", "128 MB, rate of that step", double(kBytes) / micros / 1e3, "GB/s"},
         options.json);
}

void Dense(const BenchOptions& options, const std::string& program) {
  Graph graph;
  std::vector<Output> sums;
  for (int i = 0; i < 20; ++i) {
    const Output v = VariableOn(graph, i % 2, {5 * kMega / 4}, "v" + std::to_string(i));
    sums.push_back(Sum(v));
  }
  Output all = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) all = all + sums[i];
  Bed bed(program, graph);
  bed.session().Initialize();
  const double micros =
      Measure(options.seconds, [&] { Expect(bed.session().Run(all).scalar<float>() > 0); });
  Report({"cluster", "100 MB of parameters on 2 ps, summed by the worker", micros / 1e3, "ms"},
         options.json);
}

void Rows(const BenchOptions& options, const std::string& program) {
  Graph graph;
  constexpr int64_t kColumns = 64;
  constexpr int64_t kRows = 1'000'000;  // 256 MB a ps task
  const Output rows = Placeholder(graph, kInt64, {16}, "rows");
  std::vector<Output> parts;
  for (int ps = 0; ps < 2; ++ps) {
    const Output table = VariableOn(graph, ps, {kRows, kColumns}, "table" + std::to_string(ps));
    const DeviceScope there(graph, "/job:ps/task:" + std::to_string(ps));
    parts.push_back(Gather(table, rows));
  }
  const Output both = Concat(parts, 0);
  Bed bed(program, graph);
  bed.session().Initialize();
  Tensor wanted(kInt64, {16});
  int64_t next = 0;
  const double micros = Measure(options.seconds, [&] {
    for (int64_t& row : wanted.values<int64_t>()) row = (next += 7919) % kRows;
    Expect(bed.session().Run({{rows, wanted}}, both).shape() == Shape({32, kColumns}));
  });
  Report({"cluster", "32 rows of a table of 512 MB on 2 ps", micros, "us"}, options.json);
}

void ManySmall(const BenchOptions& options, const std::string& program) {
  constexpr int kTensors = 1000;
  double micros[2] = {};
  for (const bool one : {false, true}) {
    Graph graph;
    const Output v = VariableOn(graph, 0, {one ? 100 * kTensors : 100}, "v");
    const Output x = Placeholder(graph, kFloat32, Shape{}, "x");
    std::vector<Output> sent;
    {
      const DeviceScope there(graph, "/job:ps/task:0");
      for (int i = 0; i < (one ? 1 : kTensors); ++i) {
        sent.push_back(v * (x + Constant(graph, float(i))));
      }
    }
    // The worker has all of it in one tensor in the end, either way.
    const Output all = one ? Neg(sent[0]) : Neg(Concat(sent, 0));
    Bed bed(program, graph);
    bed.session().Initialize();
    micros[one ? 1 : 0] = Measure(options.seconds, [&] {
      const Tensor result = bed.session().Run({{x, Tensor::Scalar(1.0f)}}, all);
      Expect(result.elements() == 100 * kTensors);
    });
  }
  Report({"cluster", "1,000 tensors of 100 floats", micros[0], "us"}, options.json);
  Report({"cluster", "one tensor of as many bytes", micros[1], "us"}, options.json);
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

}  // namespace

void BenchCluster(const BenchOptions& options, const std::string& program) {
  constexpr std::pair<const char*, void (*)(const BenchOptions&, const std::string&)> kParts[] = {
      {"null", Null},   {"rows", Rows},         {"small", ManySmall},
      {"dense", Dense}, {"transfer", Transfer}, {"start", Start}};
  for (const auto& [name, run] : kParts) {
    if (options.part.empty() || options.part == name) run(options, program);
  }
}

}  // namespace tutti::tools
