#pragma once

#include <memory>
#include <span>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/partition.h"
#include "tutti/device/device.h"

namespace tutti {

struct CompileOptions {
  bool optimize = true;  // false: no passes but what correctness needs
};

// What the master does with an extracted program: places it, runs the passes that look at the whole
// of it, and cuts it into one part per device. The workers run the other passes on their parts
// (OptimizePart) and plan. `folding` is a device of this process whose kernels compute what is
// constant, for nodes on devices of its type. It may be null: then the steps compute it.
absl::StatusOr<std::vector<Partition>> CompileWhole(const Program& program,
                                                    std::span<const DeviceInfo> devices,
                                                    Device* folding, const CompileOptions& options);

// The passes that know the device: fusion and layouts.
absl::StatusOr<Program> OptimizePart(Program program, Device& device,
                                     const CompileOptions& options);

}  // namespace tutti
