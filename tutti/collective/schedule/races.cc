#include "tutti/collective/schedule/races.h"

#include <algorithm>

#include "tutti/base/status.h"
#include "tutti/collective/schedule/execute.h"

namespace tutti::collective {
namespace {

bool IsMemoryStep(StepKind kind) {
  return kind == StepKind::kReduceFrom || kind == StepKind::kStoreTo ||
         kind == StepKind::kReduceToAll;
}

}  // namespace

RaceDetector::RaceDetector(const Schedule& schedule)
    : schedule_(schedule),
      ranks_(schedule.ranks),
      pieces_(schedule.pieces()),
      clocks_(size_t(schedule.ranks) * size_t(schedule.ranks), kStart),
      snapshots_(size_t(schedule.ranks)) {
  FindCells();
}

void RaceDetector::FindCells() {
  for (int rank = 0; rank < ranks_; ++rank) {
    for (const Step& step : schedule_.steps[size_t(rank)]) {
      if (!IsMemoryStep(step.kind)) continue;
      for (const int32_t owner : schedule_.sets[size_t(step.set)]) {
        if (owner != rank) cells_.try_emplace(CellOf(owner, step.piece), Cell{{owner, kStart}, {}});
      }
    }
  }
}

void RaceDetector::Started(int rank, int step_number) {
  const Step& step = schedule_.steps[size_t(rank)][size_t(step_number)];
  const Access access = {rank, step_number};
  if (step.kind == StepKind::kSignal) {
    auto& snapshot = snapshots_[size_t(rank)];
    if (snapshot == nullptr) {
      snapshot = std::make_shared<const std::vector<int32_t>>(Clock(rank), Clock(rank) + ranks_);
    }
    told_[(int64_t{rank} << 32) | step_number] = snapshot;
    return;
  }
  if (IsMemoryStep(step.kind)) {
    for (const int32_t owner : schedule_.sets[size_t(step.set)]) {
      if (owner != rank) {
        Touch(owner, step.piece, access, step.kind != StepKind::kReduceFrom);
      }
    }
  }
  const Touched touched = TouchedBy(step);
  if (touched.read >= 0) Touch(rank, touched.read, access, false);
  if (touched.also_read >= 0) Touch(rank, touched.also_read, access, false);
  if (touched.write >= 0) Touch(rank, touched.write, access, true);
}

void RaceDetector::Awaited(int rank, int from, int signal) {
  const auto told = told_.find((int64_t{from} << 32) | signal);
  int32_t* clock = Clock(rank);
  const std::vector<int32_t>& other = *told->second;
  for (int i = 0; i < ranks_; ++i) clock[i] = std::max(clock[i], other[size_t(i)]);
  clock[from] = std::max(clock[from], int32_t(signal));
  snapshots_[size_t(rank)] = nullptr;
  told_.erase(told);
}

// It is enough to look at the last write and at the reads since: whatever lies before them was
// found to happen before them.
void RaceDetector::Touch(int owner, int piece, Access access, bool writes) {
  if (!status_.ok()) return;
  const auto found = cells_.find(CellOf(owner, piece));
  if (found == cells_.end()) return;  // touched by its owner alone, whose steps are in order
  Cell& cell = found->second;
  if (!Ordered(owner, piece, cell.write, access)) Report(owner, piece, cell.write, access);
  if (!writes) {
    cell.reads.push_back(access);
    return;
  }
  for (const Access& read : cell.reads) {
    if (!Ordered(owner, piece, read, access)) Report(owner, piece, read, access);
  }
  cell.write = access;
  cell.reads.clear();
}

bool RaceDetector::Ordered(int owner, int piece, Access earlier, Access later) const {
  if (earlier.step < Clock(later.rank)[earlier.rank]) return true;
  if (earlier.rank != later.rank) return false;
  // Two steps that touch one piece of their own rank, one of them writing, are in order; so is one
  // step with itself.
  return owner == later.rank || earlier.step == later.step ||
         OwnStepsOrdered(piece, earlier, later);
}

// Two steps of one rank in the memory of another. Both touch the same piece of their own rank too,
// so they are in order if one of them, or one between them, writes that.
bool RaceDetector::OwnStepsOrdered(int piece, Access earlier, Access later) const {
  const std::vector<Step>& steps = schedule_.steps[size_t(later.rank)];
  for (int i = earlier.step; i <= later.step; ++i) {
    if (TouchedBy(steps[size_t(i)]).write == piece) return true;
  }
  return false;
}

void RaceDetector::Report(int owner, int piece, Access earlier, Access later) {
  if (!status_.ok()) return;
  const std::string late = Describe(schedule_, later.rank, later.step);
  if (earlier.step == kStart) {
    status_ = FailedPrecondition(
        "race: {} may touch piece {} of rank {} before that rank has started: it awaits no signal "
        "from there",
        late, piece, owner);
    return;
  }
  status_ = FailedPrecondition(
      "race: {} and {} may touch piece {} of rank {} at the same time: no signal and await put "
      "them in order",
      Describe(schedule_, earlier.rank, earlier.step), late, piece, owner);
}

void RaceDetector::Finish() {
  for (const auto& [number, cell] : cells_) {
    if (!status_.ok()) return;
    const int owner = int(number / pieces_);
    std::vector<Access> accesses = cell.reads;
    accesses.push_back(cell.write);
    for (const Access& access : accesses) {
      if (access.rank == owner || access.step < Clock(owner)[access.rank]) continue;
      status_ = FailedPrecondition(
          "race: {} may touch piece {} of rank {} after that rank has finished: its last await "
          "does not follow",
          Describe(schedule_, access.rank, access.step), number % pieces_, owner);
    }
  }
}

}  // namespace tutti::collective
