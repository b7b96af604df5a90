// Earliest finish first. Nodes choose one after the other, in an order in which inputs come before
// what reads them. For each device that is allowed, a node would start when its inputs are there
// and the device is free; it goes where it would end first, and of equal ones to where most of its
// inputs lie.
//
// Nodes that take no time and wait for nothing (variables, feeds) are not placed by finish time,
// which is the same on every device. They are placed with the first node that reads them; a
// variable's updates and slots are in its group. So a tower's weights are where its products are.
//
// A device without room for a node's values or its variables is passed over. When no device has
// room, the one that lacks least is taken, and CheckMemory or the search sorts it out.
//
// The order of the program suits programs with short branches; in a program with one long branch
// and many short ones, the long one must choose first (kHeavyFirst: the upward rank of HEFT).
#include "tutti/placement/greedy.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"

namespace tutti::placement {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

class Greedy {
 public:
  Greedy(const StepCosts& costs, GreedyOrder order, bool keep_finish)
      : costs_(costs),
        keep_finish_(keep_finish),
        order_(order),
        devices_(size_t(costs.machines->size())),
        end_(costs.size(), 0),
        free_(devices_, 0),
        used_(devices_, 0),
        readers_(costs.size()),
        link_free_(devices_ * devices_, 0) {}

  Plan Run() {
    plan_.device.assign(costs_.groups.size(), -1);
    plan_.decision.assign(costs_.groups.size(), Decision::kOpen);
    if (keep_finish_) plan_.finish.resize(costs_.groups.size());
    plan_.how = order_ == GreedyOrder::kProgram ? "greedy, in the order of the program"
                                                : "greedy, heavy nodes first";
    for (uint32_t g = 0; g < costs_.groups.size(); ++g) {
      const Group& group = costs_.groups[g];
      if (group.allowed.size() > 1) continue;
      Settle(g, group.allowed.front(),
             devices_ == 1           ? Decision::kOnly
             : group.fixed_state     ? Decision::kState
             : group.asks != nullptr ? Decision::kRequested
                                     : Decision::kOnly);
    }
    for (uint32_t n = 0; n < costs_.size(); ++n) {
      readers_[n] = uint32_t(costs_.outputs(n).size());
    }
    for (const uint32_t node : Order()) Place(node);
    for (uint32_t g = 0; g < costs_.groups.size(); ++g) {
      if (plan_.device[g] < 0) Settle(g, Roomiest(g), Decision::kConsumer);
    }
    return std::move(plan_);
  }

