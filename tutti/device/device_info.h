#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// What is known of a device outside the task that has it: all that placement and listings need. A
// plain value that can be sent.
struct DeviceInfo {
  std::string name = {};  // complete: "/job:worker/task:1/cpu:0"
  std::string type = {};  // "cpu"; chooses kernels
  int cores = 1;
  int64_t memory_bytes = 0;  // that it may use: a limit, or that of the host; 0: not known
  bool limited = false;      // memory_bytes is a limit: what does not fit is refused
  // The start of the process that has the device. A task that was restarted has another one.
  uint64_t incarnation = 0;

  bool operator==(const DeviceInfo&) const = default;
};

}  // namespace tutti
