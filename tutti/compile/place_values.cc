// Where the values of a plan lie. A value lives from the node that writes it to the last that reads
// it or a view of it. A kernel that may work in place, on an input that nobody reads later, gives
// its output that input's memory; such chains have one home, living from the first write to the
// last read. Scratch lives for one node. PlanMemory packs all of that.
//
// The lane takes the first ready node, so nodes that depend on no asynchronous node run in plan
// order. A node that depends on one is called floating: it may run later than its position. The
// values of floating nodes have an arena of their own. Where two of them share bytes, an edge is
// added from every node that uses the old value to the node that writes the new one. Such an edge
// must not end at a node that is not floating: it would make that node floating, while its other
// memory is not protected by edges. A node that is not floating therefore writes only unused bytes
// of that arena.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "tutti/base/check.h"
#include "tutti/compile/plan_draft.h"
#include "tutti/graph/op_def.h"

namespace tutti {
namespace {

class ValuePlacer {
 public:
  explicit ValuePlacer(PlanDraft& draft)
      : draft_(draft), plan_(draft.plan), home_(plan_.values.size()) {
    for (uint32_t s = 0; s < home_.size(); ++s) home_[s] = draft_.root[s];
  }

  absl::Status Run() {
    FindLives();
    FindFloating();
    ShareInPlace();
    TUTTI_RETURN_IF_ERROR(CollectRequests());
    TUTTI_RETURN_IF_ERROR(Pack());
    Assign();
    if (plan_.has_async) GuardReuse();
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kNever = -1;

  size_t BytesOf(uint32_t value) const {
    const PlanValue& s = plan_.values[value];
    return s.layout.Bytes(s.type.dtype, s.type.shape);
  }

  void FindLives() {
    first_.assign(plan_.values.size(), kNever);
    last_.assign(plan_.values.size(), kNever);
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      for (const uint32_t s : plan_.nodes[i].outputs) first_[s] = last_[s] = i;
      for (const uint32_t s : plan_.nodes[i].inputs) last_[draft_.root[s]] = i;
    }
  }

  void FindFloating() {
    floating_.assign(plan_.nodes.size(), false);
    floating_value_.assign(plan_.values.size(), false);
    if (!plan_.has_async) return;
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& node = plan_.nodes[i];
      if (node.node->def().async) floating_[i] = true;
      if (!floating_[i]) continue;
      for (const uint32_t next : node.successors) floating_[next] = true;
      for (const uint32_t s : node.inputs) floating_value_[draft_.root[s]] = true;
      for (const uint32_t s : node.outputs) floating_value_[draft_.root[s]] = true;
    }
  }

  void ShareInPlace() {
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& node = plan_.nodes[i];
      std::vector<uint32_t> given;  // inputs whose memory an output took
      std::vector<int> taken;       // outputs that have some
      for (const auto& [in, out] : node.kernel->in_place) {
        if (size_t(in) >= node.inputs.size() || size_t(out) >= node.outputs.size()) continue;
        const uint32_t from = draft_.root[node.inputs[in]];
        const uint32_t to = node.outputs[out];
        if (last_[from] != int64_t(i) || !MayShare(from, to)) continue;
        if (std::find(given.begin(), given.end(), from) != given.end() ||
            std::find(taken.begin(), taken.end(), out) != taken.end()) {
          continue;
        }
        given.push_back(from);
        taken.push_back(out);
        home_[to] = home_[from];
        last_of_home_[home_[from]] = last_[to];
      }
    }
  }

  bool MayShare(uint32_t from, uint32_t to) const {
    const PlanValue& a = plan_.values[from];
    const PlanValue& b = plan_.values[to];
    return !floating_value_[from] && !floating_value_[to] && a.storage == Storage::kArena &&
           b.storage == Storage::kArena && a.arena == 0 && b.arena == 0 && a.layout == b.layout &&
           BytesOf(from) == BytesOf(to);
  }

