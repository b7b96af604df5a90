#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/graph.h"

// The protobuf form of a graph (proto/graph.proto): what crosses the wire and lies in files.
namespace tutti {

// RESOURCE_EXHAUSTED when the graph needs more than protobuf's 2 GB; large constants are the usual
// reason. The same graph always gives the same bytes.
absl::StatusOr<std::string> SerializeGraph(const Graph& graph);

// Adds the nodes that `bytes` hold to `graph`, which must be empty and have no scope open. The
// result equals what was serialized (GraphsEqual). Bytes from anywhere are safe: every length,
// index, dtype and shape is checked, and what does not fit is an error that names the node; the
// graph then holds a part of the nodes. What compiler passes write is accepted, since programs
// cross the wire in this form; a user's graph goes through ReadGraphBytes (graph/io.h).
absl::Status ParseSerializedGraph(std::string_view bytes, Graph* graph);

// Of a graph that crosses the wire: the nodes from `first` on, without the bytes of large
// constants, which are appended to `beside` (references, nothing is copied) and travel by
// themselves.
absl::StatusOr<std::string> SerializeNodes(const Graph& graph, int64_t first,
                                           std::vector<Tensor>& beside);

// Appends such nodes to `graph`, which has `first` nodes and no scope open. Takes the constants
// from `beside`: tensors of bytes, whose memory the constants share. As safe as
// ParseSerializedGraph. RESOURCE_EXHAUSTED, before a node is read, if `graph` would have more than
// `most` of them.
absl::Status ParseSerializedNodes(std::string_view bytes, std::span<const Tensor> beside,
                                  int64_t first, Graph* graph, int64_t most = INT64_MAX);

// Constants of at least this many bytes travel beside the graph.
inline constexpr size_t kLargeConstant = 4096;

}  // namespace tutti
