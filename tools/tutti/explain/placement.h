#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tutti::tools {

// What `tutti explain nodes` and `tutti explain placement` were asked for.
struct PlacementOptions {
  // A file with a graph, as text or protobuf, or the name of one of the benchmark's models.
  std::string graph;
  int64_t batch = 32;  // what an unknown dimension of a placeholder is
  bool json = false;
  int rows = 40;  // nodes that are listed

  // Of `nodes`.
  int steps = 7;  // that are measured; 0: estimates only

  // Of `placement`.
  std::string cluster;  // a TOML file (tutti/placement/machines.h)
  int devices = 2;      // of this process, where there is no file
  std::string method = "search";
  std::string svg;  // a file to write
};

// Estimate against measurement of every node, the largest difference first.
absl::StatusOr<std::string> ExplainNodes(const PlacementOptions& options);

// Where nodes go, and why. Writes the picture if there is to be one.
absl::StatusOr<std::string> ExplainPlacement(const PlacementOptions& options);

}  // namespace tutti::tools
