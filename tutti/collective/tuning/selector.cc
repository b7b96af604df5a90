#include "tutti/collective/tuning/selector.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <set>
#include <span>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"

namespace tutti::collective {
namespace {

bool Usable(const Algorithm& algorithm, Operation operation, const GroupShape& shape) {
  if (!algorithm.supports(operation)) return false;
  return !algorithm.needs_memory_links || shape.hosts == 1 || algorithm.name == "hierarchical";
}

using Names = std::span<const std::string_view>;

constexpr std::string_view kTinyOrder[] = {"exchange", "halving-doubling", "tree", "direct",
                                           "ring"};
constexpr std::string_view kMemoryOrder[] = {"direct", "exchange", "ring"};
constexpr std::string_view kMixedOrder[] = {"hierarchical", "ring", "tree", "exchange"};
constexpr std::string_view kMediumOrder[] = {"halving-doubling", "tree", "ring", "exchange"};
constexpr std::string_view kLargeOrder[] = {"ring", "halving-doubling", "tree", "exchange"};

// The algorithms in the order of preference for a size.
Names Preferences(Operation operation, int64_t bytes, const GroupShape& shape) {
  constexpr int64_t kTiny = 2048;
  constexpr int64_t kMedium = 64 << 10;
  const bool one_to_all = operation == Operation::kBroadcast || operation == Operation::kReduce;
  if (shape.ranks <= 8 && bytes <= kTiny && !one_to_all) return kTinyOrder;
  if (shape.hosts == 1) return kMemoryOrder;
  if (shape.hosts < shape.ranks && bytes > kTiny) return kMixedOrder;
  return bytes <= kMedium || one_to_all ? Names(kMediumOrder) : Names(kLargeOrder);
}

}  // namespace

GroupShape ShapeOf(std::span<const int> hosts) {
  const std::set<int> distinct(hosts.begin(), hosts.end());
  return {.ranks = static_cast<int>(hosts.size()), .hosts = static_cast<int>(distinct.size())};
}

DefaultSelector::DefaultSelector(const GroupShape& shape) : shape_(shape) {
  for (size_t operation = 1; operation < table_.size(); ++operation) {
    for (int bits = 0; bits < 64; ++bits) {
      const int64_t bytes = bits == 0 ? 0 : int64_t{1} << (bits - 1);
      table_[operation][bits] = ByRule(static_cast<Operation>(operation), bytes);
    }
  }
}

Choice DefaultSelector::Choose(Operation operation, int64_t bytes) const {
  return table_[static_cast<size_t>(operation)][std::bit_width(static_cast<uint64_t>(bytes))];
}

Choice DefaultSelector::ByRule(Operation operation, int64_t bytes) const {
  Choice choice;
  for (std::string_view name : Preferences(operation, bytes, shape_)) {
    const auto algorithm = FindAlgorithm(name);
    if (!algorithm.ok() || !Usable(**algorithm, operation, shape_)) continue;
    choice.algorithm.index = static_cast<uint8_t>(*algorithm - Algorithms().data());
    choice.segments = SegmentsFor(name, operation, shape_.ranks, bytes);
    return choice;
  }
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.for_comparison || !Usable(algorithm, operation, shape_)) continue;
    choice.algorithm.index = static_cast<uint8_t>(&algorithm - Algorithms().data());
    choice.segments = SegmentsFor(algorithm.name, operation, shape_.ranks, bytes);
    break;
  }
  return choice;
}

std::string DefaultSelector::Explain(Operation operation, int64_t bytes) const {
  const Choice choice = Choose(operation, bytes);
  return fmt::format(
      "{} of {} bytes, {} ranks on {} host{}: {} with {} segments, by rule; no link was measured\n",
      NameOf(operation), bytes, shape_.ranks, shape_.hosts, shape_.hosts == 1 ? "" : "s",
      choice.algorithm.Name(), choice.segments);
}

uint16_t SegmentsFor(std::string_view algorithm, Operation operation, int ranks, int64_t bytes) {
  // A piece of 256 KB is long enough to hide what a message costs, on memory and on sockets. Where
  // nobody waits for a first piece to pass it on, twice that: it fills a frame of the TCP
  // transport.
  static constexpr int64_t kPiece = 256 << 10;
  const bool chain = operation == Operation::kBroadcast || operation == Operation::kReduce;
  const bool circle = algorithm == "ring" && !chain;
  int64_t chunk = bytes;
  if (circle || algorithm == "hierarchical") {
    chunk = bytes / ranks;
  } else if (algorithm == "tree") {
    chunk = bytes / 2;
  } else if (algorithm != "ring") {  // a pipelined chain has the whole data as one chunk
    return 1;
  }
  const int64_t piece = circle || ranks == 2 ? 2 * kPiece : kPiece;
  return static_cast<uint16_t>(std::clamp<int64_t>(chunk / piece, 1, 16));
}

absl::Status CheckChoice(const AlgorithmId& id, Operation operation, const GroupShape& shape) {
  const Algorithm& algorithm = Algorithms()[id.index];
  if (Usable(algorithm, operation, shape)) return absl::OkStatus();
  std::string usable;
  for (const Algorithm& other : Algorithms()) {
    if (!Usable(other, operation, shape)) continue;
    usable += usable.empty() ? "" : ", ";
    usable += other.name;
  }
  if (!algorithm.supports(operation)) {
    return InvalidArgument("algorithm \"{}\" does no {}; these do: {}", algorithm.name,
                           NameOf(operation), usable);
  }
  return InvalidArgument(
      "algorithm \"{}\" works in the memory of all ranks, but they are on {} hosts; these do not: "
      "{}",
      algorithm.name, shape.hosts, usable);
}

}  // namespace tutti::collective
