#include "tutti/graph/io.h"

#include "tutti/graph/check_graph.h"
#include "tutti/graph/serialize.h"
#include "tutti/graph/text/format.h"

namespace tutti {

std::string GraphToText(const Graph& graph, bool types) { return ToText(graph, {.types = types}); }

void ReadTextGraph(std::string_view text, Graph& graph) {
  ThrowIfError(ParseText(text, &graph));
  ThrowIfError(CheckUserGraph(graph));
}

std::string GraphToBytes(const Graph& graph) { return ValueOrThrow(SerializeGraph(graph)); }

void ReadGraphBytes(std::string_view bytes, Graph& graph) {
  ThrowIfError(ParseSerializedGraph(bytes, &graph));
  ThrowIfError(CheckUserGraph(graph));
}

}  // namespace tutti
