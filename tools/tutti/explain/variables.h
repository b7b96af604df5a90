#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace tutti::tools {

// What `tutti explain variables` was asked for.
struct VariablesOptions {
  std::string graph;  // as in PlacementOptions
  int servers = 2;
  std::string split_bytes = "1MiB";  // a variable of more is split by rows
  std::string memory;                // of a server; empty: there is no limit
};

// The plan by which a strategy with parameter servers would spread the graph's variables, as a
// training with --verbose prints it.
absl::StatusOr<std::string> ExplainVariables(const VariablesOptions& options);

}  // namespace tutti::tools
