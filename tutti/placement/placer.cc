// How a plan is made: the greedy placement in both orders and everything on one device are
// simulated, and the best that fits into memory is taken; the search starts from it. A plan over
// several devices must be better than one device by kLeastWorth, after the search, too: estimates
// are not exact, and transfers have risks that they do not count.
#include "tutti/placement/placer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/placement/greedy.h"
#include "tutti/placement/search.h"
#include "tutti/topology/quantity.h"

namespace tutti::placement {
namespace {

constexpr double kLeastWorth = 0.05;
constexpr int kMostSingles = 4;  // devices that are tried alone

bool AllowedForAll(const StepCosts& costs, int device) {
  return std::all_of(costs.groups.begin(), costs.groups.end(), [&](const Group& group) {
    return std::find(group.allowed.begin(), group.allowed.end(), device) != group.allowed.end();
  });
}

// Everything that may move goes to one device; what is bound elsewhere stays there.
Plan OneDevice(const StepCosts& costs, int device) {
  Plan plan;
  for (const Group& group : costs.groups) {
    const bool may =
        std::find(group.allowed.begin(), group.allowed.end(), device) != group.allowed.end();
    plan.device.push_back(may ? device : group.allowed.front());
    const bool bound = group.allowed.size() == 1;
    plan.decision.push_back(!bound                  ? Decision::kEarliest
                            : group.fixed_state     ? Decision::kState
                            : group.asks != nullptr ? Decision::kRequested
                                                    : Decision::kOnly);
  }
  plan.how = fmt::format("everything on {}", costs.machines->devices[size_t(device)].name);
  return plan;
}

class Best {
 public:
  explicit Best(const StepCosts& costs) : costs_(costs) {}

  // `worth`: by how much it must be better.
  void Offer(Plan plan, double worth) {
    plan.simulation = Simulate(costs_, plan.device);
    const double overflow = Overflow(costs_, plan.simulation);
    if (found_ && overflow > overflow_) return;
    const bool shorter = plan.simulation.seconds < plan_.simulation.seconds * (1 - worth);
    if (found_ && overflow == overflow_ && !shorter) return;
    found_ = true;
    overflow_ = overflow;
    plan_ = std::move(plan);
  }
  Plan Take() { return std::move(plan_); }
  const Plan& plan() const { return plan_; }
  double overflow() const { return overflow_; }

 private:
  const StepCosts& costs_;
  Plan plan_;
  bool found_ = false;
  double overflow_ = 0;
};

}  // namespace

std::string_view NameOf(Method method) {
  constexpr std::string_view kNames[] = {"manual", "greedy", "search"};
  return kNames[int(method)];
}

absl::StatusOr<Method> ParseMethod(std::string_view text) {
  for (const Method method : {Method::kManual, Method::kGreedy, Method::kSearch}) {
    if (text == NameOf(method)) return method;
  }
  return InvalidArgument("placement is \"{}\"; expected manual, greedy or search", text);
}

absl::StatusOr<Plan> MakePlan(const StepCosts& costs, const PlanOptions& options) {
  Best best(costs);
  int singles = 0;
  for (int d = 0; d < costs.machines->size() && singles < kMostSingles; ++d) {
    if (d > 0 && !AllowedForAll(costs, d)) continue;
    ++singles;
    best.Offer(OneDevice(costs, d), kLeastWorth);
  }
  const Best single = best;
  if (costs.machines->size() > 1) {
    best.Offer(PlaceGreedily(costs, GreedyOrder::kProgram, options.keep_finish), 0);
    best.Offer(PlaceGreedily(costs, GreedyOrder::kHeavyFirst, options.keep_finish), 0);
  }
  const bool overflows = best.overflow() > 0;
  Plan plan = best.Take();
  if (options.method == Method::kSearch || overflows) Improve(costs, options, plan);
  if (single.overflow() <= Overflow(costs, plan.simulation) &&
      single.plan().simulation.seconds * (1 - kLeastWorth) <= plan.simulation.seconds) {
    plan = single.plan();
  }
  if (plan.finish.empty() && options.keep_finish) {
    plan.finish = PlaceGreedily(costs, GreedyOrder::kProgram, true).finish;
  }
  TUTTI_RETURN_IF_ERROR(CheckMemory(costs, plan.device, plan.simulation));
  return plan;
}

absl::StatusOr<Plan> PlanFor(const StepCosts& costs, std::vector<int> device, std::string how) {
  Plan plan;
  plan.decision.assign(device.size(), Decision::kRequested);
  plan.device = std::move(device);
  plan.how = std::move(how);
  plan.simulation = Simulate(costs, plan.device);
  TUTTI_RETURN_IF_ERROR(CheckMemory(costs, plan.device, plan.simulation));
  return plan;
}

absl::Status CheckMemory(const StepCosts& costs, std::span<const int> device,
                         const Simulation& simulation) {
  for (size_t d = 0; d < simulation.peak_bytes.size(); ++d) {
    const auto limit = double(costs.machines->devices[d].memory_bytes);
    if (limit <= 0 || simulation.peak_bytes[d] <= limit) continue;
    // Variables and values that are there, the largest first.
    std::vector<std::pair<double, const Node*>> values;
    for (size_t n = 0; n < costs.size(); ++n) {
      if (device[costs.group[n]] != int(d)) continue;
      const Node& node = costs.NodeOf(n);
      const double bytes = node.op() == "Variable" ? BytesOf(node.type(0)) : costs.output_bytes[n];
      if (bytes > 0) values.emplace_back(bytes, &node);
    }
    std::stable_sort(values.begin(), values.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::string largest;
    for (size_t i = 0; i < values.size() && i < 3; ++i) {
      largest += fmt::format("{}{} ({})", i == 0 ? "" : ", ", values[i].second->Describe(),
                             topology::FormatBytes(values[i].first));
    }
    return absl::ResourceExhaustedError(fmt::format(
        "the step does not fit into the memory of {}: it would take {}, {} above the limit of {}; "
        "the largest there: {}; raise the limit, place a part elsewhere, or take a smaller batch",
        costs.machines->devices[d].name, topology::FormatBytes(simulation.peak_bytes[d]),
        topology::FormatBytes(simulation.peak_bytes[d] - limit), topology::FormatBytes(limit),
        largest));
  }
  return absl::OkStatus();
}

}  // namespace tutti::placement
