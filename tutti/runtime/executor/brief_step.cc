#include "tutti/runtime/executor/brief_step.h"

#include <algorithm>
#include <optional>

#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

// Waking a thread takes 20 us and more; a core writes this much in less.
constexpr size_t kMostNodes = 64;
constexpr int64_t kMostBytes = 64 << 10;

// Nothing if the size is only known when it runs.
std::optional<int64_t> BytesOf(const Output& value) {
  if (!value.shape().IsFullyKnown()) return std::nullopt;
  return value.shape().elements() * int64_t(SizeOf(value.dtype()));
}

// How much memory the kernel of a node reads and writes.
std::optional<int64_t> BytesTouched(const Node& node) {
  const OpDef& op = node.def();
  const bool reads_variable = op.provides_outputs && op.without_effects && node.inputs().empty();
  if (op.source || op.transfer || op.view || reads_variable) return 0;
  int64_t bytes = 0;
  const auto add = [&bytes](const Output& value) {
    const std::optional<int64_t> more = BytesOf(value);
    // No sum overflows: it ends here long before.
    if (more) bytes += std::min(*more, kMostBytes + 1);
    return more && bytes <= kMostBytes;
  };
  for (int i = 0; i < int(node.inputs().size()); ++i) {
    const bool in_place = op.IsVariableInput(i) && op.reads_references;
    if (!in_place && !add(node.inputs()[size_t(i)])) return std::nullopt;
  }
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (!add(node.output(i))) return std::nullopt;
  }
  return bytes;
}

}  // namespace

bool IsBrief(const Program& program) {
  const auto& nodes = program.graph->nodes();
  if (nodes.size() > kMostNodes) return false;
  int64_t bytes = 0;
  for (const auto& node : nodes) {
    const OpDef& op = node->def();
    if (op.async || op.collective || op.has_subgraphs()) return false;
    const std::optional<int64_t> touched = BytesTouched(*node);
    if (!touched) return false;
    bytes += *touched;
  }
  return bytes <= kMostBytes;
}

}  // namespace tutti
