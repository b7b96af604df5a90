// A search by moves on the simulated time of the step. Single nodes are the wrong thing to move: a
// node in the middle of a chain only adds two transfers by going elsewhere, though the whole chain
// would gain. So groups are first joined into clusters, along the edges that are most expensive to
// cut, until a cluster has a set share of the step's work; a cluster moves as one. The search goes
// from few large clusters to many small ones and at last to single groups:
//
//   share 1/2 of a device's part of the work -> 1/8 -> single groups
//
// On each level the clusters are tried by weight, on every device that they may go to, and a move
// that makes the step shorter stays. The number of simulations is bounded by what they cost, so a
// graph of a hundred thousand nodes gets few and a small one thousands. Nothing is random.
#include "tutti/placement/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>

namespace tutti::placement {
namespace {

// A gain that is worth a move: less is below what the estimates can tell.
constexpr double kLeastGain = 5e-3;

struct GroupEdge {
  uint32_t a = 0, b = 0;
  double bytes = 0;
};

class Search {
 public:
  Search(const StepCosts& costs, const PlanOptions& options, Plan& plan)
      : costs_(costs),
        options_(options),
        plan_(plan),
        overflow_(Overflow(costs, plan.simulation)) {}

  void Run() {
    FindWeights();
    FindEdges();
    const double part = total_ / double(costs_.machines->size());
    for (const double share : {0.5, 0.125, 0.0}) {
      Cluster(part * share);
      for (bool better = true; better && !Spent();) better = TryAll();
    }
    if (kept_ > 0) plan_.how += fmt::format(", then search: {} of {} moves kept", kept_, tried_);
  }

 private:
  bool Spent() const {
    return tried_ >= options_.most_moves ||
           simulated_ + int64_t(costs_.size()) > options_.most_simulated;
  }

  void FindWeights() {
    weight_.assign(costs_.groups.size(), 0);
    for (size_t n = 0; n < costs_.size(); ++n) weight_[costs_.group[n]] += costs_.seconds[n];
    total_ = std::accumulate(weight_.begin(), weight_.end(), 0.0);
  }

  void FindEdges() {
    std::map<std::pair<uint32_t, uint32_t>, double> bytes;
    for (size_t n = 0; n < costs_.size(); ++n) {
      for (const StepCosts::Edge& edge : costs_.inputs(n)) {
        const uint32_t a = costs_.group[edge.node], b = costs_.group[n];
        if (a != b) bytes[std::minmax(a, b)] += edge.bytes + 1;
      }
    }
    for (const auto& [ends, sum] : bytes) edges_.push_back({ends.first, ends.second, sum});
    std::stable_sort(edges_.begin(), edges_.end(),
                     [](const GroupEdge& x, const GroupEdge& y) { return x.bytes > y.bytes; });
  }

  uint32_t Find(uint32_t g) {
    while (parent_[g] != g) g = parent_[g] = parent_[parent_[g]];
    return g;
  }

  // Joins groups into clusters of at most `most` seconds that lie on one device and may go to the
  // same ones.
  void Cluster(double most) {
    const size_t count = costs_.groups.size();
    parent_.resize(count);
    std::iota(parent_.begin(), parent_.end(), 0u);
    std::vector<double> weight = weight_;
    if (most > 0) {
      for (const GroupEdge& edge : edges_) {
        const uint32_t a = Find(edge.a), b = Find(edge.b);
        if (a == b || weight[a] + weight[b] > most ||
            costs_.groups[a].allowed != costs_.groups[b].allowed ||
            plan_.device[a] != plan_.device[b]) {
          continue;
        }
        parent_[b] = a;
        weight[a] += weight[b];
      }
    }
    members_.assign(count, {});
    for (uint32_t g = 0; g < count; ++g) members_[Find(g)].push_back(g);
    clusters_.clear();
    for (uint32_t g = 0; g < count; ++g) {
      const bool moves = !members_[g].empty() && costs_.groups[g].allowed.size() > 1;
      const bool matters = weight[g] > 0 || costs_.groups[g].state_bytes > 0;
      if (moves && matters) clusters_.push_back(g);
    }
    std::stable_sort(clusters_.begin(), clusters_.end(),
                     [&](uint32_t a, uint32_t b) { return weight[a] > weight[b]; });
  }

  bool TryAll() {
    bool better = false;
    for (const uint32_t cluster : clusters_) {
      for (const int d : costs_.groups[cluster].allowed) {
        if (Spent()) return better;
        if (d != plan_.device[cluster]) better = Try(cluster, d) || better;
      }
    }
    return better;
  }

  bool Try(uint32_t cluster, int d) {
    std::vector<int> device = plan_.device;
    for (const uint32_t g : members_[cluster]) device[g] = d;
    Simulation simulation = Simulate(costs_, device);
    ++tried_;
    simulated_ += int64_t(costs_.size());
    const double overflow = Overflow(costs_, simulation);
    const bool shorter = simulation.seconds < plan_.simulation.seconds * (1 - kLeastGain);
    if (overflow > overflow_ || (overflow == overflow_ && !shorter)) return false;
    ++kept_;
    overflow_ = overflow;
    plan_.device = std::move(device);
    plan_.simulation = std::move(simulation);
    for (const uint32_t g : members_[cluster]) plan_.decision[g] = Decision::kSearch;
    return true;
  }

  const StepCosts& costs_;
  const PlanOptions& options_;
  Plan& plan_;
  double overflow_;
  int64_t tried_ = 0, kept_ = 0, simulated_ = 0;
  double total_ = 0;
  std::vector<double> weight_;  // by group
  std::vector<GroupEdge> edges_;
  std::vector<uint32_t> parent_;
  std::vector<std::vector<uint32_t>> members_;  // by leading group
  std::vector<uint32_t> clusters_;              // leading groups, the heaviest first
};

}  // namespace

double Overflow(const StepCosts& costs, const Simulation& simulation) {
  double over = 0;
  for (size_t d = 0; d < simulation.peak_bytes.size(); ++d) {
    const auto limit = double(costs.machines->devices[d].memory_bytes);
    if (limit > 0) over += std::max(0.0, simulation.peak_bytes[d] - limit);
  }
  return over;
}

void Improve(const StepCosts& costs, const PlanOptions& options, Plan& plan) {
  if (costs.machines->size() > 1) Search(costs, options, plan).Run();
}

}  // namespace tutti::placement
