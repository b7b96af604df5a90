#pragma once

#include "tutti/graph/graph.h"
#include "tutti/graph/ops/window.h"

namespace tutti {

// The most elements of a window whose positions can be told apart by a byte.
inline constexpr int64_t kMostPoolPositions = 256;

// The window attributes of a convolution (which has dilations) or pooling node (which has not).
// Views into the node.
WindowAttrs WindowAttrsOf(const Node& node);

// The resolved window of a convolution's node between concrete x [n, h, w, in] and filter [fh, fw,
// ...], or of a pooling node on x with its own window.
absl::StatusOr<Window> ConvWindow(const Node& node, const Shape& x, const Shape& filter);
absl::StatusOr<Window> PoolWindow(const Node& node, const Shape& x);

}  // namespace tutti
