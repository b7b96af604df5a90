#pragma once

#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/testing/kernel_runner.h"
#include "tutti/testing/op_sample.h"

// An op by itself, for the sweeps over the op registry.
namespace tutti::testing {

// How the inputs are declared to the graph.
enum class Declared {
  kExactly,       // with their shapes; integer inputs are Constants
  kPlaceholders,  // with their shapes; every input is fed
  kUnknownDims,   // some dimensions unknown
  kUnknownRanks,  // nothing known but the dtype
};
std::string_view NameOf(Declared how);

// A graph of one node, and values for its inputs.
struct OneNode {
  Graph graph;
  Feeds feeds;
  std::vector<Output> inputs;
  std::vector<Output> outputs;
  const Node* node = nullptr;

  // The outputs by `runner`, in step 0 of random ops.
  absl::StatusOr<std::vector<Tensor>> Run(KernelRunner& runner) const;
};

// Fills `built`, which must be empty. What the op's definition refuses is an error.
absl::Status Build(const std::string& op, const OpCase& op_case, Declared how, Random& random,
                   OneNode& built);

}  // namespace tutti::testing
