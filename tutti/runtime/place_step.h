#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/compile/extract.h"
#include "tutti/compile/pipeline.h"
#include "tutti/placement/place_program.h"
#include "tutti/runtime/measure/measured_step.h"

namespace tutti {

// What a master asks the cost model for: places steps, tells why, and places a step once more when
// it was measured. Thread-safe.
class StepPlacer {
 public:
  // `homes` may be null: then state is placed for this session alone.
  StepPlacer(const CompileOptions& options, std::shared_ptr<placement::StateHomes> homes);

  // Is anything left to the cost model?
  bool chooses() const { return options_.placement != PlacementMethod::kManual; }
  // Are steps on these devices worth tracing? On one there is no choice.
  bool measures(std::span<const DeviceInfo> devices) const {
    return chooses() && devices.size() > 1;
  }

  using FellBack = std::function<void(const Node& node, const std::string& why)>;
  // The program with a device for every node. `wanted` is the request that it was extracted from.
  // With `measured`, what an earlier placement of it took: nothing, unless the predicted gain is
  // over kLeastGain; then the log says so.
  absl::StatusOr<std::optional<Program>> Place(const Graph& graph, const StepRequest& wanted,
                                               const Program& program,
                                               const placement::Machines& machines,
                                               const MeasuredStep* measured,
                                               const FellBack& fell_back) const;
  static constexpr double kLeastGain = 0.10;

  // Where scopes decide: an error if what they ask for does not fit into the devices' memory.
  absl::Status CheckMemory(const Program& program, std::span<const DeviceInfo> devices) const;

  // A PlacementReport as JSON. `measured` may be null.
  absl::StatusOr<std::string> Explain(const Program& program, const placement::Machines& machines,
                                      const MeasuredStep* measured) const;

  // Where the nodes of a placed program are.
  static std::unordered_map<std::string, std::string> DevicesByName(const Program& program);

 private:
  const CompileOptions options_;
  const std::shared_ptr<placement::StateHomes> homes_;
};

}  // namespace tutti
