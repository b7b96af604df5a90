// Measures the speed of this machine: runs small graphs like ordinary steps (timed_graph.h), on one
// core and then on all cores at once. For each kind of work, nodes of several sizes are timed and a
// speed is fitted to the times (placement/fit_speed.h). The benchmarks' shapes are not used,
// because their predictions would then look too accurate.
#include "tutti/runtime/measure/calibrate.h"

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

#include "tutti/base/cores.h"
#include "tutti/base/log.h"
#include "tutti/placement/fit_speed.h"
#include "tutti/placement/node_work.h"
#include "tutti/runtime/local_worker.h"
#include "tutti/runtime/measure/timed_graph.h"

namespace tutti {
namespace {

using placement::KindSpeed;
using placement::MachineSpeed;
using placement::NodeWork;
using placement::WorkKind;
using placement::WorkOf;
using placement::WorkSample;

constexpr int kMostLanes = 8;  // that are measured at once: more take longer and share alike
constexpr std::string_view kTask = "/job:calibrate/task:0";

// A graph on so many devices of one core in this process.
TimedGraph LocalGraph(int devices) {
  auto worker = std::make_shared<LocalWorker>(
      LocalWorkerOptions{.job = "calibrate", .devices = devices, .cores = 1});
  std::vector<std::string> names;
  for (int d = 0; d < devices; ++d) names.push_back(fmt::format("{}/cpu:{}", kTask, d));
  return TimedGraph({{std::string(kTask), std::move(worker)}}, std::string(kTask),
                    std::move(names));
}

// Nodes of known work, and their times.
class SampleGraph {
 public:
  explicit SampleGraph(int cores) : graph_(LocalGraph(cores)) {}

  absl::Status AddProduct(const Shape& a, const Shape& b, bool transpose_a, bool transpose_b) {
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs left, graph_.FeedAll(a));
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs right, graph_.FeedAll(b));
    return Add(WorkKind::kMatrix, "MatMul", {left, right},
               {{"transpose_a", transpose_a}, {"transpose_b", transpose_b}});
  }

