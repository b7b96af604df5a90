#include "tutti/graph/equality.h"

#include <algorithm>

namespace tutti {
namespace {

bool SameOutput(const Output& a, const Output& b) {
  return a.index == b.index && a.node->name() == b.node->name();
}

bool NodesEqual(const Node& a, const Node& b) {
  return a.name() == b.name() && a.op() == b.op() && a.device() == b.device() &&
         std::equal(a.inputs().begin(), a.inputs().end(), b.inputs().begin(), b.inputs().end(),
                    SameOutput) &&
         std::equal(a.control_inputs().begin(), a.control_inputs().end(),
                    b.control_inputs().begin(), b.control_inputs().end(),
                    [](const Node* x, const Node* y) { return x->name() == y->name(); }) &&
         std::equal(a.attrs().begin(), a.attrs().end(), b.attrs().begin(), b.attrs().end(),
                    [](const Attr& x, const Attr& y) {
                      return x.first == y.first && AttrEquals(x.second, y.second);
                    });
}

}  // namespace

bool GraphsEqual(const Graph& a, const Graph& b) {
  return std::equal(a.nodes().begin(), a.nodes().end(), b.nodes().begin(), b.nodes().end(),
                    [](const auto& x, const auto& y) { return NodesEqual(*x, *y); });
}

bool SubgraphsEqual(const Subgraph& a, const Subgraph& b) {
  return std::equal(a.args.begin(), a.args.end(), b.args.begin(), b.args.end(), SameOutput) &&
         std::equal(a.results.begin(), a.results.end(), b.results.begin(), b.results.end(),
                    SameOutput) &&
         GraphsEqual(*a.graph, *b.graph);
}

}  // namespace tutti
