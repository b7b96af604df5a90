#include "tools/tutti/explain/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/tutti/explain/read_graph.h"
#include "tutti/base/text_file.h"
#include "tutti/placement/place_program.h"
#include "tutti/runtime/measure/calibrate.h"
#include "tutti/topology/quantity.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

using placement::Machines;
using placement::StepCosts;

// Everything that runs again and again, with placeholders of the batch that was asked for.
StepRequest WholeStepOf(const Graph& graph, int64_t batch) {
  StepRequest like;
  for (const auto& node : graph.nodes()) {
    if (node->op() != "Placeholder" || !node->type(0).shape.has_rank()) continue;
    std::vector<int64_t> dims(node->type(0).shape.dims().begin(), node->type(0).shape.dims().end());
    for (int64_t& dim : dims) {
      if (dim < 0) dim = batch;
    }
    like.feeds.push_back({node->output(), {node->type(0).dtype, Shape(dims)}});
  }
  return placement::WholeStep(graph, like);
}

// The medians of a few traced steps on one core, by node.
std::map<std::string, double> MeasureNodes(const Graph& graph, const StepRequest& request,
                                           int steps, double* step_seconds) {
  Session session(graph, {.cores_per_device = 1});
  session.Initialize();
  std::vector<Feed> feeds;
  for (const StepRequest::Fed& feed : request.feeds) {
    Tensor value = Tensor::Zeros(feed.type.dtype, feed.type.shape);
    if (feed.type.dtype == kFloat32) {
      for (size_t i = 0; float& v : value.values<float>()) v = std::sin(float(i++));
    }
    feeds.emplace_back(feed.output, std::move(value));
  }
  std::map<std::string, std::vector<double>> times;
  std::vector<double> whole;
  for (int i = 0; i <= steps; ++i) {
    RunTrace trace;
    session.Run(feeds, request.fetches, request.targets,
                {.timeout = std::chrono::seconds(60), .trace = true, .trace_result = &trace});
    if (i == 0) continue;
    std::map<std::string, double> sums;
    int64_t end = 0;
    for (const NodeTrace& node : trace.nodes) {
      sums[node.name] += double(node.end_nanos - node.start_nanos) * 1e-9;
      end = std::max(end, node.end_nanos);
    }
    whole.push_back(double(end) * 1e-9);
    for (const auto& [name, seconds] : sums) times[name].push_back(seconds);
  }
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  std::map<std::string, double> medians;
  for (auto& [name, values] : times) medians[name] = median(values);
  *step_seconds = median(whole);
  return medians;
}

// What is computed together is one line: the passes give it one name.
struct Line {
  std::string name, op;
  int nodes = 0;
  double estimate = 0;
  double measured = -1;
  double heaviest = -1;
};

std::vector<Line> LinesOf(const StepCosts& costs, std::map<std::string, double>& measured) {
  std::map<uint32_t, Line> by_group;
  for (size_t n = 0; n < costs.size(); ++n) {
    const Node& node = costs.NodeOf(n);
    const auto it = measured.find(node.name());
    if (costs.seconds[n] <= 0 && it == measured.end()) continue;
    Line& line = by_group[costs.group[n]];
    ++line.nodes;
    line.estimate += costs.seconds[n];
    if (costs.seconds[n] > line.heaviest) {
      line.heaviest = costs.seconds[n];
      line.name = node.name();
      line.op = node.op();
    }
    if (it != measured.end()) {
      line.measured = std::max(0.0, line.measured) + it->second;
      measured.erase(it);
    }
  }
  std::vector<Line> lines;
  for (auto& [group, line] : by_group) lines.push_back(std::move(line));
  for (const auto& [name, seconds] : measured) lines.push_back({name, "(fused)", 1, 0, seconds});
  std::stable_sort(lines.begin(), lines.end(), [](const Line& a, const Line& b) {
    const auto off = [](const Line& line) {
      return line.measured < 0 ? line.estimate : std::abs(line.estimate - line.measured);
    };
    return off(a) > off(b);
  });
  return lines;
}

