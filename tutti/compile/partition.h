#pragma once

#include <span>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/device/device_info.h"

namespace tutti {

// The part of a step that runs on one device. Edges from other devices are Recv nodes here and Send
// nodes there. `feed_index[i]` is the position, in the whole program, of this part's feed i;
// fetches likewise. It owns all it holds, so it can be sent to another process.
struct Partition {
  std::string device;
  Program program;
  std::vector<int> feed_index;
  std::vector<int> fetch_index;
};

// Cuts a placed program into one part per device that has nodes, in the order of `devices`. A value
// that several nodes of a device need crosses once; a control edge crosses as an empty message.
absl::StatusOr<std::vector<Partition>> CutByDevice(const Program& program,
                                                   std::span<const DeviceInfo> devices);

}  // namespace tutti
