#include "tutti/nn/seed.h"

#include "tutti/graph/ops/source.h"

namespace tutti {
namespace {

constexpr const char* kSeed = "seed";

}  // namespace

void SetSeed(Graph& graph, int64_t seed) {
  NameScope root(graph, "/");
  Constant(graph, seed, kSeed);
}

int64_t SeedOf(const Graph& graph) {
  // The body of an If or While has the seed of the graph around it.
  for (const Graph* at = &graph; at != nullptr; at = at->parent()) {
    const Node* node = at->Find(kSeed);
    if (node == nullptr || node->op() != "Constant") continue;
    const Tensor& value = node->attr<Tensor>("value");
    if (value.dtype() == kInt64 && value.elements() == 1) return value.scalar<int64_t>();
  }
  return 0;
}

}  // namespace tutti
