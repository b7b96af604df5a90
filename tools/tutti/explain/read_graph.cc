#include "tools/tutti/explain/read_graph.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include "tools/tutti/models.h"
#include "tools/tutti/placement_models.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/graph/io.h"

namespace tutti::tools {

absl::StatusOr<std::unique_ptr<Graph>> ReadGraph(const std::string& name, int64_t batch) {
  if (std::find(std::begin(kModelNames), std::end(kModelNames), name) != std::end(kModelNames)) {
    return MakeStepModel(name, batch).graph;
  }
  const std::vector<std::string_view> names = PlacementModelNames();
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return MakePlacementModel(name).graph;
  }
  std::ifstream file(name, std::ios::binary);
  if (!file) {
    return NotFound(
        "cannot read {}; expected a file with a graph, or a model of the benchmarks: {}", name,
        fmt::join(names, ", "));
  }
  std::ostringstream all;
  all << file.rdbuf();
  const std::string bytes = all.str();
  auto graph = std::make_unique<Graph>();
  try {
    // The text form has no control characters but line ends.
    const bool text = std::none_of(bytes.begin(), bytes.end(), [](char c) {
      return static_cast<unsigned char>(c) < 9 || c == 127;
    });
    if (text) {
      ReadTextGraph(bytes, *graph);
    } else {
      ReadGraphBytes(bytes, *graph);
    }
  } catch (const Error& error) {
    return InvalidArgument("{}: {}", name, error.what());
  }
  if (graph->size() == 0) return InvalidArgument("{}: the graph is empty", name);
  return graph;
}

}  // namespace tutti::tools
