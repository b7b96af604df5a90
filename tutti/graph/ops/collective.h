#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/graph/input.h"

// Collective operations of a group of ranks. Every rank runs the same node in the same step; the
// Session must have been given a communicator. No gradients.
namespace tutti {

struct CollectiveOptions {
  // Calls of several ranks belong together if group and key agree. Empty: the node's name.
  std::string key = {};
  std::string group = {};      // empty: all ranks
  std::string algorithm = {};  // empty: the tuner chooses
  std::string wire = "as-is";  // as-is, bfloat16 or float16: how float32 travels
};

// The sum of each value over all ranks. All values have one dtype and are reduced together as one
// bucket; list them in the order in which they are computed. If possible the plan places the bucket
// in registered memory, so that kernels write it and peers read it without a copy.
std::vector<Output> AllReduce(std::span<const Output> values, const CollectiveOptions& options = {},
                              std::string_view name = "");
Output AllReduce(Input value, const CollectiveOptions& options = {}, std::string_view name = "");

// The root's values, on every rank.
std::vector<Output> Broadcast(std::span<const Output> values, int root,
                              const CollectiveOptions& options = {}, std::string_view name = "");

// The rows of all ranks, concatenated in the order of ranks. Ranks may have different numbers of
// rows, including 0; the other dimensions must be equal.
Output AllGather(Input rows, const CollectiveOptions& options = {}, std::string_view name = "");

// Where the values of a bucket lie in its memory: 64-byte aligned, one after the other. The last
// element is where the last value ends. REQUIRES: the shapes are known.
std::vector<int64_t> BucketOffsets(std::span<const ValueType> values);

}  // namespace tutti
