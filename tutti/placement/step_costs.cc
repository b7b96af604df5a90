// From a program to numbers. Groups first: what must lie together is joined, with the devices that
// all of it allows; then what the passes would fuse is joined too, where the wishes agree, since a
// chain that is cut in two is computed in two passes. Then times: of a fused value, neither the
// write nor the read counts. Values that are known before the step (constants, what folds into
// them, feeds) are repeated on every device that wants them, so they are no edges.
#include "tutti/placement/step_costs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <tuple>

#include "tutti/device/kernel_registry.h"
#include "tutti/graph/find_within.h"
#include "tutti/graph/op_def.h"

namespace tutti::placement {
namespace {

class Maker {
 public:
  Maker(const Program& program, const Machines& machines, const CostOptions& options)
      : program_(program), machines_(machines), options_(options), nodes_(program.graph->nodes()) {}

  absl::StatusOr<StepCosts> Run() {
    costs_.machines = &machines_;
    costs_.graph = program_.graph.get();
    TUTTI_ASSIGN_OR_RETURN(rules_, FindRules(program_, machines_.devices, options_.place));
    FindConstants();
    FindRepeated();
    CountReaders();
    TUTTI_RETURN_IF_ERROR(JoinWhatMustBe());
    JoinFused();
    costs_.joined = joined_;
    NumberGroups();
    FindSeconds();
    AddEdges();
    return std::move(costs_);
  }

 private:
  uint32_t Find(uint32_t node) {
    while (parent_[node] != node) node = parent_[node] = parent_[parent_[node]];
    return node;
  }

  void FindConstants() {
    constant_.assign(nodes_.size(), false);
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i];
      const OpDef& def = node.def();
      if (node.op() == "Constant") {
        constant_[i] = true;
        continue;
      }
      const bool asks_shape = node.op() == "Shape" || node.op() == "Rank" || node.op() == "Size";
      if (asks_shape && node.input(0).shape().IsFullyKnown()) {
        constant_[i] = true;
        continue;
      }
      if (def.source || def.stateful || def.async || def.has_subgraphs() ||
          node.num_inputs() == 0 || !node.control_inputs().empty()) {
        continue;
      }
      constant_[i] = std::all_of(node.inputs().begin(), node.inputs().end(), [&](const Output& in) {
        return constant_[size_t(in.node->id())];
      });
    }
  }

