#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// Watches the execution of a schedule in which ranks load from and store into each other's memory,
// and finds two steps that touch one piece of one rank, one of them writing, although nothing makes
// the one happen before the other. One execution is enough: what is found does not depend on which
// came first in it. The start and the end of a rank count as writes to all of its memory.
//
// Which order there is. A rank's own steps are ordered by the rules of Schedule. Between ranks only
// a signal and its await order anything: all before the signal in its list happens before all
// behind the await in its. That is kept as a vector clock per rank: for every other rank, the last
// of its signals that is known, directly or through others, to have been given.
class RaceDetector {
 public:
  explicit RaceDetector(const Schedule& schedule);

  // In the order of an execution.
  void Started(int rank, int step);
  void Awaited(int rank, int from, int signal);
  // Checks the ends of the ranks.
  void Finish();

  // The first race, FAILED_PRECONDITION, or OK.
  const absl::Status& status() const { return status_; }
  // True if at the end of `rank` it is known that `other` has started.
  bool KnowsStart(int rank, int other) const { return rank == other || Clock(rank)[other] >= 0; }

 private:
  struct Access {
    int32_t rank;
    int32_t step;  // kStart: the start of the rank
  };
  struct Cell {
    Access write;
    std::vector<Access> reads;  // since that write
  };
  static constexpr int32_t kStart = -1;

  const int32_t* Clock(int rank) const { return &clocks_[size_t(rank) * size_t(ranks_)]; }
  int32_t* Clock(int rank) { return &clocks_[size_t(rank) * size_t(ranks_)]; }
  int64_t CellOf(int owner, int piece) const { return int64_t{owner} * pieces_ + piece; }

  void FindCells();
  void Touch(int owner, int piece, Access access, bool writes);
  bool Ordered(int owner, int piece, Access earlier, Access later) const;
  bool OwnStepsOrdered(int piece, Access earlier, Access later) const;
  void Report(int owner, int piece, Access earlier, Access later);

  const Schedule& schedule_;
  const int ranks_;
  const int pieces_;
  std::vector<int32_t> clocks_;               // ranks x ranks
  absl::flat_hash_map<int64_t, Cell> cells_;  // those that others than their owner touch
  // What each signal that is under way told: the sender's clock.
  absl::flat_hash_map<int64_t, std::shared_ptr<const std::vector<int32_t>>> told_;
  std::vector<std::shared_ptr<const std::vector<int32_t>>> snapshots_;  // per rank; null: outdated
  absl::Status status_;
};

}  // namespace tutti::collective
