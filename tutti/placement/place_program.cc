#include "tutti/placement/place_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tutti/base/log.h"
#include "tutti/graph/op_def.h"
#include "tutti/topology/quantity.h"

namespace tutti::placement {
namespace {

std::string WhyOf(const StepCosts& costs, const Plan& plan, size_t node) {
  const uint32_t g = costs.group[node];
  const Group& group = costs.groups[g];
  const Node& self = costs.NodeOf(node);
  std::string why;
  switch (plan.decision[g]) {
    case Decision::kOpen:
    case Decision::kOnly:
      why = "no other device may have it";
      break;
    case Decision::kRequested:
      why = group.asks == nullptr
                ? "the session's own task has what nobody places"
                : fmt::format("{} asks for \"{}\"", group.asks->Describe(), group.asks->device());
      break;
    case Decision::kState:
      why = "its state lives there";
      break;
    case Decision::kConsumer:
      why = "it is first needed there";
      break;
    case Decision::kEarliest:
      why = "it ends first there";
      break;
    case Decision::kMemory:
      why = "it would end earlier elsewhere, but does not fit there";
      break;
    case Decision::kSearch:
      why = "the step is shorter with it there";
      break;
  }
  if (group.first != &self) why += fmt::format(" (together with {})", group.first->Describe());
  return why;
}

// One line for two tasks: of all, or if these are many, of those between which values go.
void AddLinks(const Machines& machines, const Simulation& simulation, PlacementReport& report) {
  constexpr size_t kMostTasks = 8;
  const auto task = [&](int device) { return machines.task[size_t(device)]; };
  std::map<int, int> first;  // by task: a device
  for (int d = 0; d < machines.size(); ++d) first.try_emplace(task(d), d);
  std::set<std::pair<int, int>> pairs;
  if (first.size() <= kMostTasks) {
    for (const auto& [a, device_a] : first) {
      for (const auto& [b, device_b] : first) {
        if (a < b) pairs.emplace(device_a, device_b);
      }
    }
  }
  for (const TransferTime& t : simulation.transfers) {
    const int a = task(t.source), b = task(t.destination);
    if (a != b) pairs.insert(std::minmax(first[a], first[b]));
  }
  const auto name = [&](int device) {
    const std::string& full = machines.devices[size_t(device)].name;
    return full.substr(0, full.rfind('/'));
  };
  for (const auto& [a, b] : pairs) {
    const topology::Link& link = machines.Between(a, b);
    report.links.push_back(
        {name(a), name(b), link.latency, link.bytes_per_second, machines.WasMeasured(a, b)});
  }
}

PlacementReport ReportOf(const StepCosts& costs, const Plan& plan, Method method) {
  const Machines& machines = *costs.machines;
  PlacementReport report;
  report.method = NameOf(method);
  report.how = plan.how;
  report.predicted_seconds = plan.simulation.seconds + machines.machine.step_seconds;
  const std::vector<uint32_t> path = CriticalPath(costs, plan.device, plan.simulation);
  for (const uint32_t node : path) {
    if (costs.seconds[node] > 0) report.critical_path.push_back(costs.NodeOf(node).name());
  }
  std::vector<bool> critical(costs.size(), false);
  for (const uint32_t node : path) critical[node] = true;
  for (size_t n = 0; n < costs.size(); ++n) {
    const Node& node = costs.NodeOf(n);
    if (node.op() == "Constant") continue;
    const uint32_t g = costs.group[n];
    PlacementReport::NodeLine line;
    line.name = node.name();
    line.op = node.op();
    line.device = machines.devices[size_t(plan.device[g])].name;
    line.why = WhyOf(costs, plan, n);
    line.start = plan.simulation.start[n];
    line.end = plan.simulation.end[n];
    line.critical = critical[n] && costs.seconds[n] > 0;
    const std::vector<int>& allowed = costs.groups[g].allowed;
    if (g < plan.finish.size() && plan.finish[g].size() == allowed.size()) {
      for (size_t i = 0; i < allowed.size(); ++i) {
        const double finish = plan.finish[g][i];
        line.candidates.push_back(
            {machines.devices[size_t(allowed[i])].name, finish < 1e300 ? finish : -1});
      }
    }
    report.nodes.push_back(std::move(line));
  }
  for (size_t d = 0; d < machines.devices.size(); ++d) {
    report.devices.push_back({.name = machines.devices[d].name,
                              .cores = machines.devices[d].cores,
                              .busy = plan.simulation.busy[d],
                              .measured_busy = -1,
                              .peak_bytes = plan.simulation.peak_bytes[d],
                              .limit_bytes = double(machines.devices[d].memory_bytes)});
  }
  AddLinks(machines, plan.simulation, report);
  for (const TransferTime& t : plan.simulation.transfers) {
    report.transfers.push_back(
        {costs.NodeOf(t.from).name(), machines.devices[size_t(t.source)].name,
         machines.devices[size_t(t.destination)].name, t.start, t.end, t.bytes});
  }
  return report;
}

// The devices that Place would choose.
std::vector<int> ManualDevices(const StepCosts& costs) {
  std::vector<int> device;
  for (const Group& group : costs.groups) device.push_back(group.allowed.front());
  return device;
}

absl::StatusOr<Plan> PlanOf(const StepCosts& costs, const ProgramOptions& options) {
  if (options.method == Method::kManual) {
    return PlanFor(costs, ManualDevices(costs), "scopes decide");
  }
  return MakePlan(costs, {.method = options.method, .keep_finish = options.report});
}

// By group: where `current` has its first node. Empty when it does not know one, or a device is
// gone.
std::vector<int> DevicesNow(const StepCosts& costs,
                            const std::unordered_map<std::string, std::string>& current) {
  std::unordered_map<std::string, int> numbers;
  for (int d = 0; d < costs.machines->size(); ++d) {
    numbers.emplace(costs.machines->devices[size_t(d)].name, d);
  }
  std::vector<int> device;
  for (const Group& group : costs.groups) {
    const auto name = current.find(group.first->name());
    const auto number = name == current.end() ? numbers.end() : numbers.find(name->second);
    if (number == numbers.end()) return {};
    device.push_back(number->second);
  }
  return device;
}

// Makes `plan` the one that is in use, which measured times may have led to.
void TakePlacement(std::vector<int> device, Simulation simulation, Plan& plan) {
  for (size_t g = 0; g < device.size(); ++g) {
    if (device[g] != plan.device[g]) plan.decision[g] = Decision::kSearch;
  }
  plan.device = std::move(device);
  plan.simulation = std::move(simulation);
}

void KeepHomes(const StepCosts& costs, const Plan& plan, StateHomes& homes) {
  for (size_t n = 0; n < costs.size(); ++n) {
    const Node& node = costs.NodeOf(n);
    if (!IsState(node)) continue;
    homes.Set(node, costs.machines->devices[size_t(plan.device[costs.group[n]])].name);
  }
}

}  // namespace

absl::StatusOr<Placed> PlaceProgram(const Program& program, const Machines& machines,
                                    StateHomes& homes, const ProgramOptions& options) {
  CostOptions cost_options{
      .place = options.place, .homes = {}, .manual = options.method == Method::kManual};
  if (!cost_options.manual) cost_options.homes = homes.Of(*program.graph);
  TUTTI_ASSIGN_OR_RETURN(StepCosts costs, CostsOf(program, machines, cost_options));
  std::vector<int> now;
  if (options.current != nullptr) now = DevicesNow(costs, *options.current);
  if (options.measured != nullptr) UseMeasured(*options.measured, now, costs);
  TUTTI_ASSIGN_OR_RETURN(Plan plan, PlanOf(costs, options));
  Placed placed;
  placed.seconds = plan.simulation.seconds + machines.machine.step_seconds;
  if (!now.empty()) {
    Simulation simulation = Simulate(costs, now);
    placed.current_seconds = simulation.seconds + machines.machine.step_seconds;
    if (options.report) TakePlacement(std::move(now), std::move(simulation), plan);
  }
  if (options.report) placed.report = ReportOf(costs, plan, options.method);
  if (options.method == Method::kManual) return placed;
  KeepHomes(costs, plan, homes);
  ProgramCopy copy(program);
  for (const auto& node : program.graph->nodes()) {
    TUTTI_ASSIGN_OR_RETURN(NodeSpec spec, copy.SpecOf(*node));
    spec.device = machines.devices[size_t(plan.device[costs.group[size_t(node->id())]])].name;
    std::erase_if(spec.attrs, [](const Attr& attr) { return attr.first == "_colocate"; });
    TUTTI_RETURN_IF_ERROR(copy.AddAs(*node, std::move(spec)).status());
  }
  TUTTI_ASSIGN_OR_RETURN(placed.program, copy.Finish());
  return placed;
}

absl::Status PlaceState(const Graph& graph, const StepRequest& like, const Machines& machines,
                        StateHomes& homes, const ProgramOptions& options) {
  const absl::StatusOr<Program> whole = Extract(graph, WholeStep(graph, like));
  if (!whole.ok()) {
    Log(LogLevel::kInfo, "placement: variables are placed step by step: {}",
        MessageOf(whole.status()));
    return absl::OkStatus();
  }
  CostOptions cost_options{.place = options.place, .homes = homes.Of(graph)};
  TUTTI_ASSIGN_OR_RETURN(const StepCosts costs, CostsOf(*whole, machines, cost_options));
  TUTTI_ASSIGN_OR_RETURN(const Plan plan, PlanOf(costs, options));
  KeepHomes(costs, plan, homes);
  return absl::OkStatus();
}

}  // namespace tutti::placement
