#include "tutti/runtime/place_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tutti/base/log.h"
#include "tutti/topology/quantity.h"

namespace tutti {

StepPlacer::StepPlacer(const CompileOptions& options, std::shared_ptr<placement::StateHomes> homes)
    : options_(options),
      homes_(homes != nullptr ? std::move(homes) : std::make_shared<placement::StateHomes>()) {}

absl::StatusOr<std::optional<Program>> StepPlacer::Place(const Graph& graph,
                                                         const StepRequest& wanted,
                                                         const Program& program,
                                                         const placement::Machines& machines,
                                                         const MeasuredStep* measured,
                                                         const FellBack& fell_back) const {
  placement::ProgramOptions options{
      .method = options_.placement,
      .place = {.soft = options_.soft_placement, .fell_back = fell_back}};
  const auto& nodes = program.graph->nodes();
  const bool homeless = std::any_of(nodes.begin(), nodes.end(), [&](const auto& node) {
    return placement::IsState(*node) && homes_->Find(*node).empty();
  });
  if (homeless) {
    TUTTI_RETURN_IF_ERROR(placement::PlaceState(graph, wanted, machines, *homes_, options));
  }
  placement::MeasuredSeconds seconds;
  if (measured != nullptr) {
    seconds = measured->NodeSeconds();
    options.measured = &seconds;
    options.current = &measured->placement();
  }
  TUTTI_ASSIGN_OR_RETURN(placement::Placed placed,
                         placement::PlaceProgram(program, machines, *homes_, options));
  if (measured == nullptr) return std::optional<Program>(std::move(placed.program));
  if (!(placed.seconds < (1 - kLeastGain) * placed.current_seconds)) {
    return std::optional<Program>();
  }
  Log(LogLevel::kInfo,
      "placement: after {} measured steps the step is placed anew, which is predicted to take {} "
      "instead of {}; variables stay where they are",
      MeasuredStep::kMeasuredSteps, topology::FormatSeconds(placed.seconds),
      topology::FormatSeconds(placed.current_seconds));
  return std::optional<Program>(std::move(placed.program));
}

absl::Status StepPlacer::CheckMemory(const Program& program,
                                     std::span<const DeviceInfo> devices) const {
  // What the devices hold at once hardly depends on how fast they are.
  const auto machines = placement::MakeMachines(devices, placement::MachineSpeed::Typical());
  const placement::ProgramOptions options{.method = PlacementMethod::kManual,
                                          .place = {.soft = options_.soft_placement}};
  return placement::PlaceProgram(program, machines, *homes_, options).status();
}

absl::StatusOr<std::string> StepPlacer::Explain(const Program& program,
                                                const placement::Machines& machines,
                                                const MeasuredStep* measured) const {
  const placement::ProgramOptions options{
      .method = options_.placement,
      .place = {.soft = options_.soft_placement},
      .report = true,
      .current = measured == nullptr || !measured->traced() ? nullptr : &measured->placement()};
  TUTTI_ASSIGN_OR_RETURN(placement::Placed placed,
                         placement::PlaceProgram(program, machines, *homes_, options));
  if (measured != nullptr && measured->StepSeconds() >= 0) {
    std::map<std::string, double> nodes;
    for (const auto& [name, seconds] : measured->NodeSeconds()) nodes.emplace(name, seconds);
    placed.report.SetMeasured(nodes, measured->StepSeconds());
  }
  return placed.report.ToJson();
}

std::unordered_map<std::string, std::string> StepPlacer::DevicesByName(const Program& program) {
  std::unordered_map<std::string, std::string> devices;
  for (const auto& node : program.graph->nodes()) devices.emplace(node->name(), node->device());
  return devices;
}

}  // namespace tutti
