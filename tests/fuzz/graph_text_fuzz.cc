// Any text gives a graph or a Status; a graph that was read is written as a text that gives it
// again.
#include <cstdint>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/graph/equality.h"
#include "tutti/graph/text_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::Graph graph;
  if (!tutti::ParseText({reinterpret_cast<const char*>(data), size}, &graph).ok()) return 0;
  tutti::Graph again;
  TUTTI_CHECK(tutti::ParseText(tutti::ToText(graph), &again).ok());
  TUTTI_CHECK(tutti::GraphsEqual(graph, again));
  return 0;
}