 private:
  std::vector<uint32_t> Order() const {
    std::vector<uint32_t> order(costs_.size());
    std::iota(order.begin(), order.end(), 0u);
    if (order_ == GreedyOrder::kProgram) return order;
    std::vector<double> rank(costs_.size(), 0);
    for (size_t n = costs_.size(); n-- > 0;) {
      for (const StepCosts::Edge& edge : costs_.outputs(n)) {
        rank[n] = std::max(rank[n], rank[edge.node]);
      }
      rank[n] += costs_.seconds[n];
    }
    // An input has at least the rank of what reads it, and a smaller number.
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return rank[a] > rank[b]; });
    return order;
  }

  void Place(uint32_t node) {
    const uint32_t g = costs_.group[node];
    const std::span<const StepCosts::Edge> inputs = costs_.inputs(node);
    if (plan_.device[g] < 0 && inputs.empty() && costs_.seconds[node] <= 0) return;  // goes along
    if (plan_.device[g] < 0) Choose(node, g);
    const int d = plan_.device[g];
    for (const StepCosts::Edge& edge : inputs) {
      const uint32_t source = costs_.group[edge.node];
      if (plan_.device[source] < 0) Settle(source, Nearest(source, d), Decision::kConsumer);
    }
    double ready = 0;
    for (const StepCosts::Edge& edge : inputs) ready = std::max(ready, Bring(edge, d));
    end_[node] = std::max(ready, free_[size_t(d)]) + costs_.SecondsOn(node, d);
    free_[size_t(d)] = end_[node];
    used_[size_t(d)] += costs_.output_bytes[node];
    if (readers_[node] == 0) used_[size_t(d)] -= costs_.output_bytes[node];
    for (const StepCosts::Edge& edge : inputs) {
      if (--readers_[edge.node] == 0) Free(edge.node);
    }
  }

  void Choose(uint32_t node, uint32_t g) {
    const Group& group = costs_.groups[g];
    int best = -1, first = -1;
    double best_end = kNever, first_end = kNever, best_local = -1;
    std::vector<double> ends;
    for (const int d : group.allowed) {
      const auto [end, local] = EndOn(node, d);
      if (end < first_end) {
        first_end = end;
        first = d;
      }
      const bool fits = Fits(node, g, d);
      if (keep_finish_) ends.push_back(fits ? end : kNever);
      if (!fits) continue;
      const double slack = 1e-9 * end;
      if (end < best_end - slack || (end <= best_end + slack && local > best_local)) {
        best = d;
        best_end = end;
        best_local = local;
      }
    }
    const bool full = best >= 0 && best != first && !Fits(node, g, first);
    if (best < 0) best = Roomiest(g);
    if (keep_finish_) plan_.finish[g] = std::move(ends);
    Settle(g, best, full ? Decision::kMemory : Decision::kEarliest);
  }

  // When the node would end on the device, and the bytes of its inputs that are there.
  std::pair<double, double> EndOn(uint32_t node, int d) const {
    double ready = 0, local = 0;
    for (const StepCosts::Edge& edge : costs_.inputs(node)) {
      const int from = plan_.device[costs_.group[edge.node]];
      if (from < 0) {
        const int at = Nearest(costs_.group[edge.node], d);
        if (at != d) ready = std::max(ready, TransferSeconds(at, d, edge.bytes));
      } else if (from == d) {
        ready = std::max(ready, end_[edge.node]);
        local += edge.bytes;
      } else if (const auto it = came_.find(Key(edge.value, d)); it != came_.end()) {
        ready = std::max(ready, it->second);
        local += edge.bytes;
      } else {
        const double begin =
            std::max(end_[edge.node], link_free_[size_t(from) * devices_ + size_t(d)]);
        ready = std::max(ready, begin + TransferSeconds(from, d, edge.bytes));
      }
    }
    return {std::max(ready, free_[size_t(d)]) + costs_.SecondsOn(node, d), local};
  }

  // The value of an input on device d; brings it there if need be.
  double Bring(const StepCosts::Edge& edge, int d) {
    const int from = plan_.device[costs_.group[edge.node]];
    if (from == d) return end_[edge.node];
    const auto [it, fresh] = came_.try_emplace(Key(edge.value, d), 0);
    if (fresh) {
      const topology::Link& link = costs_.machines->Between(from, d);
      double& link_free = link_free_[size_t(from) * devices_ + size_t(d)];
      const double begin = std::max(end_[edge.node], link_free);
      it->second = begin + TransferSeconds(from, d, edge.bytes);
      link_free = it->second - link.latency;
      used_[size_t(d)] += edge.bytes;
    }
    return it->second;
  }

  // All that read the node have been placed.
  void Free(uint32_t node) {
    const int home = plan_.device[costs_.group[node]];
    used_[size_t(home)] -= costs_.output_bytes[node];
    for (const StepCosts::Edge& edge : costs_.outputs(node)) {
      const int d = plan_.device[costs_.group[edge.node]];
      const auto it = d == home ? came_.end() : came_.find(Key(edge.value, d));
      if (it == came_.end() || freed_.contains(it->first)) continue;
      freed_.insert(it->first);
      used_[size_t(d)] -= edge.bytes;
    }
  }

  bool Fits(uint32_t node, uint32_t g, int d) const {
    const auto limit = double(costs_.machines->devices[size_t(d)].memory_bytes);
    if (limit <= 0) return true;
    double more = costs_.groups[g].state_bytes + costs_.output_bytes[node];
    for (const StepCosts::Edge& edge : costs_.inputs(node)) {
      const uint32_t source = costs_.group[edge.node];
      if (plan_.device[source] < 0 && Nearest(source, d) == d) {
        more += costs_.groups[source].state_bytes;
      }
    }
    return used_[size_t(d)] + more <= limit;
  }

  int Roomiest(uint32_t g) const {
    int best = costs_.groups[g].allowed.front();
    double most = -kNever;
    for (const int d : costs_.groups[g].allowed) {
      const auto limit = double(costs_.machines->devices[size_t(d)].memory_bytes);
      const double room = limit <= 0 ? kNever : limit - used_[size_t(d)];
      if (room > most) {
        most = room;
        best = d;
      }
    }
    return best;
  }

  int Nearest(uint32_t g, int d) const {
    const std::vector<int>& allowed = costs_.groups[g].allowed;
    return std::find(allowed.begin(), allowed.end(), d) != allowed.end() ? d : allowed.front();
  }

  void Settle(uint32_t g, int d, Decision decision) {
    plan_.device[g] = d;
    plan_.decision[g] = decision;
    used_[size_t(d)] += costs_.groups[g].state_bytes;
  }

  double TransferSeconds(int from, int to, double bytes) const {
    const topology::Link& link = costs_.machines->Between(from, to);
    return link.latency + (link.bytes_per_second > 0 ? bytes / link.bytes_per_second : 0);
  }
  uint64_t Key(uint32_t value, int d) const { return uint64_t(value) * devices_ + uint64_t(d); }

  const StepCosts& costs_;
  const bool keep_finish_;
  const GreedyOrder order_;
  const size_t devices_;
  std::vector<double> end_;                     // by node
  std::vector<double> free_;                    // by device
  std::vector<double> used_;                    // by device: bytes
  std::vector<uint32_t> readers_;               // by node: not placed yet
  absl::flat_hash_map<uint64_t, double> came_;  // (value, device) -> when
  absl::flat_hash_set<uint64_t> freed_;         // of these: those that are gone
  std::vector<double> link_free_;               // by (source, destination)
  Plan plan_;
};

}  // namespace

Plan PlaceGreedily(const StepCosts& costs, GreedyOrder order, bool keep_finish) {
  return Greedy(costs, order, keep_finish).Run();
}

}  // namespace tutti::placement
