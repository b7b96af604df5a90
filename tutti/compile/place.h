#pragma once

#include <span>

#include "tutti/base/status.h"
#include "tutti/compile/program.h"
#include "tutti/device/device_info.h"

namespace tutti {

// Gives every node of the program a device: its `device` becomes a full name. A node that asks for
// a device (or for a part of its name) gets the first that matches; what updates or inspects a
// variable or queue goes to where that lives; everything else goes to the first device.
// INVALID_ARGUMENT, naming the node, what it asked for and what there is, when nothing matches or
// two wishes contradict each other. REQUIRES: there is a device, and every name is complete.
absl::StatusOr<Program> Place(const Program& program, std::span<const DeviceInfo> devices);

}  // namespace tutti
