#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/tuning/link_probe.h"
#include "tutti/collective/tuning/selector.h"
#include "tutti/net/coordination/star.h"

namespace tutti::collective {

// Chooses the algorithm with the least predicted time, given what the links cost. Predictions are
// made when a size is first asked for, and kept. The same costs give the same choices on every
// rank. Thread-safe.
class TunedSelector final : public Selector {
 public:
  // `hosts`: the host of each rank of the group.
  TunedSelector(const LinkFigures& figures, std::span<const int> hosts);
  Choice Choose(Operation operation, int64_t bytes) const override;
  std::optional<Forecast> Predict(Operation operation, int64_t bytes) const override;
  std::string Explain(Operation operation, int64_t bytes) const override;

 private:
  struct Candidate {
    Choice choice;
    double seconds;
  };
  bool WorthPredicting(const Algorithm& algorithm, Operation operation, int64_t bytes) const;
  // All that can do it, the cheapest first.
  std::vector<Candidate> Candidates(Operation operation, int64_t bytes) const;

  const std::vector<int> hosts_;
  const GroupShape shape_;
  const LinkFigures figures_;
  const DefaultSelector by_rule_;  // for groups that are too large to be replayed
  // By operation and the number of bits of the size: a packed Choice, or 0 until it is asked for.
  // Threads that ask at the same time find the same.
  mutable std::array<std::array<std::atomic<uint32_t>, 65>, 10> chosen_{};
};

// The name of the file in which rank 0 keeps the figures of links over `transport` between ranks at
// these places: another one for every other number, order or place of the ranks, and for every
// other version of Tutti.
std::string CacheName(std::string_view version, std::span<const std::string> places,
                      std::string_view transport);

// The figures that all ranks choose by: rank 0's of a job on the same machines within the last hour
// if it has kept some, else measured here. They are the same on all ranks.
absl::StatusOr<LinkFigures> FiguresForAll(Communicator& communicator, std::span<const int> hosts,
                                          std::string_view transport, net::Star& star);

}  // namespace tutti::collective
