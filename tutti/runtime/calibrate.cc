// What one core of this machine does. Small graphs are run as steps are, without passes, so that
// every op is a node of its own, and the best of a few traced runs is taken for each: a disturbance
// makes a node slower, never faster.
//
// Kinds that compute have two unknowns, the time of an operation and that of a byte; two products
// (or convolutions), one large and square and one that mostly moves bytes, give two equations. The
// others have the time of a byte, in the caches and in memory. None of the shapes is one of the
// benchmarks', whose predictions would look too good.
#include "tutti/runtime/calibrate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <map>
#include <mutex>

#include "tutti/base/awaited.h"
#include "tutti/base/clock.h"
#include "tutti/base/cores.h"
#include "tutti/base/log.h"
#include "tutti/graph/build.h"
#include "tutti/placement/node_work.h"
#include "tutti/runtime/local_master.h"
#include "tutti/runtime/local_worker.h"

namespace tutti {
namespace {

using placement::KindSpeed;
using placement::MachineSpeed;
using placement::NodeWork;
using placement::WorkKind;
using placement::WorkOf;

constexpr int kRuns = 5;
constexpr std::string_view kDevice = "/job:calibrate/task:0/cpu:";

// A graph of single nodes over placeholders, run on devices of its own.
class Bench {
 public:
  explicit Bench(int devices)
      : worker_(std::make_shared<LocalWorker>(
            LocalWorkerOptions{.job = "calibrate", .devices = devices, .cores = 1})),
        master_(WorkersByTask{{"/job:calibrate/task:0", worker_}}, "/job:calibrate/task:0",
                CompileOptions{.optimize = false}) {}

  absl::StatusOr<Output> Feed(const Shape& shape) {
    NodeSpec spec;
    spec.op = "Placeholder";
    spec.attrs = {{"dtype", kFloat32}, {"shape", shape}};
    TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(graph_, std::move(spec)));
    Tensor value(kFloat32, shape);
    std::fill(value.values<float>().begin(), value.values<float>().end(), 0.5f);
    request_.feeds.push_back({node->id(), 0});
    request_.feed_values.push_back(std::move(value));
    return node->output();
  }

  absl::StatusOr<const Node*> Add(std::string op, std::vector<Output> inputs, AttrList attrs = {},
                                  int device = 0) {
    NodeSpec spec;
    spec.op = std::move(op);
    spec.inputs = std::move(inputs);
    spec.attrs = std::move(attrs);
    spec.device = fmt::format("{}{}", kDevice, device);
    TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(graph_, std::move(spec)));
    request_.targets.push_back(node->id());
    return node;
  }

  // The best time of every node, by name, and of the step.
  absl::Status Run() {
    Awaited<absl::Status> created;
    master_.Create(graph_, [&](absl::Status status) { created.Set(std::move(status)); });
    TUTTI_RETURN_IF_ERROR(created.Wait());
    for (int run = 0; run <= kRuns; ++run) {
      MasterRunRequest request = request_;
      request.step = run;
      request.trace = true;
      request.caller_waits = true;
      Awaited<RunResponse> answer;
      const int64_t start = NowNanos();
      master_.Run(std::move(request), [&](RunResponse&& r) { answer.Set(std::move(r)); });
      const RunResponse response = answer.Wait();
      TUTTI_RETURN_IF_ERROR(response.status);
      if (run == 0) continue;
      step_ = std::min(step_, double(NowNanos() - start) * 1e-9);
      for (const NodeRecord& node : response.trace->nodes) {
        const double seconds = double(node.end_nanos - node.start_nanos) * 1e-9;
        const auto [it, fresh] = best_.try_emplace(node.name, seconds);
        if (!fresh) it->second = std::min(it->second, seconds);
      }
    }
    return absl::OkStatus();
  }

  double step() const { return step_; }
  double Of(const Node& node) const {
    const auto it = best_.find(node.name());
    return it == best_.end() ? 0 : it->second;
  }

 private:
  const std::shared_ptr<LocalWorker> worker_;
  Graph graph_;
  MasterRunRequest request_;
  double step_ = std::numeric_limits<double>::infinity();
  std::map<std::string, double> best_;
  LocalMaster master_;  // last: it uses the rest
};

