#pragma once

#include <string>

#include "tutti/placement/machine_speed.h"

namespace tutti {

// How fast this machine is, as a short measurement found (about 0.2 s, on one core and two lanes)
// or a file in the user's cache has it, which is believed for a day. Measured at most once by a
// process. Where kernels are missing, a typical machine. Thread-safe.
const placement::MachineSpeed& CalibratedSpeed();

// The figures that `path` has, if they were written within a day and can be read; else measured
// ones, which are then kept there. Empty: nothing is read or kept. CalibratedSpeed is that of
// SpeedCacheFile().
placement::MachineSpeed SpeedKeptIn(const std::string& path);

// Measures, and neither reads nor writes the cache.
absl::StatusOr<placement::MachineSpeed> MeasureMachine();

// Where the figures are kept; empty where there is no home: XDG_CACHE_HOME or HOME.
std::string SpeedCacheFile();

}  // namespace tutti
