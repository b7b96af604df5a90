// The graph's own order, by id, is a topological one. A plan follows it, with four exceptions.
//
// Communication comes first. Nodes that start early (AllReduce) wait for other ranks while the lane
// computes, so they should start as early as possible. They are ranked by how much computation they
// need; the plan has the nodes that the first of them needs, then those that the second needs as
// well, and so on, and at the end what none of them needs. So the gradient of a layer's weights is
// computed before that of its input, which only the buckets of earlier layers want, and what a
// program appends to a bucket at the very end of the graph (counts, copies) does not hold it back.
//
// Updates come right behind what they must wait for, before memory that they read is reused.
//
// So do Sends: another device waits for the value. In the cut graph a Send stands where its reader
// does in the whole step, so that a second tower would get its weights only when the first one has
// used them (a CNN on two devices took as long as on one: tutti bench, mirrored:2). Parts that are
// ordered so still follow one order of the whole step, in which each Send is behind what it sends;
// therefore no two devices wait for each other.
//
// Constants and feeds come at the very front, since their values exist before the step (a learning
// rate is built after all gradients).
//
// Within these the ids decide. A node never precedes what it waits for: its inputs, its control
// inputs and, if it updates a variable, the readers that were built before it and earlier updates.
#include "tutti/compile/order.h"

#include <algorithm>
#include <cstdint>
#include <unordered_map>
#include <utility>

#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

class Sorter {
 public:
  explicit Sorter(const Graph& graph)
      : graph_(graph),
        before_(size_t(graph.size())),
        updates_(size_t(graph.size()), false),
        group_(size_t(graph.size()), 0) {}

  std::vector<const Node*> Run() {
    FindWaits();
    GroupByEarlyOps();
    return Sorted(Keys(Places()));
  }

 private:
  using Ids = std::vector<uint32_t>;

  const Node& node(uint32_t id) const { return *graph_.nodes()[id]; }
  uint32_t size() const { return uint32_t(before_.size()); }

  void FindWaits() {
    std::unordered_map<Output, Ids, OutputHash> accesses;  // of a variable, so far
    for (uint32_t id = 0; id < size(); ++id) {
      const Node& at = node(id);
      for (const Output& input : at.inputs()) before_[id].push_back(uint32_t(input.node->id()));
      for (const Node* control : at.control_inputs()) {
        before_[id].push_back(uint32_t(control->id()));
      }
      for (int i = 0; i < at.num_inputs(); ++i) {
        if (at.def().IsVariableInput(i) && at.def().reads_references) {
          accesses[at.input(i)].push_back(id);
        } else if (at.def().IsVariableInput(i)) {
          updates_[id] = true;
          // What came before this update is behind it for whoever comes after.
          Ids& earlier = accesses[at.input(i)];
          before_[id].insert(before_[id].end(), earlier.begin(), earlier.end());
          earlier = {id};
        } else if (const Output source = Viewed(at.input(i)); source.node->op() == "Variable") {
          accesses[source].push_back(id);
        }
      }
    }
  }

  // group_: the rank of the first early op that needs the node, itself included.
  void GroupByEarlyOps() {
    std::vector<std::pair<size_t, uint32_t>> ranked;  // (how many nodes it needs, id)
    for (uint32_t id = 0; id < size(); ++id) {
      if (!node(id).def().early) continue;
      std::vector<bool> seen(size(), false);
      ranked.emplace_back(Mark(id, seen).size(), id);
    }
    std::sort(ranked.begin(), ranked.end());
    std::fill(group_.begin(), group_.end(), uint32_t(ranked.size()));
    std::vector<bool> seen(size(), false);
    for (uint32_t rank = 0; rank < ranked.size(); ++rank) {
      for (const uint32_t id : Mark(ranked[rank].second, seen)) group_[id] = rank;
    }
  }

  // Marks `id` and all that it needs; returns those that were not marked before.
  Ids Mark(uint32_t id, std::vector<bool>& seen) const {
    Ids found;
    if (!seen[id]) found.push_back(id);
    seen[id] = true;
    for (size_t next = 0; next < found.size(); ++next) {
      for (const uint32_t input : before_[found[next]]) {
        if (!seen[input]) found.push_back(input);
        seen[input] = true;
      }
    }
    return found;
  }

  // By id: the place of the node in the order of (group, id).
  Ids Places() const {
    Ids order(size()), places(size());
    for (uint32_t id = 0; id < size(); ++id) order[id] = id;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return group_[a] < group_[b]; });
    for (uint32_t i = 0; i < size(); ++i) places[order[i]] = i;
    return places;
  }

  // Updates and Sends move up to the last node that they wait for.
  Ids Keys(Ids places) const {
    Ids keys = std::move(places);
    for (uint32_t id = 0; id < size(); ++id) {
      if (IsThere(node(id))) keys[id] = 0;
      const bool sends = Sends(node(id));
      if (!updates_[id] && !sends) continue;
      keys[id] = 0;
      for (const uint32_t input : before_[id]) {
        // A variable that is sent is read at the start: it need not wait for its first reader here.
        if (sends && before_[input].empty()) keys[input] = 0;
      }
      for (const uint32_t input : before_[id]) keys[id] = std::max(keys[id], keys[input]);
    }
    return keys;
  }

  std::vector<const Node*> Sorted(const Ids& keys) const {
    Ids order(size());
    for (uint32_t id = 0; id < size(); ++id) order[id] = id;
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return keys[a] < keys[b]; });
    std::vector<const Node*> nodes;
    nodes.reserve(order.size());
    for (const uint32_t id : order) nodes.push_back(&node(id));
    return nodes;
  }

  static bool Sends(const Node& node) { return node.def().transfer && node.num_inputs() > 0; }

  // Has its value before the step begins, so that nobody waits for it.
  static bool IsThere(const Node& node) {
    return node.def().source && node.control_inputs().empty();
  }

  // What `value` is a view of, in the end.
  static Output Viewed(Output value) {
    while (value.node->def().view) value = value.node->input(0);
    return value;
  }

  const Graph& graph_;
  std::vector<Ids> before_;    // by id: what a node waits for
  std::vector<bool> updates_;  // by id: it updates a variable
  Ids group_;                  // by id
};

}  // namespace

std::vector<const Node*> OrderOf(const Graph& graph) { return Sorter(graph).Run(); }

}  // namespace tutti
