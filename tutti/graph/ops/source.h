#pragma once

#include <source_location>
#include <string_view>

#include "tutti/graph/input.h"

// Where values enter a graph.
namespace tutti {

// A value fixed when the graph is built.
Output Constant(Graph& graph, Tensor value, std::string_view name = "",
                std::source_location where = std::source_location::current());
template <typename T>
  requires std::integral<T> || std::floating_point<T>
Output Constant(Graph& graph, T value, std::string_view name = "",
                std::source_location where = std::source_location::current()) {
  return Constant(graph, Tensor::Scalar<T>(value), name, where);
}

// A value fed to each run. Dimensions that may differ from run to run are -1.
Output Placeholder(Graph& graph, DType dtype, const Shape& shape, std::string_view name = "",
                   std::source_location where = std::source_location::current());

}  // namespace tutti