// Two nodes of a kind that computes: time = operations * p + bytes * q, both at least 0.
KindSpeed Solve(const Bench& bench, const Node& large, const Node& small, double node_seconds) {
  const auto parts = [](const Node& node) {
    const NodeWork work = WorkOf(node);
    return std::pair(work.operations, work.read_bytes + work.write_bytes);
  };
  const auto [o1, b1] = parts(large);
  const auto [o2, b2] = parts(small);
  const double t1 = bench.Of(large);
  const double t2 = std::max(0.0, bench.Of(small) - node_seconds);
  const double determinant = o1 * b2 - o2 * b1;
  double p = determinant == 0 ? 0 : (t1 * b2 - t2 * b1) / determinant;
  double q = determinant == 0 ? 0 : (o1 * t2 - o2 * t1) / determinant;
  if (p <= 0 || q < 0) {
    p = t1 / o1;
    q = 0;
  }
  return {.per_operation = p, .per_byte_cached = q, .per_byte_memory = q};
}

double PerByte(const Bench& bench, const Node& node, double node_seconds) {
  const NodeWork work = WorkOf(node);
  const double bytes = work.read_bytes + work.write_bytes;
  return std::max(1e-13, (bench.Of(node) - node_seconds) / bytes);
}

absl::Status MeasureKinds(MachineSpeed& speed) {
  Bench bench(1);
  // The square one is far from the shapes of models; its rows are no multiple of 4 KB.
  TUTTI_ASSIGN_OR_RETURN(const Output square, bench.Feed({400, 400}));
  TUTTI_ASSIGN_OR_RETURN(const Output thin, bench.Feed({24, 600}));
  TUTTI_ASSIGN_OR_RETURN(const Output weights, bench.Feed({600, 160}));
  TUTTI_ASSIGN_OR_RETURN(const Node* large_product, bench.Add("MatMul", {square, square}));
  TUTTI_ASSIGN_OR_RETURN(const Node* small_product, bench.Add("MatMul", {thin, weights}));
  TUTTI_ASSIGN_OR_RETURN(const Output image, bench.Feed({8, 20, 20, 24}));
  TUTTI_ASSIGN_OR_RETURN(const Output filter, bench.Feed({3, 3, 24, 48}));
  TUTTI_ASSIGN_OR_RETURN(const Output grey, bench.Feed({24, 24, 24, 2}));
  TUTTI_ASSIGN_OR_RETURN(const Output first_filter, bench.Feed({3, 3, 2, 16}));
  TUTTI_ASSIGN_OR_RETURN(const Node* deep, bench.Add("Conv2D", {image, filter}));
  TUTTI_ASSIGN_OR_RETURN(const Node* flat, bench.Add("Conv2D", {grey, first_filter}));
  TUTTI_ASSIGN_OR_RETURN(const Output little, bench.Feed({100, 150}));
  TUTTI_ASSIGN_OR_RETURN(const Output much, bench.Feed({2000, 1500}));
  struct Pass {
    WorkKind kind;
    const Node* cached;
    const Node* memory;
  };
  std::vector<Pass> passes;
  const auto add = [&](WorkKind kind, const std::string& op, int inputs,
                       const AttrList& attrs) -> absl::Status {
    TUTTI_ASSIGN_OR_RETURN(const Node* cached,
                           bench.Add(op, std::vector<Output>(size_t(inputs), little), attrs));
    TUTTI_ASSIGN_OR_RETURN(const Node* memory,
                           bench.Add(op, std::vector<Output>(size_t(inputs), much), attrs));
    passes.push_back({kind, cached, memory});
    return absl::OkStatus();
  };
  TUTTI_RETURN_IF_ERROR(add(WorkKind::kElementwise, "Add", 2, {}));
  TUTTI_RETURN_IF_ERROR(add(WorkKind::kFunction, "Tanh", 1, {}));
  TUTTI_RETURN_IF_ERROR(add(WorkKind::kReduction, "BiasAddGrad", 1, {}));
  TUTTI_RETURN_IF_ERROR(
      add(WorkKind::kMovement, "Transpose", 1, {{"perm", std::vector<int64_t>{1, 0}}}));
  TUTTI_RETURN_IF_ERROR(bench.Run());
  speed.kinds[size_t(WorkKind::kMatrix)] =
      Solve(bench, *large_product, *small_product, speed.node_seconds);
  speed.kinds[size_t(WorkKind::kConvolution)] = Solve(bench, *deep, *flat, speed.node_seconds);
  for (const Pass& pass : passes) {
    speed.kinds[size_t(pass.kind)] = {
        .per_operation = 0,
        .per_byte_cached = PerByte(bench, *pass.cached, speed.node_seconds),
        .per_byte_memory = PerByte(bench, *pass.memory, speed.node_seconds)};
  }
  return absl::OkStatus();
}

