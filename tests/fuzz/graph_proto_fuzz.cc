// Any bytes give a graph or a Status; a graph that was read is serialized to bytes that give it
// again.
#include <cstdint>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/graph/equality.h"
#include "tutti/graph/serialize.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::Graph graph;
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (!tutti::ParseSerializedGraph(bytes, &graph).ok()) return 0;
  tutti::Graph again;
  TUTTI_CHECK(tutti::ParseSerializedGraph(*tutti::SerializeGraph(graph), &again).ok());
  TUTTI_CHECK(tutti::GraphsEqual(graph, again));
  return 0;
}
