#include "tutti/collective/schedule/schedule.h"

#include <algorithm>
#include <array>

#include "tutti/base/status.h"

namespace tutti::collective {
namespace {

struct OperationName {
  Operation operation;
  std::string_view name;
};
constexpr std::array kOperationNames = {
    OperationName{Operation::kAllReduce, "all-reduce"},
    OperationName{Operation::kReduceScatter, "reduce-scatter"},
    OperationName{Operation::kAllGather, "all-gather"},
    OperationName{Operation::kBroadcast, "broadcast"},
    OperationName{Operation::kReduce, "reduce"},
    OperationName{Operation::kGather, "gather"},
    OperationName{Operation::kScatter, "scatter"},
    OperationName{Operation::kAllToAll, "all-to-all"},
    OperationName{Operation::kBarrier, "barrier"},
};

constexpr std::array<std::string_view, 11> kStepNames = {
    "?",      "send",  "receive",     "receive-reduce", "copy",         "reduce",
    "signal", "await", "reduce-from", "store-to",       "reduce-to-all"};

absl::Status CheckRange(std::string_view what, int64_t value, int64_t end) {
  if (value >= 0 && value < end) return absl::OkStatus();
  return InvalidArgument("{} is {}, expected 0 to {}", what, value, end - 1);
}

// Ranks in ascending order, each once.
absl::Status CheckRankList(std::string_view what, const std::vector<int32_t>& list, int ranks) {
  for (size_t i = 0; i < list.size(); ++i) {
    TUTTI_RETURN_IF_ERROR(WithPrefix(CheckRange("a rank", list[i], ranks), what));
    if (i > 0 && list[i] <= list[i - 1]) {
      return InvalidArgument("{}rank {} stands behind rank {}, expected ascending order", what,
                             list[i], list[i - 1]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckChunks(const Schedule& schedule) {
  int expected = schedule.chunks;
  switch (schedule.operation) {
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kGather:
    case Operation::kScatter:
      expected = schedule.ranks;
      break;
    case Operation::kAllToAll:
      expected = 2 * schedule.ranks;
      break;
    default:
      break;
  }
  if (schedule.chunks == expected) return absl::OkStatus();
  return InvalidArgument("chunks={}, expected {} for {} among {} ranks", schedule.chunks, expected,
                         NameOf(schedule.operation), schedule.ranks);
}

}  // namespace

std::string_view NameOf(Operation operation) {
  for (const OperationName& entry : kOperationNames) {
    if (entry.operation == operation) return entry.name;
  }
  return "?";
}

absl::StatusOr<Operation> OperationFromName(std::string_view name) {
  std::string names;
  for (const OperationName& entry : kOperationNames) {
    if (entry.name == name) return entry.operation;
    names += names.empty() ? "" : ", ";
    names += entry.name;
  }
  return InvalidArgument("there is no operation \"{}\"; there are {}", name, names);
}

std::string_view NameOf(StepKind kind) {
  const auto index = size_t(kind);
  return index < kStepNames.size() ? kStepNames[index] : kStepNames[0];
}

Touched TouchedBy(const Step& step) {
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kStoreTo:
      return {.read = step.piece};
    case StepKind::kReceive:
      return {.write = step.piece};
    case StepKind::kReceiveReduce:
    case StepKind::kReduceFrom:
    case StepKind::kReduceToAll:
      return {.write = step.piece, .read = step.piece};
    case StepKind::kCopy:
      return {.write = step.piece, .read = step.source};
    case StepKind::kReduce:
      return {.write = step.piece, .read = step.piece, .also_read = step.source};
    case StepKind::kSignal:
    case StepKind::kAwait:
      return {};
  }
  return {};
}

bool MustWait(const Step& earlier, const Step& later) {
  if (earlier.kind == StepKind::kAwait || later.kind == StepKind::kSignal) return true;
  const Touched a = TouchedBy(earlier);
  const Touched b = TouchedBy(later);
  const auto touches = [](const Touched& touched, int32_t piece) {
    return touched.write == piece || touched.read == piece || touched.also_read == piece;
  };
  return (a.write >= 0 && touches(b, a.write)) || (b.write >= 0 && touches(a, b.write));
}

absl::Status CheckStep(const Schedule& schedule, int rank, const Step& step) {
  const auto piece = [&] { return CheckRange("the piece", step.piece, schedule.pieces()); };
  switch (step.kind) {
    case StepKind::kSend:
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      TUTTI_RETURN_IF_ERROR(piece());
      [[fallthrough]];
    case StepKind::kSignal:
    case StepKind::kAwait:
      if (step.peer == rank) return InvalidArgument("the peer is rank {} itself", rank);
      return CheckRange("the peer", step.peer, schedule.ranks);
    case StepKind::kCopy:
    case StepKind::kReduce:
      TUTTI_RETURN_IF_ERROR(piece());
      if (step.source == step.piece) {
        return InvalidArgument("piece and source are both {}, expected two pieces", step.piece);
      }
      return CheckRange("the source", step.source, schedule.pieces());
    case StepKind::kReduceFrom:
    case StepKind::kStoreTo:
    case StepKind::kReduceToAll:
      TUTTI_RETURN_IF_ERROR(piece());
      return CheckRange("the set", step.set, int64_t(schedule.sets.size()));
  }
  return InvalidArgument("there is no step of kind {}", int(step.kind));
}

absl::Status CheckSchedule(const Schedule& schedule) {
  if (NameOf(schedule.operation) == "?") {
    return InvalidArgument("there is no operation of number {}", int(schedule.operation));
  }
  if (schedule.ranks < 1 || schedule.ranks > kMaxRanks) {
    return InvalidArgument("ranks={}, expected 1 to {}", schedule.ranks, kMaxRanks);
  }
  TUTTI_RETURN_IF_ERROR(CheckRange("root", schedule.root, schedule.ranks));
  if (schedule.chunks < 1 || schedule.segments < 1 ||
      int64_t{schedule.chunks} * schedule.segments + int64_t(schedule.scratch.size()) >
          kMaxPieces) {
    return InvalidArgument("chunks={} segments={} and {} scratch pieces, expected 1 to {} pieces",
                           schedule.chunks, schedule.segments, schedule.scratch.size(), kMaxPieces);
  }
  TUTTI_RETURN_IF_ERROR(CheckChunks(schedule));
  for (const int32_t like : schedule.scratch) {
    TUTTI_RETURN_IF_ERROR(CheckRange("scratch: a data piece", like, schedule.data_pieces()));
  }
  TUTTI_RETURN_IF_ERROR(CheckRankList("contributors: ", schedule.contributors, schedule.ranks));
  for (size_t i = 0; i < schedule.sets.size(); ++i) {
    if (schedule.sets[i].empty()) return InvalidArgument("set {} is empty", i);
    TUTTI_RETURN_IF_ERROR(
        CheckRankList(fmt::format("set {}: ", i), schedule.sets[i], schedule.ranks));
  }
  if (schedule.steps.size() != size_t(schedule.ranks)) {
    return InvalidArgument("there are steps of {} ranks, expected {}", schedule.steps.size(),
                           schedule.ranks);
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (size_t i = 0; i < schedule.steps[rank].size(); ++i) {
      const absl::Status status = CheckStep(schedule, rank, schedule.steps[rank][i]);
      if (!status.ok()) return WithPrefix(status, fmt::format("rank {}, step {}: ", rank, i));
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti::collective
