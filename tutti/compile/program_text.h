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
// The lines of the graph are those of graph/text_format.h. "feed", "fetch" and "target" each name
// one or more outputs or nodes, separated by commas; they may stand anywhere, and their order
// counts.
namespace tutti {

absl::StatusOr<Program> ParseProgram(std::string_view text);

// The graph, then the feeds, fetches and targets, a line each.
std::string ToText(const Program& program);

}  // namespace tutti
