#pragma once

#include <memory>
#include <optional>
#include <string>

#include "tutti/train/strategies/buckets.h"
#include "tutti/train/strategies/strategy.h"

// The strategies by hand. Programs name one in their RunConfig instead (registry.h).
namespace tutti {

namespace collective {
class Communicator;
}

// This process alone.
std::shared_ptr<const Strategy> MakeLocalStrategy();

// This process, the model on each of its first `devices` devices, the parameters on the first.
std::shared_ptr<const Strategy> MakeMirroredStrategy(int devices);

struct AllReduceOptions {
  std::string algorithm = {};                 // empty: the tuner chooses
  std::string wire = "as-is";                 // as-is, bfloat16 or float16
  std::optional<BucketOptions> buckets = {};  // not given: what the cost model finds best
};
// A mirror of every variable in every worker; gradients are summed by all-reduce of buckets, and
// every worker makes the same update.
std::shared_ptr<const Strategy> MakeAllReduceStrategy(
    std::shared_ptr<collective::Communicator> communicator, const AllReduceOptions& options = {});

}  // namespace tutti