  // Pinned values come with their arena and offset set.
  absl::Status CollectRequests() {
    for (uint32_t s = 0; s < plan_.values.size(); ++s) {
      const PlanValue& value = plan_.values[s];
      if (value.storage != Storage::kArena || home_[s] != s) continue;
      MemoryRequest request{.bytes = BytesOf(s), .first = first_[s], .last = last_[s]};
      if (const auto it = last_of_home_.find(s); it != last_of_home_.end())
        request.last = it->second;
      // Nobody has the bytes before a writer that does not float: it must not wait for them.
      if (floating_value_[s] && first_[s] > 0 && !floating_[size_t(first_[s])]) request.first = 0;
      if (value.arena > 0) {
        request.pinned_arena = value.arena;
        request.pinned_offset = value.offset;
      }
      requests_.push_back(request);
      value_of_.push_back(s);
    }
    plan_.first_kernels.resize(plan_.nodes.size());
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      PlanNode& node = plan_.nodes[i];
      if (!node.prepared_early()) continue;
      TUTTI_ASSIGN_OR_RETURN(plan_.first_kernels[i],
                             PrepareKernel(plan_, node, &node.scratch_bytes));
      if (node.scratch_bytes > 0)
        requests_.push_back({.bytes = node.scratch_bytes, .first = i, .last = i});
    }
    return absl::OkStatus();
  }

  bool Floats(size_t request) const {
    return request < value_of_.size() ? floating_value_[value_of_[request]]
                                      : floating_[size_t(requests_[request].first)];
  }

  // Plans the requests that do not float, and the pinned ones, in the plan's arenas, and the rest
  // in one more.
  absl::Status Pack() {
    std::vector<MemoryRequest> steady, floating;
    for (size_t r = 0; r < requests_.size(); ++r) {
      const bool apart = Floats(r) && requests_[r].pinned_arena < 0;
      (apart ? floating : steady).push_back(requests_[r]);
    }
    TUTTI_ASSIGN_OR_RETURN(const auto steady_places, PlanMemory(steady, plan_.arenas));
    std::vector<ArenaSpec> more = {{.name = "floating"}};
    TUTTI_ASSIGN_OR_RETURN(const auto floating_places, PlanMemory(floating, more));
    const int floating_arena = int(plan_.arenas.size());
    if (!floating.empty()) plan_.arenas.push_back(more[0]);
    size_t next_steady = 0, next_floating = 0;
    for (size_t r = 0; r < requests_.size(); ++r) {
      const bool apart = Floats(r) && requests_[r].pinned_arena < 0;
      placements_.push_back(apart
                                ? Placement{floating_arena, floating_places[next_floating++].offset}
                                : steady_places[next_steady++]);
    }
    return absl::OkStatus();
  }

  void Assign() {
    for (size_t r = 0; r < value_of_.size(); ++r) {
      plan_.values[value_of_[r]].arena = placements_[r].arena;
      plan_.values[value_of_[r]].offset = placements_[r].offset;
    }
    for (size_t r = value_of_.size(); r < requests_.size(); ++r) {
      PlanNode& node = plan_.nodes[size_t(requests_[r].first)];
      node.scratch_arena = placements_[r].arena;
      node.scratch_offset = placements_[r].offset;
    }
    for (uint32_t s = 0; s < plan_.values.size(); ++s) {
      const PlanValue& source = plan_.values[home_[draft_.root[s]]];
      PlanValue& value = plan_.values[s];
      if (value.storage == Storage::kArena) {
        value.arena = source.arena;
        value.offset = source.offset;
      } else if (value.storage == Storage::kConstant && draft_.root[s] != s) {
        value.constant = plan_.values[draft_.root[s]].constant.Reshape(value.type.shape);
      }
    }
  }

  // Walks the requests in the order of their lives and keeps, of every stretch of an arena, who had
  // it last. Only that one needs edges to the next writer: all who had the bytes before are behind
  // its own writer, by the edges it got in turn.
  void GuardReuse() {
    std::unordered_map<uint32_t, std::vector<uint32_t>> touching;  // value -> nodes
    for (uint32_t i = 0; i < plan_.nodes.size(); ++i) {
      for (const uint32_t s : plan_.nodes[i].inputs) touching[draft_.root[s]].push_back(i);
      for (const uint32_t s : plan_.nodes[i].outputs) touching[draft_.root[s]].push_back(i);
    }
    std::vector<size_t> order;
    for (size_t r = 0; r < requests_.size(); ++r) {
      if (Floats(r) && requests_[r].bytes > 0) order.push_back(r);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return requests_[a].first < requests_[b].first; });
    Stretches stretches;
    for (const size_t r : order) {
      const auto writer =
          uint32_t(r < value_of_.size() ? first_[value_of_[r]] : requests_[r].first);
      for (const size_t before : TakeOver(stretches, r)) {
        if (before >= value_of_.size()) {
          draft_.AddEdge(uint32_t(requests_[before].first), writer);
        } else {
          for (const uint32_t node : touching[value_of_[before]]) draft_.AddEdge(node, writer);
        }
      }
    }
  }

  // Parts of arenas that somebody had, by their first byte. They do not overlap.
  struct Stretch {
    size_t end = 0;
    size_t request = 0;  // who had it last
  };
  using Stretches = std::map<std::pair<int, size_t>, Stretch>;  // (arena, offset)

  // Gives the bytes of request r to it. Returns who had them.
  std::vector<size_t> TakeOver(Stretches& stretches, size_t r) const {
    const int arena = placements_[r].arena;
    const size_t begin = placements_[r].offset;
    const size_t end = begin + requests_[r].bytes;
    std::vector<size_t> before;
    auto it = stretches.lower_bound({arena, begin});
    if (it != stretches.begin()) {
      const auto previous = std::prev(it);
      if (previous->first.first == arena && previous->second.end > begin) it = previous;
    }
    while (it != stretches.end() && it->first.first == arena && it->first.second < end) {
      const size_t from = it->first.second;
      const Stretch had = it->second;
      if (before.empty() || before.back() != had.request) before.push_back(had.request);
      it = stretches.erase(it);
      if (from < begin) stretches[{arena, from}] = {begin, had.request};
      if (had.end > end) stretches[{arena, end}] = {had.end, had.request};
    }
    stretches[{arena, begin}] = {end, r};
    return before;
  }

  PlanDraft& draft_;
  StepPlan& plan_;
  std::vector<uint32_t> home_;        // value -> the value whose memory it has
  std::vector<bool> floating_;        // by node
  std::vector<bool> floating_value_;  // touched by a floating node
  std::vector<int64_t> first_;
  std::vector<int64_t> last_;
  std::unordered_map<uint32_t, int64_t> last_of_home_;
  std::vector<MemoryRequest> requests_;  // of the values in value_of_, then scratch
  std::vector<uint32_t> value_of_;
  std::vector<Placement> placements_;
};

}  // namespace

void PlanDraft::AddEdge(uint32_t from, uint32_t to) {
  TUTTI_CHECK(from <= to);
  if (from == to || !edges.insert((uint64_t(from) << 32) | to).second) return;
  plan.nodes[from].successors.push_back(to);
  ++plan.nodes[to].waits_for;
}

absl::Status PlaceValues(PlanDraft& draft) { return ValuePlacer(draft).Run(); }

}  // namespace tutti
