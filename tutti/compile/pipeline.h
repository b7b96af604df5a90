#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/partition.h"
#include "tutti/compile/place.h"
#include "tutti/device/device.h"

namespace tutti {

struct CompileOptions {
  bool optimize = true;  // false: no passes but what correctness needs
  // True: a node whose requested device does not exist goes to the first device. False: that is an
  // error.
  bool soft_placement = false;
  // How nodes without a device are placed. Used by the master; CompileWhole ignores it.
  PlacementMethod placement = PlacementMethod::kManual;
};

// What the master does with an extracted program: places it, runs the passes that look at the whole
// of it, and cuts it into one part per device. The workers run the other passes on their parts
// (OptimizePart) and plan. `folding` is a device of this process whose kernels compute what is
// constant, for nodes on devices of its type. It may be null: then the steps compute it.
// `fell_back` is that of PlaceOptions.
absl::StatusOr<std::vector<Partition>> CompileWhole(
    const Program& program, std::span<const DeviceInfo> devices, Device* folding,
    const CompileOptions& options,
    std::function<void(const Node& node, const std::string& why)> fell_back = nullptr);

// The passes that know the device: fusion and layouts.
absl::StatusOr<Program> OptimizePart(Program program, Device& device,
                                     const CompileOptions& options);

}  // namespace tutti
