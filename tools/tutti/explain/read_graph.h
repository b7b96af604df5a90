#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tutti/graph/graph.h"

namespace tutti::tools {

// The graph of `name`: a file that has one as text or protobuf, or one of the benchmarks' models.
// `batch` is that of a model of the step benchmark.
absl::StatusOr<std::unique_ptr<Graph>> ReadGraph(const std::string& name, int64_t batch);

}  // namespace tutti::tools
