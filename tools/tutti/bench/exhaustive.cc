// Is the automatic placement near the best one? The two-tower model is cut into coarse groups
// (placement_models.h), every way to put these on two devices is run, and the automatic placement
// is compared with the best. The first pass over all placements is short and picks a few
// candidates; these and the automatic placement are then run in turns, so that a disturbance meets
// all of them, and the least median of the candidates counts as the best.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/placement_models.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"

namespace tutti::tools {
namespace {

constexpr int kWarmUp = 12;     // steps: past those that are measured, and a second placement
constexpr int kFirstSteps = 7;  // of each placement, in the first pass
constexpr size_t kCandidates = 6;

class Contender {
 public:
  Contender(std::string name, StepModel model, const std::string& method)
      : name_(std::move(name)),
        model_(std::move(model)),
        session_(*model_.graph, {.devices = 2, .cores_per_device = 1, .placement = method}) {
    session_.Initialize();
    for (int i = 0; i < kWarmUp; ++i) Step();
  }

  double Step() {
    const int64_t start = NowNanos();
    session_.Run(model_.feeds, std::span(&model_.loss, 1), std::span(&model_.train, 1));
    return double(NowNanos() - start) * 1e-9;
  }
  void Measure(int steps) {
    for (int i = 0; i < steps; ++i) times_.push_back(Step());
  }
  double Seconds() const { return Median(times_); }
  const std::string& name() const { return name_; }

 private:
  const std::string name_;
  const StepModel model_;
  Session session_;
  std::vector<double> times_;
};

std::unique_ptr<Contender> Placed(uint32_t bits) {
  std::vector<int> devices;
  std::string name;
  for (int group = 0; group < kTowerGroups; ++group) {
    devices.push_back(int(bits >> group & 1));
    name += char('0' + devices.back());
  }
  return std::make_unique<Contender>(name, MakeTwoTowers(devices), "manual");
}

}  // namespace

void BenchExhaustive(const BenchOptions& options) {
  // Devices are alike, so the first group is on the first.
  std::vector<std::pair<double, uint32_t>> all;
  for (uint32_t bits = 0; bits < 1u << kTowerGroups; bits += 2) {
    const auto contender = Placed(bits);
    contender->Measure(kFirstSteps);
    all.emplace_back(contender->Seconds(), bits);
  }
  std::sort(all.begin(), all.end());
  std::vector<std::unique_ptr<Contender>> contenders;
  contenders.push_back(std::make_unique<Contender>("search", MakeTwoTowers({}), "search"));
  for (size_t i = 0; i < std::min(kCandidates, all.size()); ++i) {
    contenders.push_back(Placed(all[i].second));
  }
  const int64_t end = NowNanos() + int64_t(options.seconds * 5e9);
  do {
    for (const auto& contender : contenders) contender->Measure(3);
  } while (NowNanos() < end);
  const auto best =
      std::min_element(contenders.begin() + 1, contenders.end(),
                       [](const auto& a, const auto& b) { return a->Seconds() < b->Seconds(); });
  const auto report = [&](const std::string& what, double value, const char* unit) {
    Report({"placement", "two-towers, " + what, value, unit}, options.json);
  };
  report("placements of its groups", double(all.size()), "placements");
  report("worst of all placements", all.back().first * 1e3, "ms");
  report(fmt::format("best of all placements ({})", (*best)->name()), (*best)->Seconds() * 1e3,
         "ms");
  report("placed by search", contenders[0]->Seconds() * 1e3, "ms");
  report("search against the best", contenders[0]->Seconds() / (*best)->Seconds(), "times");
}

}  // namespace tutti::tools
