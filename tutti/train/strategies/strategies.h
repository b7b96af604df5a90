#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tutti/train/buckets.h"
#include "tutti/train/strategy.h"

namespace tutti {

namespace collective {
class Communicator;
}

// This process alone.
std::unique_ptr<Strategy> MakeLocalStrategy();

struct AllReduceOptions {
  std::string algorithm = {};                 // empty: the tuner chooses
  std::string wire = "as-is";                 // as-is, bf16 or fp16
  std::optional<BucketOptions> buckets = {};  // not given: what the cost model finds best
};
// A mirror of every variable in every worker; gradients are summed by all-reduce of buckets, and
// every worker makes the same update. The communicator must outlive the strategy.
std::unique_ptr<Strategy> MakeAllReduceStrategy(collective::Communicator& communicator,
                                                const AllReduceOptions& options = {});

}  // namespace tutti
