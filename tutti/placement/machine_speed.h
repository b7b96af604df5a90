#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/placement/node_work.h"
#include "tutti/topology/fabric.h"

namespace tutti::placement {

// How fast one core does one kind of work: time = operations * per_operation + bytes * per_byte,
// with a byte's time between `cached` (up to kCachedBytes in all) and `memory` (from kMemoryBytes
// on), interpolated over the logarithm of the size.
struct KindSpeed {
  double per_operation = 0;    // seconds
  double per_byte_cached = 0;  // seconds
  double per_byte_memory = 0;
};
inline constexpr double kCachedBytes = 256e3;
inline constexpr double kMemoryBytes = 32e6;

// How far out of the caches a node is that touches so many bytes: 0 to 1, over the logarithm.
double MemoryPart(double bytes);

// What a machine was measured to do: a plain value, which is cached in a file.
struct MachineSpeed {
  int cores = 1;            // that the process may use
  double node_seconds = 0;  // of a node that does nothing
  double step_seconds = 0;  // of a step, whatever is in it
  double wake_seconds = 0;  // until a device goes on that slept because it waited for long
  // Of one core while the others rest, and while all do the same kind of work: they share caches,
  // the memory bus and power.
  std::array<KindSpeed, kWorkKinds> kinds;
  std::array<KindSpeed, kWorkKinds> crowded;
  topology::Link same_task;  // between devices of a process: values are passed on as references
  topology::Link same_host;  // between processes of a host
  topology::Link network;    // between hosts

  // A machine as many are (3 GHz, AVX2): for tests, and where nothing can be measured.
  static MachineSpeed Typical();

  // One JSON object and back. INVALID_ARGUMENT names the key that is missing or no number.
  std::string ToJson() const;
  static absl::StatusOr<MachineSpeed> FromJson(std::string_view text);
};

// How long `cores` cores take for a node's work, with the overhead of a node; `crowded`: while all
// other cores are at work.
double SecondsOf(const NodeWork& work, const MachineSpeed& speed, int cores, bool crowded = false);

}  // namespace tutti::placement
