#pragma once

#include <string>

#include "tools/tutti/explain/story.h"

namespace tutti::tools {

struct TableStyle {
  bool color = false;
  int width = 100;  // columns; lines are broken to fit, cells are not
};

// The story as a table for a terminal: per round a row for each rank, with what it holds and what
// it sends. `hosts` are named behind the ranks if it is not empty.
std::string RenderTable(const Story& story, const std::vector<int>& hosts, const TableStyle& style);

}  // namespace tutti::tools
