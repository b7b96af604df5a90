#include "tutti/compile/pipeline.h"

#include "tutti/compile/passes/passes.h"
#include "tutti/compile/place.h"

namespace tutti {
namespace {

using Pass = absl::StatusOr<Program> (*)(Program, const PassContext&);

absl::StatusOr<Program> RunPasses(Program program, std::span<const Pass> passes,
                                  const PassContext& context) {
  for (const Pass pass : passes) {
    TUTTI_ASSIGN_OR_RETURN(program, pass(std::move(program), context));
  }
  return program;
}

}  // namespace

absl::StatusOr<std::vector<Partition>> CompileWhole(
    const Program& program, std::span<const DeviceInfo> devices, Device* folding,
    const CompileOptions& options,
    std::function<void(const Node& node, const std::string& why)> fell_back) {
  TUTTI_ASSIGN_OR_RETURN(
      Program placed,
      Place(program, devices, {.soft = options.soft_placement, .fell_back = std::move(fell_back)}));
  if (options.optimize) {
    constexpr Pass kPasses[] = {FoldConstants, Simplify, MergeCommon, Prune};
    TUTTI_ASSIGN_OR_RETURN(placed, RunPasses(std::move(placed), kPasses, {.folding = folding}));
  }
  return CutByDevice(placed, devices);
}

absl::StatusOr<Program> OptimizePart(Program program, Device& device,
                                     const CompileOptions& options) {
  if (!options.optimize) return program;
  constexpr Pass kPasses[] = {GatherInPlace, FuseMatrix,      FuseDescent,
                              KeepPositions, FuseElementwise, FuseUpdates,
                              Prune,         ChooseLayouts,   PlaceBuckets};
  return RunPasses(std::move(program), kPasses, {.device = &device});
}

}  // namespace tutti
