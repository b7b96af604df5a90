#pragma once

#include <span>

#include "tutti/placement/machine_speed.h"

namespace tutti::placement {

// One measured node: what it does, and how long that took without the overhead of a node.
struct WorkSample {
  double operations = 0;
  double bytes = 0;
  double seconds = 0;
};

// The speed whose predictions are nearest to the samples, by relative error. No part of it is
// negative. REQUIRES: a sample with a time above 0.
KindSpeed FitSpeed(std::span<const WorkSample> samples);

}  // namespace tutti::placement
