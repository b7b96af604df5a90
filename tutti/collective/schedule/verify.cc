// The proof in two parts. Execute runs the schedule on the machine on which it is easiest to get
// stuck, which shows that no machine gets stuck. The RaceDetector shows that all steps that touch
// the same piece, one of them writing, happen in one order on every machine. Then every step reads
// the same on every machine, whatever overlaps, and what the pieces hold at the end of this one
// execution is what they hold at the end of all.
#include "tutti/collective/schedule/verify.h"

#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/collective/schedule/contents.h"
#include "tutti/collective/schedule/execute.h"
#include "tutti/collective/schedule/races.h"

namespace tutti::collective {
namespace {

// What is kept per piece of every rank has to fit into memory.
constexpr int64_t kMaxCells = int64_t{1} << 26;

// The number of a size that pieces may share: only pieces of one size can be copied, sent or added
// into each other. Even cuts differ by an element, so every piece has a size of its own; in
// all-to-all and reduce-scatter all chunks are equally long.
int SizeOf(const Schedule& schedule, int piece) {
  if (piece >= schedule.data_pieces()) {
    piece = schedule.scratch[size_t(piece - schedule.data_pieces())];
  }
  const bool equal_chunks =
      schedule.operation == Operation::kAllToAll || schedule.operation == Operation::kReduceScatter;
  return equal_chunks ? piece % schedule.segments : piece;
}

absl::Status CheckSizes(const Schedule& schedule, const std::string& step, int piece, int source) {
  if (SizeOf(schedule, piece) == SizeOf(schedule, source)) return absl::OkStatus();
  return FailedPrecondition("{}: piece {} and piece {} may have different sizes", step, piece,
                            source);
}

// What can be seen without running anything.
absl::Status CheckStatically(const Schedule& schedule) {
  const int inputs =
      schedule.operation == Operation::kAllToAll ? schedule.ranks * schedule.segments : 0;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (size_t i = 0; i < schedule.steps[size_t(rank)].size(); ++i) {
      const Step& step = schedule.steps[size_t(rank)][i];
      const auto name = [&] { return Describe(schedule, rank, int(i)); };
      if (step.kind == StepKind::kCopy || step.kind == StepKind::kReduce) {
        if (SizeOf(schedule, step.piece) != SizeOf(schedule, step.source)) {
          return CheckSizes(schedule, name(), step.piece, step.source);
        }
      }
      const bool writes = TouchedBy(step).write >= 0 || step.kind == StepKind::kStoreTo;
      if (writes && step.piece < inputs) {
        return FailedPrecondition("{}: writes into the input of all-to-all, piece {}", name(),
                                  step.piece);
      }
      if (schedule.operation == Operation::kBarrier && step.kind != StepKind::kSignal &&
          step.kind != StepKind::kAwait) {
        return FailedPrecondition("{}: a barrier has no data, expected signal or await", name());
      }
    }
  }
  return absl::OkStatus();
}

class Verifier : public ExecutionObserver {
 public:
  explicit Verifier(const Schedule& schedule)
      : schedule_(schedule),
        races_(schedule),
        contributors_(schedule.contributors),
        contributes_(size_t(schedule.ranks)),
        cells_(size_t(schedule.ranks) * size_t(schedule.pieces())) {
    if (contributors_.empty()) {
      for (int rank = 0; rank < schedule.ranks; ++rank) contributors_.push_back(rank);
    }
    for (const int32_t rank : contributors_) contributes_[size_t(rank)] = true;
    Fill();
  }

  absl::Status Run() {
    TUTTI_RETURN_IF_ERROR(Execute(schedule_, *this));
    TUTTI_RETURN_IF_ERROR(status_);
    races_.Finish();
    TUTTI_RETURN_IF_ERROR(races_.status());
    return CheckResult();
  }

  void Started(int rank, int step) override { races_.Started(rank, step); }
  void Awaited(int rank, int /*await*/, int from, int signal) override {
    races_.Awaited(rank, from, signal);
  }

  void Delivered(int from, int send, int to, int receive) override {
    const Step& source = schedule_.steps[size_t(from)][size_t(send)];
    const Step& target = schedule_.steps[size_t(to)][size_t(receive)];
    if (SizeOf(schedule_, source.piece) != SizeOf(schedule_, target.piece) && status_.ok()) {
      status_ = CheckSizes(
          schedule_, Describe(schedule_, from, send) + " to " + Describe(schedule_, to, receive),
          source.piece, target.piece);
    }
    Contents::Ptr& cell = At(to, target.piece);
    const Contents::Ptr& sent = At(from, source.piece);
    cell = target.kind == StepKind::kReceive ? sent : Contents::Sum(cell, sent);
  }

  void Computed(int rank, int number) override {
    const Step& step = schedule_.steps[size_t(rank)][size_t(number)];
    Contents::Ptr& own = At(rank, step.piece);
    switch (step.kind) {
      case StepKind::kCopy:
        own = At(rank, step.source);
        break;
      case StepKind::kReduce:
        own = Contents::Sum(own, At(rank, step.source));
        break;
      case StepKind::kReduceFrom:
        own = SumOver(step);
        break;
      case StepKind::kReduceToAll:
        own = SumOver(step);
        [[fallthrough]];
      case StepKind::kStoreTo:
        for (const int32_t peer : schedule_.sets[size_t(step.set)]) At(peer, step.piece) = own;
        break;
      default:
        break;
    }
  }

 private:
  Contents::Ptr& At(int rank, int piece) {
    return cells_[size_t(rank) * size_t(schedule_.pieces()) + size_t(piece)];
  }