  // A convolution and its gradients; `inner`: that of its input, too, as behind other layers.
  absl::Status AddConvolution(const Shape& image, const Shape& filter, bool inner) {
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs x, graph_.FeedAll(image));
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs f, graph_.FeedAll(filter));
    TUTTI_RETURN_IF_ERROR(Add(WorkKind::kConvolution, "Conv2D", {x, f}));
    // The same padding as the default keeps the size of the image.
    const Shape result = {image[0], image[1], image[2], filter[3]};
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs dy, graph_.FeedAll(result));
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs f_shape, graph_.AddShapes(f));
    TUTTI_RETURN_IF_ERROR(Add(WorkKind::kConvolution, "Conv2DBackpropFilter", {x, dy, f_shape}));
    if (!inner) return absl::OkStatus();
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs x_shape, graph_.AddShapes(x));
    return Add(WorkKind::kConvolution, "Conv2DBackpropInput", {f, dy, x_shape});
  }

  // A pass over memory.
  absl::Status AddPass(WorkKind kind, const std::string& op, size_t inputs, const Shape& shape,
                       const AttrList& attrs = {}) {
    TUTTI_ASSIGN_OR_RETURN(const TimedGraph::Outputs value, FeedOnce(shape));
    return Add(kind, op, std::vector(inputs, value), attrs);
  }
  absl::Status AddPasses(const Shape& shape) {
    TUTTI_RETURN_IF_ERROR(AddPass(WorkKind::kElementwise, "Add", 2, shape));
    TUTTI_RETURN_IF_ERROR(AddPass(WorkKind::kFunction, "Tanh", 1, shape));
    TUTTI_RETURN_IF_ERROR(AddPass(WorkKind::kReduction, "BiasAddGrad", 1, shape));
    TUTTI_RETURN_IF_ERROR(AddPass(WorkKind::kCopy, "Concat", 2, shape, {{"axis", int64_t{1}}}));
    return AddPass(WorkKind::kMovement, "Transpose", 1, shape,
                   {{"perm", std::vector<int64_t>{1, 0}}});
  }

  // Runs what was added, and appends what it took without the overhead of a node.
  absl::Status Run(double node_seconds, std::map<WorkKind, std::vector<WorkSample>>& samples) {
    TUTTI_RETURN_IF_ERROR(graph_.Run());
    for (const auto& [kind, node] : nodes_) {
      const NodeWork work = WorkOf(*node);
      samples[kind].push_back({work.operations, work.read_bytes + work.write_bytes,
                               std::max(1e-9, graph_.Of(*node) - node_seconds)});
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Add(WorkKind kind, const std::string& op,
                   const std::vector<TimedGraph::Outputs>& inputs, const AttrList& attrs = {}) {
    TUTTI_ASSIGN_OR_RETURN(const Node* node, graph_.AddAll(op, inputs, attrs));
    nodes_.emplace_back(kind, node);
    return absl::OkStatus();
  }

  absl::StatusOr<TimedGraph::Outputs> FeedOnce(const Shape& shape) {
    for (const auto& [fed, outputs] : fed_) {
      if (fed == shape) return outputs;
    }
    TUTTI_ASSIGN_OR_RETURN(TimedGraph::Outputs outputs, graph_.FeedAll(shape));
    fed_.emplace_back(shape, outputs);
    return outputs;
  }

  TimedGraph graph_;
  std::vector<std::pair<WorkKind, const Node*>> nodes_;
  std::vector<std::pair<Shape, TimedGraph::Outputs>> fed_;
};

// Every kind of work, on so many cores at once. Small nodes have a graph of their own, so that
// their values are still in the caches of the core when they are read, as in a step.
//
// Products: large and square (its rows are no multiple of 4 KB); few rows with small and with large
// weights; small; and the two gradients of a layer, which transpose one of the sides. Convolutions
// of many channels and of two.
absl::Status MeasureKinds(int cores, double node_seconds,
                          std::array<KindSpeed, placement::kWorkKinds>& kinds) {
  std::map<WorkKind, std::vector<WorkSample>> samples;
  SampleGraph small(cores);
  TUTTI_RETURN_IF_ERROR(small.AddPasses({100, 144}));
  TUTTI_RETURN_IF_ERROR(small.AddProduct({72, 56}, {56, 40}, false, false));
  TUTTI_RETURN_IF_ERROR(small.Run(node_seconds, samples));
  SampleGraph large(cores);
  TUTTI_RETURN_IF_ERROR(large.AddProduct({400, 400}, {400, 400}, false, false));
  TUTTI_RETURN_IF_ERROR(large.AddProduct({24, 600}, {600, 160}, false, false));
  TUTTI_RETURN_IF_ERROR(large.AddProduct({40, 900}, {900, 1100}, false, false));
  TUTTI_RETURN_IF_ERROR(large.AddProduct({80, 300}, {80, 200}, true, false));
  TUTTI_RETURN_IF_ERROR(large.AddProduct({80, 200}, {300, 200}, false, true));
  TUTTI_RETURN_IF_ERROR(large.AddConvolution({8, 20, 20, 24}, {3, 3, 24, 48}, /*inner=*/true));
  TUTTI_RETURN_IF_ERROR(large.AddConvolution({24, 24, 24, 2}, {3, 3, 2, 16}, /*inner=*/false));
  TUTTI_RETURN_IF_ERROR(large.AddPasses({2000, 1500}));
  TUTTI_RETURN_IF_ERROR(large.Run(node_seconds, samples));
  for (const auto& [kind, found] : samples) kinds[size_t(kind)] = placement::FitSpeed(found);
  return absl::OkStatus();
}

// The additional cost of a value that arrives at a sleeping device, measured by a chain of products
// that alternates between two devices; each product takes longer than the other device polls.
absl::StatusOr<double> MeasureWaking(const topology::Link& link) {
  constexpr int kChain = 8;
  constexpr int64_t kSide = 360;
  const auto chain = [](int devices) -> absl::StatusOr<double> {
    TimedGraph graph = LocalGraph(devices);
    TUTTI_ASSIGN_OR_RETURN(const Output first, graph.Feed({kSide, kSide}));
    Output value = first;
    for (int i = 0; i < kChain; ++i) {
      TUTTI_ASSIGN_OR_RETURN(const Node* node,
                             graph.Add("MatMul", {value, first}, {}, i % devices));
      value = node->output();
    }
    TUTTI_RETURN_IF_ERROR(graph.Run());
    return graph.step();
  };
  TUTTI_ASSIGN_OR_RETURN(const double one, chain(1));
  TUTTI_ASSIGN_OR_RETURN(const double two, chain(2));
  const double transfer =
      link.latency + double(kSide * kSide) * sizeof(float) / link.bytes_per_second;
  return std::max(0.0, (two - one) / (kChain - 1) - transfer);
}

// Compares a chain of small nodes on one device with one that alternates between two devices.
// Within a process a value is passed by reference, and its cost is that the other core fetches it
// from the caches of the first; the same two chains over larger values measure that cost.
absl::Status MeasureOverheads(MachineSpeed& speed) {
  constexpr int kChain = 64, kLargeChain = 16;
  constexpr int64_t kLarge = 120'000;  // elements
  const auto chain = [](int devices, int length, int64_t elements) -> absl::StatusOr<double> {
    TimedGraph graph = LocalGraph(devices);
    TUTTI_ASSIGN_OR_RETURN(Output value, graph.Feed({elements}));
    for (int i = 0; i < length; ++i) {
      TUTTI_ASSIGN_OR_RETURN(const Node* node, graph.Add("Neg", {value}, {}, i % devices));
      value = node->output();
    }
    TUTTI_RETURN_IF_ERROR(graph.Run());
    return graph.step();
  };
  TUTTI_ASSIGN_OR_RETURN(const double one, chain(1, 1, 4));
  TUTTI_ASSIGN_OR_RETURN(const double many, chain(1, kChain, 4));
  speed.node_seconds = std::max(1e-8, (many - one) / (kChain - 1));
  speed.step_seconds = one;
  TUTTI_ASSIGN_OR_RETURN(const double crossing, chain(2, kChain, 4));
  speed.same_task.latency = std::max(1e-7, (crossing - many) / (kChain - 1));
  TUTTI_ASSIGN_OR_RETURN(const double large, chain(1, kLargeChain, kLarge));
  TUTTI_ASSIGN_OR_RETURN(const double large_crossing, chain(2, kLargeChain, kLarge));
  const double fetched = (large_crossing - large) / (kLargeChain - 1) - speed.same_task.latency;
  speed.same_task.bytes_per_second = double(kLarge) * sizeof(float) / std::max(1e-7, fetched);
  TUTTI_ASSIGN_OR_RETURN(speed.wake_seconds, MeasureWaking(speed.same_task));
  return absl::OkStatus();
}

// A text that identifies this machine, with the version of Tutti.
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
  speed.cores = UsableCores();
  TUTTI_RETURN_IF_ERROR(MeasureOverheads(speed));
  TUTTI_RETURN_IF_ERROR(MeasureKinds(1, speed.node_seconds, speed.kinds));
  speed.crowded = speed.kinds;
  if (speed.cores > 1) {
    const int lanes = std::min(speed.cores, kMostLanes);
    TUTTI_RETURN_IF_ERROR(MeasureKinds(lanes, speed.node_seconds, speed.crowded));
  }
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

MachineSpeed SpeedKeptIn(const std::string& path) {
  if (!path.empty()) {
    if (absl::StatusOr<MachineSpeed> kept = ReadKept(path); kept.ok()) return *kept;
  }
  const absl::StatusOr<MachineSpeed> measured = MeasureMachine();
  if (!measured.ok()) {
    Log(LogLevel::kWarning,
        "placement: this machine could not be measured, a typical one is assumed: {}",
        MessageOf(measured.status()));
    return MachineSpeed::Typical();
  }
  Keep(path, *measured);
  return *measured;
}

const MachineSpeed& CalibratedSpeed() {
  static const MachineSpeed speed = SpeedKeptIn(SpeedCacheFile());
  return speed;
}

}  // namespace tutti
