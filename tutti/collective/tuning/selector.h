#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tutti/collective/communicator.h"
#include "tutti/collective/operation/envelope.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// How an operation is done.
struct Choice {
  AlgorithmId algorithm;
  uint16_t segments = 1;
  bool operator==(const Choice&) const = default;
};

// What a group is like: all that the choice of an algorithm may depend on.
struct GroupShape {
  int ranks = 1;
  int hosts = 1;
};
// `hosts`: the host of each rank.
GroupShape ShapeOf(std::span<const int> hosts);

// Chooses an algorithm by operation and size. All ranks of a group hold equal ones: they must
// choose alike. Immutable.
class Selector {
 public:
  virtual ~Selector() = default;
  virtual Choice Choose(Operation operation, int64_t bytes) const = 0;
  // What it would take; nothing where there are no figures. From any thread.
  virtual std::optional<Forecast> Predict(Operation operation, int64_t bytes) const = 0;
  // Text for users: what is chosen, and why.
  virtual std::string Explain(Operation operation, int64_t bytes) const = 0;
};

// Rules that hold on most machines, where nothing was measured.
class DefaultSelector final : public Selector {
 public:
  explicit DefaultSelector(const GroupShape& shape);
  Choice Choose(Operation operation, int64_t bytes) const override;
  std::optional<Forecast> Predict(Operation, int64_t) const override { return std::nullopt; }
  std::string Explain(Operation operation, int64_t bytes) const override;

 private:
  Choice ByRule(Operation operation, int64_t bytes) const;

  GroupShape shape_;
  // By operation and the number of bits of the size.
  std::array<std::array<Choice, 65>, 10> table_;
};

// Pieces a chunk is cut into so that transfer and reduction overlap.
uint16_t SegmentsFor(std::string_view algorithm, Operation operation, int ranks, int64_t bytes);
// OK if the algorithm does the operation in a group of this shape; else an error that says why not,
// and which could.
absl::Status CheckChoice(const AlgorithmId& algorithm, Operation operation,
                         const GroupShape& shape);

}  // namespace tutti::collective
