#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// What a device has done and holds, for metrics and reports. A plain value.
struct DeviceStats {
  std::string device = {};
  // Bytes of variables that updates copied because somebody held the value, since the start.
  int64_t cloned_bytes = 0;
  int64_t pool_bytes = 0;       // in use by values that only the run could size, and by results
  int64_t pool_peak_bytes = 0;  // most of that so far
  int64_t variable_bytes = 0;   // of all variables
};

}  // namespace tutti
