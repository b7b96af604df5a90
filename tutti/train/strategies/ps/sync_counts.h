#pragma once

namespace tutti {

// What workers tell each other in a synchronous step, as positions in a vector of float64: sums
// over the admitted workers, and `kLoss` their mean over samples.
struct SyncCounts {
  enum { kSamples, kStop, kLoss, kBad, kCount };
};

}  // namespace tutti
