#pragma once

#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/compile/program.h"

// Programs as text, so that a pass is tested by the text it is given and the text it gives:
//
//   x = Placeholder() {dtype=float32, shape=[2, 3]}
//   y = Neg(x)
//   feed x
//   fetch y
//
// The lines of the graph are those of graph/text/format.h. "feed", "fetch" and "target" each name
// one or more outputs or nodes, separated by commas; they may stand anywhere, and their order
// counts. The memory table has a line for each entry:
//
//   layout y aDbc8d        the value y lies in this layout
//   arena b registered     an arena and its allocator kind (none: ordinary memory)
//   pin y b 64             y lies in arena b, at byte 64
//   joined b               the inputs of bucket b lie side by side
namespace tutti {

absl::StatusOr<Program> ParseProgram(std::string_view text);

// The graph, then the feeds, fetches, targets and the memory table, a line each.
std::string ToText(const Program& program);

}  // namespace tutti
