#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// What a device has done and holds, for metrics and reports. A plain value.
struct DeviceStats {
  std::string device = {};
  // Bytes of variables that updates copied because the value was referenced elsewhere, since the
  // start.
  int64_t cloned_bytes = 0;
  int64_t pool_bytes = 0;       // in use by values that only the run could size, and by results
  int64_t pool_peak_bytes = 0;  // most of that so far
  int64_t variable_bytes = 0;   // of all variables
  int64_t busy_nanos = 0;       // running nodes, whichever thread did
  int64_t lock_nanos = 0;       // readers and updates of variables waiting for each other
};

}  // namespace tutti
