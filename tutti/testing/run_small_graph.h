#pragma once

#include <chrono>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/client/session.h"

namespace tutti {

// Small enough that running it tells of mistakes and not of memory.
inline bool IsSmall(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    for (int i = 0; i < node->num_outputs(); ++i) {
      if (node->type(i).shape.elements() > 10'000) return false;
    }
  }
  return true;
}

// Runs every node of a small graph by itself, each for 20 ms at most, as a program would run a
// graph that it has read. Returns how many gave values; all others gave an Error. REQUIRES:
// RegisterCpuKernels() was called.
inline int RunIfSmall(const Graph& graph) {
  if (!IsSmall(graph)) return 0;
  const RunOptions options{.timeout = std::chrono::milliseconds(20)};
  Session session(graph, {.cores_per_device = 1});
  int ran = 0;
  std::vector<Feed> feeds;
  for (const auto& node : graph.nodes()) {
    if (node->op() != "Placeholder" || !node->type(0).shape.IsFullyKnown()) continue;
    feeds.emplace_back(node->output(), Tensor::Zeros(node->type(0).dtype, node->type(0).shape));
  }
  for (const auto& node : graph.nodes()) {
    std::vector<Output> fetches;
    for (int i = 0; i < node->num_outputs(); ++i) fetches.push_back(node->output(i));
    const Node* const target = node.get();
    try {
      session.Run(feeds, fetches, {&target, 1}, options);
      ++ran;
    } catch (const Error&) {
    }
  }
  return ran;
}

}  // namespace tutti