  // Feeds come with the request, to every device that wants them.
  void FindRepeated() {
    repeated_ = constant_;
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i]->def().source && nodes_[i]->control_inputs().empty()) repeated_[i] = true;
    }
  }

  void CountReaders() {
    readers_.assign(nodes_.size(), 0);
    for (const auto& node : nodes_) {
      for (const Output& input : node->inputs()) ++readers_[size_t(input.node->id())];
    }
    for (const Output& fetch : program_.fetches) ++readers_[size_t(fetch.node->id())];
  }

  // Groups and the devices that are allowed for them. ---------------------------------------------

  absl::Status JoinWhatMustBe() {
    parent_.resize(nodes_.size());
    std::iota(parent_.begin(), parent_.end(), 0u);
    allowed_.resize(nodes_.size());
    asks_.assign(nodes_.size(), nullptr);
    all_.resize(size_t(machines_.size()));
    std::iota(all_.begin(), all_.end(), 0);
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const auto& wished = rules_.allowed[i];
      allowed_[i] = wished.empty() ? all_ : wished;
      if (!wished.empty()) asks_[i] = nodes_[i].get();
      if (const auto home = options_.homes.find(nodes_[i]->name()); home != options_.homes.end()) {
        FixAt(i, home->second);
      }
    }
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i];
      const auto leader = uint32_t(rules_.leader[i]->id());
      // A leader has the whole rule: what follows it brings none.
      if (leader != i) TUTTI_RETURN_IF_ERROR(Join(leader, i, node));
      const bool has_bodies = node.def().has_subgraphs();
      const bool changes_state =
          has_bodies && FindWithin(node, [&](const Node& inner) {
                          return &inner != &node && StateOf(inner) != nullptr;
                        }) != nullptr;
      for (int k = 0; k < node.num_inputs(); ++k) {
        const Node& other = *node.input(k).node;
        const bool state = node.def().IsVariableInput(k) ||
                           (changes_state && other.def().stateful && other.num_inputs() == 0);
        if (state) TUTTI_RETURN_IF_ERROR(Join(uint32_t(other.id()), i, node));
      }
      TUTTI_RETURN_IF_ERROR(CheckKernel(node));
    }
    return absl::OkStatus();
  }

  void FixAt(uint32_t node, const std::string& device) {
    for (const int d : allowed_[node]) {
      if (machines_.devices[size_t(d)].name != device) continue;
      allowed_[node] = {d};
      fixed_.push_back(node);
      return;
    }
  }

  // `because` is the node that needs both together.
  absl::Status Join(uint32_t a, uint32_t b, const Node& because) {
    a = Find(a);
    b = Find(b);
    if (a == b) return absl::OkStatus();
    if (a > b) std::swap(a, b);
    std::vector<int> both = Both(a, b);
    if (both.empty()) {
      const auto wish = [&](uint32_t n) {
        const Node& node = *(asks_[n] != nullptr ? asks_[n] : nodes_[n].get());
        if (!node.device().empty()) return fmt::format("{} {}", node.Describe(), WishOf(node));
        return fmt::format("{} is bound to {}", node.Describe(), NamesOf(allowed_[n]));
      };
      return InvalidArgument("{} needs its states on one device, but {}, and {}",
                             because.Describe(), wish(a), wish(b));
    }
    Merge(a, b, std::move(both));
    return absl::OkStatus();
  }

  std::vector<int> Both(uint32_t a, uint32_t b) const {
    if (allowed_[a].size() == all_.size()) return allowed_[b];
    if (allowed_[b].size() == all_.size()) return allowed_[a];
    std::vector<int> both;
    std::set_intersection(allowed_[a].begin(), allowed_[a].end(), allowed_[b].begin(),
                          allowed_[b].end(), std::back_inserter(both));
    return both;
  }

  void Merge(uint32_t a, uint32_t b, std::vector<int> both) {
    parent_[b] = a;
    allowed_[a] = std::move(both);
    allowed_[b].clear();
    if (asks_[a] == nullptr) asks_[a] = asks_[b];
  }

  // Takes away the devices whose kind has no kernel for the node, unless no kind has one: then the
  // compiler tells.
  absl::Status CheckKernel(const Node& node) {
    if (node.def().source || node.def().view || node.def().has_subgraphs()) {
      return absl::OkStatus();
    }
    const uint32_t group = Find(uint32_t(node.id()));
    std::vector<int> with;
    bool all = true;
    for (const int d : allowed_[group]) {
      const bool has = HasKernel(node, machines_.devices[size_t(d)].type);
      all = all && has;
      if (has) with.push_back(d);
    }
    if (all) return absl::OkStatus();
    if (!with.empty()) {
      allowed_[group] = std::move(with);
      return absl::OkStatus();
    }
    const bool somewhere = std::any_of(all_.begin(), all_.end(), [&](int d) {
      return HasKernel(node, machines_.devices[size_t(d)].type);
    });
    if (!somewhere) return absl::OkStatus();
    const Node& asking = *(asks_[group] != nullptr ? asks_[group] : &node);
    return InvalidArgument("{} has no kernel on {}: {} {}; there are kernels for: {}",
                           node.Describe(), NamesOf(allowed_[group]), asking.Describe(),
                           asking.device().empty() ? "is bound to it" : WishOf(asking),
                           KernelRegistry::Global().Describe(node.op()));
  }

  bool HasKernel(const Node& node, const std::string& type) {
    if (node.num_inputs() == 0 && node.num_outputs() == 0) return true;
    const auto key = std::tuple(node.op(), type, KernelDType(node));
    const auto it = has_kernel_.find(key);
    if (it != has_kernel_.end()) return it->second;
    const bool has = KernelRegistry::Global().Find(node.op(), type, std::get<2>(key)) != nullptr;
    has_kernel_.emplace(key, has);
    return has;
  }

  std::string NamesOf(const std::vector<int>& devices) const {
    std::string names;
    for (size_t i = 0; i < devices.size() && i < 4; ++i) {
      names += (i == 0 ? "" : ", ") + machines_.devices[size_t(devices[i])].name;
    }
    return devices.size() > 4 ? names + ", ..." : names;
  }

  void JoinFused() {
    joined_.assign(nodes_.size(), -1);
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const Node& node = *nodes_[i];
      const int joined = constant_[i] ? -1 : JoinedInput(node);
      if (joined < 0) continue;
      const auto producer = uint32_t(node.input(joined).node->id());
      if (readers_[producer] != 1 || constant_[producer]) continue;
      const uint32_t a = Find(producer), b = Find(i);
      if (a == b) {
        joined_[i] = joined;
        continue;
      }
      if (options_.manual && allowed_[a].front() != allowed_[b].front()) continue;
      std::vector<int> both = Both(a, b);
      if (both.empty()) continue;
      joined_[i] = joined;
      Merge(std::min(a, b), std::max(a, b), std::move(both));
    }
  }

  void NumberGroups() {
    costs_.group.resize(nodes_.size());
    std::vector<uint32_t> number(nodes_.size(), UINT32_MAX);
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      const uint32_t root = Find(i);
      if (number[root] == UINT32_MAX) {
        number[root] = uint32_t(costs_.groups.size());
        Group group;
        group.allowed = std::move(allowed_[root]);
        group.asks = asks_[root];
        group.first = nodes_[i].get();
        costs_.groups.push_back(std::move(group));
      }
      costs_.group[i] = number[root];
      if (nodes_[i]->op() == "Variable") {
        costs_.groups[number[root]].state_bytes += BytesOf(nodes_[i]->type(0));
      }
    }
    for (const uint32_t node : fixed_) costs_.groups[costs_.group[node]].fixed_state = true;
  }

  // Times and edges. ------------------------------------------------------------------------------

  void FindSeconds() {
    const size_t count = nodes_.size();
    costs_.seconds.assign(count, 0);
    costs_.core_seconds.assign(count, 0);
    costs_.crowding.assign(count, 1);
    costs_.output_bytes.assign(count, 0);
    std::vector<NodeWork> work(count);
    for (size_t i = 0; i < count; ++i) {
      work[i] = WorkOf(*nodes_[i]);
      const OpDef& def = nodes_[i]->def();
      if (!def.source && !def.view && !def.provides_outputs && !constant_[i]) {
        costs_.output_bytes[i] = work[i].output_bytes;
      }
    }
    for (size_t i = 0; i < count; ++i) {
      if (joined_[i] < 0) continue;
      const auto producer = size_t(nodes_[i]->input(joined_[i]).node->id());
      const double bytes = costs_.output_bytes[producer];
      work[i].read_bytes = std::max(0.0, work[i].read_bytes - bytes);
      work[producer].write_bytes = std::max(0.0, work[producer].write_bytes - bytes);
      costs_.output_bytes[producer] = 0;
    }
    for (size_t i = 0; i < count; ++i) {
      if (constant_[i]) continue;
      const double one = SecondsOf(work[i], machines_.machine, 1);
      const double two = SecondsOf(work[i], machines_.machine, 2);
      costs_.core_seconds[i] = 2 * (one - two);
      costs_.seconds[i] = one;
      if (one > 0) {
        const double crowded = SecondsOf(work[i], machines_.machine, 1, /*crowded=*/true);
        costs_.crowding[i] = std::max(1.0, crowded / one);
      }
      if (joined_[i] >= 0) costs_.seconds[i] -= std::min(one, machines_.machine.node_seconds);
    }
  }

  void AddEdges() {
    const size_t count = nodes_.size();
    std::vector<uint32_t> first_value(count);
    for (size_t i = 0; i < count; ++i) {
      first_value[i] = costs_.values;
      costs_.values += uint32_t(nodes_[i]->num_outputs()) + 1;
    }
    costs_.in_begin.assign(count + 1, 0);
    costs_.out_begin.assign(count + 1, 0);
    for (size_t i = 0; i < count; ++i) {
      costs_.in_begin[i] = uint32_t(costs_.in.size());
      if (!constant_[i]) AddInputs(i, first_value);
    }
    costs_.in_begin[count] = uint32_t(costs_.in.size());
    for (const StepCosts::Edge& edge : costs_.in) ++costs_.out_begin[edge.node + 1];
    std::partial_sum(costs_.out_begin.begin(), costs_.out_begin.end(), costs_.out_begin.begin());
    costs_.out.resize(costs_.in.size());
    std::vector<uint32_t> next(costs_.out_begin.begin(), costs_.out_begin.end() - 1);
    for (size_t i = 0; i < count; ++i) {
      for (const StepCosts::Edge& edge : costs_.inputs(i)) {
        costs_.out[next[edge.node]++] = {uint32_t(i), edge.value, edge.bytes};
      }
    }
  }

  void AddInputs(size_t i, const std::vector<uint32_t>& first_value) {
    const Node& node = *nodes_[i];
    const size_t begin = costs_.in.size();
    const auto add = [&](uint32_t from, uint32_t value, double bytes) {
      for (size_t k = begin; k < costs_.in.size(); ++k) {
        if (costs_.in[k].value == value) return;
      }
      costs_.in.push_back({from, value, bytes});
    };
    for (int k = 0; k < node.num_inputs(); ++k) {
      const Output input = node.input(k);
      const auto from = uint32_t(input.node->id());
      if (repeated_[from]) continue;
      const bool reference = node.def().IsVariableInput(k);
      add(from, first_value[from] + uint32_t(input.index),
          reference ? 0 : BytesOf(input.node->type(input.index)));
    }
    for (const Node* before : node.control_inputs()) {
      const auto from = uint32_t(before->id());
      if (!repeated_[from]) add(from, first_value[from] + uint32_t(before->num_outputs()), 0);
    }
  }

  const Program& program_;
  const Machines& machines_;
  const CostOptions& options_;
  const std::vector<std::unique_ptr<Node>>& nodes_;
  PlaceRules rules_;
  StepCosts costs_;
  std::vector<bool> constant_;  // by node: known before the step
  std::vector<bool> repeated_;  // by node: that, or fed
  std::vector<int> readers_;
  std::vector<uint32_t> parent_;           // union-find: the smallest number leads
  std::vector<std::vector<int>> allowed_;  // of leading nodes
  std::vector<const Node*> asks_;
  std::vector<uint32_t> fixed_;
  std::vector<int> joined_;  // by node: computed with what makes this input; -1: with none
  std::vector<int> all_;
  std::map<std::tuple<std::string, std::string, DType>, bool> has_kernel_;
};

}  // namespace

absl::StatusOr<StepCosts> CostsOf(const Program& program, const Machines& machines,
                                  const CostOptions& options) {
  return Maker(program, machines, options).Run();
}

}  // namespace tutti::placement
