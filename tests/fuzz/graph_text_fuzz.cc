// Any text gives a graph or a Status; a graph that was read is written as a text that gives it
// again, and one that a program could build runs or gives an Error.
#include <cstdint>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/graph/check_graph.h"
#include "tutti/graph/equality.h"
#include "tutti/graph/text/format.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/run_small_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  tutti::Graph graph;
  if (!tutti::ParseText({reinterpret_cast<const char*>(data), size}, &graph).ok()) return 0;
  tutti::Graph again;
  TUTTI_CHECK(tutti::ParseText(tutti::ToText(graph), &again).ok());
  TUTTI_CHECK(tutti::GraphsEqual(graph, again));
  if (!tutti::CheckUserGraph(graph).ok()) return 0;
  tutti::RegisterCpuKernels();
  tutti::RunIfSmall(graph);
  return 0;
}
