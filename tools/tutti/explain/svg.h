#pragma once

#include <string>
#include <vector>

#include "tools/tutti/explain/story.h"

namespace tutti::tools {

// The story as a picture: one panel a round, a row of cells for each rank, arrows for what moves. A
// cell is striped in the colours of the ranks whose data it holds. Self-contained SVG 1.1 that
// follows the reader's light or dark preference.
std::string RenderSvg(const Story& story, const std::vector<int>& hosts);

}  // namespace tutti::tools