  Contents::Ptr SumOver(const Step& step) {
    const std::vector<int32_t>& set = schedule_.sets[size_t(step.set)];
    Contents::Ptr sum = At(set[0], step.piece);
    for (size_t i = 1; i < set.size(); ++i) sum = Contents::Sum(sum, At(set[i], step.piece));
    return sum;
  }

  Contents::Ptr Source(int piece, int rank) const {
    const int64_t number = int64_t{piece} * schedule_.ranks + rank;
    return Contents::Of(number, number + 1);
  }
  // What every contributor brought to a piece, each once.
  Contents::Ptr Total(int piece) const {
    const int64_t first = int64_t{piece} * schedule_.ranks;
    if (int(contributors_.size()) == schedule_.ranks) {
      return Contents::Of(first, first + schedule_.ranks);
    }
    Contents::Ptr sum = Source(piece, contributors_[0]);
    for (size_t i = 1; i < contributors_.size(); ++i) {
      sum = Contents::Sum(sum, Source(piece, contributors_[i]));
    }
    return sum;
  }

  bool Contributes(int rank) const { return contributes_[size_t(rank)]; }

  // Whether the rank's piece holds data of the caller's at the start.
  bool Brings(int rank, int chunk) const {
    switch (schedule_.operation) {
      case Operation::kAllReduce:
      case Operation::kReduceScatter:
      case Operation::kReduce:
        return Contributes(rank);
      case Operation::kAllGather:
      case Operation::kGather:
        return chunk == rank;
      case Operation::kBroadcast:
      case Operation::kScatter:
        return rank == schedule_.root;
      case Operation::kAllToAll:
        return chunk < schedule_.ranks;
      case Operation::kBarrier:
        return false;
    }
    return false;
  }

  void Fill() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (int piece = 0; piece < schedule_.data_pieces(); ++piece) {
        if (Brings(rank, piece / schedule_.segments)) At(rank, piece) = Source(piece, rank);
      }
    }
  }

  // What the operation promises that the rank's piece holds at the end; null: nothing.
  Contents::Ptr Promised(int rank, int piece) const {
    const int chunk = piece / schedule_.segments;
    const bool is_root = rank == schedule_.root;
    switch (schedule_.operation) {
      case Operation::kAllReduce:
        return Contributes(rank) ? totals_[size_t(piece)] : nullptr;
      case Operation::kReduceScatter:
        return chunk == rank ? totals_[size_t(piece)] : nullptr;
      case Operation::kReduce:
        return is_root ? totals_[size_t(piece)] : nullptr;
      case Operation::kAllGather:
        return Source(piece, chunk);
      case Operation::kGather:
        return is_root ? Source(piece, chunk) : nullptr;
      case Operation::kBroadcast:
        return Source(piece, schedule_.root);
      case Operation::kScatter:
        return chunk == rank ? Source(piece, schedule_.root) : nullptr;
      case Operation::kAllToAll:
        if (chunk < schedule_.ranks) return nullptr;
        return Source(rank * schedule_.segments + piece % schedule_.segments,
                      chunk - schedule_.ranks);
      case Operation::kBarrier:
        return nullptr;
    }
    return nullptr;
  }

  absl::Status CheckResult() {
    for (int piece = 0; piece < schedule_.data_pieces(); ++piece) totals_.push_back(Total(piece));
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (schedule_.operation == Operation::kBarrier) TUTTI_RETURN_IF_ERROR(CheckBarrier(rank));
      for (int piece = 0; piece < schedule_.data_pieces(); ++piece) {
        const Contents::Ptr promised = Promised(rank, piece);
        if (promised == nullptr || Contents::Equal(promised, At(rank, piece))) continue;
        return FailedPrecondition("rank {} ends with {} in piece {}, expected {}{}", rank,
                                  Contents::Describe(At(rank, piece), schedule_.ranks), piece,
                                  Contents::Describe(promised, schedule_.ranks),
                                  LastWriter(rank, piece));
      }
    }
    return absl::OkStatus();
  }

  std::string LastWriter(int rank, int piece) const {
    const std::vector<Step>& steps = schedule_.steps[size_t(rank)];
    for (size_t i = steps.size(); i-- > 0;) {
      if (TouchedBy(steps[i]).write == piece) {
        return "; written last by " + Describe(schedule_, rank, int(i));
      }
    }
    return "; none of its own steps writes it";
  }

  absl::Status CheckBarrier(int rank) const {
    for (int other = 0; other < schedule_.ranks; ++other) {
      if (races_.KnowsStart(rank, other)) continue;
      return FailedPrecondition(
          "rank {} may leave the barrier before rank {} has entered it: no chain of signals leads "
          "from there",
          rank, other);
    }
    return absl::OkStatus();
  }

  const Schedule& schedule_;
  RaceDetector races_;
  std::vector<int32_t> contributors_;
  std::vector<bool> contributes_;      // per rank
  std::vector<Contents::Ptr> cells_;   // per rank and piece
  std::vector<Contents::Ptr> totals_;  // per data piece
  absl::Status status_;
};

}  // namespace

absl::Status Verify(const Schedule& schedule) {
  TUTTI_RETURN_IF_ERROR(CheckSchedule(schedule));
  if (int64_t{schedule.ranks} * schedule.pieces() > kMaxCells) {
    return FailedPrecondition(
        "{} ranks with {} pieces each are too many to verify, expected at most {} in all",
        schedule.ranks, schedule.pieces(), kMaxCells);
  }
  TUTTI_RETURN_IF_ERROR(CheckStatically(schedule));
  return Verifier(schedule).Run();
}

}  // namespace tutti::collective
