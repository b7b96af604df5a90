#include "tutti/compile/memory_peak.h"

#include <algorithm>
#include <map>
#include <utility>

namespace tutti {
namespace {

// From the node that wrote some bytes to the last that read them, both positions in the plan.
struct Life {
  LiveBytes what;
  size_t first = 0;
  size_t last = 0;
};

class LifeFinder {
 public:
  explicit LifeFinder(const StepPlan& plan) : plan_(plan) {}

  std::vector<Life> Run() {
    for (size_t i = 0; i < plan_.nodes.size(); ++i) {
      const PlanNode& node = plan_.nodes[i];
      for (const uint32_t s : node.inputs) Read(plan_.values[s], i);
      for (const uint32_t s : node.outputs) Write(plan_.values[s], *node.node, i);
      if (node.scratch_bytes > 0) {
        lives_.push_back({{node.node, true, node.scratch_bytes}, i, i});
      }
    }
    return std::move(lives_);
  }

 private:
  using Place = std::pair<int, size_t>;  // arena, offset

  void Read(const PlanValue& value, size_t at) {
    if (value.storage != Storage::kArena) return;
    const auto it = holder_.find(Place(value.arena, value.offset));
    if (it != holder_.end()) lives_[it->second].last = at;
  }

  void Write(const PlanValue& value, const Node& node, size_t at) {
    if (value.storage != Storage::kArena) return;
    const size_t bytes = value.layout.Bytes(value.type.dtype, value.type.shape);
    if (bytes == 0) return;
    const auto [it, fresh] = holder_.try_emplace(Place(value.arena, value.offset), lives_.size());
    if (!fresh) {
      // In place: whose bytes these were is counted up to the node before.
      Life& before = lives_[it->second];
      if (before.last == at) before.last = at - 1;
      it->second = lives_.size();
    }
    lives_.push_back({{&node, false, bytes}, at, at});
  }

  const StepPlan& plan_;
  std::vector<Life> lives_;
  std::map<Place, size_t> holder_;  // who wrote last there, in lives_
};

}  // namespace

MemoryPeak PeakOf(const StepPlan& plan) {
  MemoryPeak peak;
  if (plan.nodes.empty()) return peak;
  const std::vector<Life> lives = LifeFinder(plan).Run();
  std::vector<size_t> begins(plan.nodes.size() + 1), ends(plan.nodes.size() + 1);
  for (const Life& life : lives) {
    begins[life.first] += life.what.bytes;
    ends[life.last + 1] += life.what.bytes;
  }
  size_t at = 0;
  size_t bytes = 0;
  for (size_t i = 0; i < plan.nodes.size(); ++i) {
    bytes = bytes + begins[i] - ends[i];
    if (bytes <= peak.bytes) continue;
    peak.bytes = bytes;
    at = i;
  }
  peak.node = plan.nodes[at].node;
  for (const Life& life : lives) {
    if (life.first <= at && at <= life.last) peak.live.push_back(life.what);
  }
  std::stable_sort(peak.live.begin(), peak.live.end(),
                   [](const LiveBytes& a, const LiveBytes& b) { return a.bytes > b.bytes; });
  return peak;
}

}  // namespace tutti