// A chain of small nodes on one device, and one that goes to and fro between two.
absl::Status MeasureOverheads(MachineSpeed& speed) {
  constexpr int kChain = 64;
  const auto chain = [](int devices, int length) -> absl::StatusOr<double> {
    Bench bench(devices);
    TUTTI_ASSIGN_OR_RETURN(Output value, bench.Feed({4}));
    for (int i = 0; i < length; ++i) {
      TUTTI_ASSIGN_OR_RETURN(const Node* node, bench.Add("Neg", {value}, {}, i % devices));
      value = node->output();
    }
    TUTTI_RETURN_IF_ERROR(bench.Run());
    return bench.step();
  };
  TUTTI_ASSIGN_OR_RETURN(const double one, chain(1, 1));
  TUTTI_ASSIGN_OR_RETURN(const double many, chain(1, kChain));
  speed.node_seconds = std::max(1e-8, (many - one) / (kChain - 1));
  speed.step_seconds = one;
  TUTTI_ASSIGN_OR_RETURN(const double crossing, chain(2, kChain));
  speed.same_task.latency = std::max(1e-7, (crossing - many) / (kChain - 1));
  return absl::OkStatus();
}

// What tells this machine from another.
std::string MachineName() {
  std::ifstream info("/proc/cpuinfo");
  std::string line, model;
  while (std::getline(info, line)) {
    if (!line.starts_with("model name")) continue;
    model = line.substr(line.find(':') + 1);
    break;
  }
  char host[256] = "";
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{} {} {} {}", TUTTI_VERSION, model, host, UsableCores());
}

absl::StatusOr<MachineSpeed> ReadKept(const std::string& path) {
  constexpr auto kFresh = std::chrono::hours(24);
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  if (error || std::filesystem::file_time_type::clock::now() - written > kFresh) {
    return NotFound("no figures are kept");
  }
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return MachineSpeed::FromJson(line);
}

// Beside and renamed, so that others never read half of it.
void Keep(const std::string& path, const MachineSpeed& speed) {
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string beside = fmt::format("{}.{}", path, ::getpid());
  {
    std::ofstream out(beside);
    out << speed.ToJson() << "\n";
    if (!out) return;
  }
  std::filesystem::rename(beside, path, ignored);
}

}  // namespace

absl::StatusOr<MachineSpeed> MeasureMachine() {
  MachineSpeed speed = MachineSpeed::Typical();
  TUTTI_RETURN_IF_ERROR(MeasureOverheads(speed));
  TUTTI_RETURN_IF_ERROR(MeasureKinds(speed));
  return speed;
}

std::string SpeedCacheFile() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  const char* const home = std::getenv("HOME");
  std::filesystem::path folder;
  if (cache != nullptr && *cache != '\0') {
    folder = cache;
  } else if (home != nullptr && *home != '\0') {
    folder = std::filesystem::path(home) / ".cache";
  } else {
    return "";
  }
  const size_t hash = std::hash<std::string>()(MachineName());
  return (folder / "tutti" / fmt::format("speed-{:016x}.json", hash)).string();
}

const MachineSpeed& CalibratedSpeed() {
  static std::once_flag once;
  static MachineSpeed speed;
  std::call_once(once, [] {
    const std::string path = SpeedCacheFile();
    if (!path.empty()) {
      if (absl::StatusOr<MachineSpeed> kept = ReadKept(path); kept.ok()) {
        speed = *kept;
        return;
      }
    }
    absl::StatusOr<MachineSpeed> measured = MeasureMachine();
    if (measured.ok()) {
      speed = *measured;
      Keep(path, speed);
    } else {
      Log(LogLevel::kWarning,
          "placement: this machine could not be measured, a typical one is assumed: {}",
          MessageOf(measured.status()));
      speed = MachineSpeed::Typical();
    }
  });
  return speed;
}

}  // namespace tutti