std::string NodesText(const std::vector<Line>& lines, double step_seconds, int rows) {
  double estimate = 0;
  for (const Line& line : lines) estimate += line.estimate;
  std::string text =
      fmt::format("estimated {} for one step on one core", topology::FormatSeconds(estimate));
  if (step_seconds > 0) {
    text += fmt::format(", measured {} ({:+.0f}%)", topology::FormatSeconds(step_seconds),
                        100 * (estimate / step_seconds - 1));
  }
  text += "\n\nestimate   measured   error   node\n";
  for (size_t i = 0; i < lines.size() && i < size_t(std::max(0, rows)); ++i) {
    const Line& line = lines[i];
    const std::string measured = line.measured < 0 ? "-" : topology::FormatSeconds(line.measured);
    const std::string error =
        line.measured > 0 && line.estimate > 0
            ? fmt::format("{:+.0f}%", 100 * (line.estimate / line.measured - 1))
            : "-";
    text += fmt::format("{:>9}  {:>9}  {:>6}  {} \"{}\"{}\n",
                        topology::FormatSeconds(line.estimate), measured, error, line.op, line.name,
                        line.nodes > 1 ? fmt::format(" and {} with it", line.nodes - 1) : "");
  }
  if (lines.size() > size_t(std::max(0, rows))) {
    text += fmt::format("and {} more; --rows lists them\n", lines.size() - size_t(rows));
  }
  return text;
}

std::string NodesJson(const std::vector<Line>& lines, double step_seconds) {
  std::string text;
  for (const Line& line : lines) {
    nlohmann::json json = {
        {"name", line.name}, {"op", line.op}, {"nodes", line.nodes}, {"estimate", line.estimate}};
    json["measured"] = line.measured < 0 ? nlohmann::json() : nlohmann::json(line.measured);
    text += json.dump() + "\n";
  }
  return text + nlohmann::json{{"step_measured", step_seconds}}.dump() + "\n";
}

absl::StatusOr<Machines> MachinesOf(const PlacementOptions& options) {
  if (!options.cluster.empty()) {
    return placement::ReadMachines(options.cluster, CalibratedSpeed());
  }
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < options.devices; ++i) {
    devices.push_back({.name = fmt::format("/job:local/task:0/cpu:{}", i), .type = "cpu"});
  }
  return placement::MakeMachines(devices, CalibratedSpeed());
}

}  // namespace

absl::StatusOr<std::string> ExplainNodes(const PlacementOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph,
                         ReadGraph(options.graph, options.batch));
  const StepRequest request = WholeStepOf(*graph, options.batch);
  TUTTI_ASSIGN_OR_RETURN(const Program program, Extract(*graph, request));
  const DeviceInfo device{.name = "/job:local/task:0/cpu:0", .type = "cpu"};
  const Machines machines = placement::MakeMachines(std::span(&device, 1), CalibratedSpeed());
  // Wishes for devices that are not here do not matter to a list of nodes.
  TUTTI_ASSIGN_OR_RETURN(
      const StepCosts costs,
      placement::CostsOf(program, machines, {.place = {.soft = true}, .manual = true}));
  std::map<std::string, double> measured;
  double step_seconds = 0;
  if (options.steps > 0) {
    try {
      measured = MeasureNodes(*graph, request, options.steps, &step_seconds);
    } catch (const Error& error) {
      return InvalidArgument("{} cannot be run here, --steps 0 gives estimates alone: {}",
                             options.graph, error.what());
    }
  }
  const std::vector<Line> lines = LinesOf(costs, measured);
  return options.json ? NodesJson(lines, step_seconds)
                      : NodesText(lines, step_seconds, options.rows);
}

absl::StatusOr<std::string> ExplainPlacement(const PlacementOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const placement::Method method, placement::ParseMethod(options.method));
  TUTTI_ASSIGN_OR_RETURN(const std::unique_ptr<Graph> graph,
                         ReadGraph(options.graph, options.batch));
  TUTTI_ASSIGN_OR_RETURN(const Machines machines, MachinesOf(options));
  TUTTI_ASSIGN_OR_RETURN(const Program program,
                         Extract(*graph, WholeStepOf(*graph, options.batch)));
  placement::StateHomes homes;
  TUTTI_ASSIGN_OR_RETURN(
      const placement::Placed placed,
      placement::PlaceProgram(program, machines, homes, {.method = method, .report = true}));
  if (!options.svg.empty()) {
    TUTTI_RETURN_IF_ERROR(WriteTextFile(options.svg, placed.report.ToSvg()));
  }
  return options.json ? placed.report.ToJson() + "\n" : placed.report.ToText(options.rows);
}

}  // namespace tutti::tools
