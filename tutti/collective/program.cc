// Compiles one rank's steps.
//
// The order rules of a schedule (see schedule.h) become edges between steps. Written down pair by
// pair there could be n * n of them; most follow from others:
//
//   - Everything behind an await waits for it, the next await included. So a step needs an edge
//     from the last await before it only.
//   - A signal waits for everything before it, the signal before it included. So a step needs an
//     edge to the first signal behind it only.
//   - A reader of a piece waits for the last writer; a writer waits for the last writer and for the
//     readers since. Older ones are waited for by those.
#include "tutti/collective/program.h"

#include <algorithm>
#include <set>

namespace tutti::collective {
namespace {

bool IsMemoryStep(StepKind kind) {
  return kind == StepKind::kReduceFrom || kind == StepKind::kStoreTo ||
         kind == StepKind::kReduceToAll;
}

bool Contains(const std::vector<int32_t>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// Collects the edges of one rank's list, step by step.
class Edges {
 public:
  explicit Edges(const Schedule& schedule)
      : last_writer_(schedule.pieces(), -1), readers_(schedule.pieces()) {}

  // The earlier steps that step `index` has an edge from.
  const std::set<uint32_t>& Add(uint32_t index, const Step& step) {
    from_.clear();
    if (last_await_ >= 0) from_.insert(last_await_);
    const Touched touched = TouchedBy(step);
    for (int piece : {touched.read, touched.also_read}) {
      if (piece >= 0 && last_writer_[piece] >= 0) from_.insert(last_writer_[piece]);
    }
    if (touched.write >= 0) {
      if (last_writer_[touched.write] >= 0) from_.insert(last_writer_[touched.write]);
      from_.insert(readers_[touched.write].begin(), readers_[touched.write].end());
    }
    if (step.kind == StepKind::kSignal) {
      for (uint32_t i = first_unsignalled_; i < index; ++i) from_.insert(i);
      first_unsignalled_ = index;
    }
    for (int piece : {touched.read, touched.also_read}) {
      if (piece >= 0) readers_[piece].push_back(index);
    }
    if (touched.write >= 0) {
      readers_[touched.write].clear();
      last_writer_[touched.write] = static_cast<int64_t>(index);
    }
    if (step.kind == StepKind::kAwait) last_await_ = static_cast<int64_t>(index);
    return from_;
  }

 private:
  int64_t last_await_ = -1;
  uint32_t first_unsignalled_ = 0;
  std::vector<int64_t> last_writer_;
  std::vector<std::vector<uint32_t>> readers_;  // since the last write
  std::set<uint32_t> from_;
};

void AddSteps(const Schedule& schedule, int rank, Program* program) {
  const std::vector<Step>& list = schedule.steps[rank];
  std::vector<std::vector<uint32_t>> dependents(list.size());
  std::vector<uint32_t> sent(schedule.ranks, 0), received(schedule.ranks, 0);
  Edges edges(schedule);
  bool opening = true;
  std::set<int> signalled;
  for (uint32_t i = 0; i < list.size(); ++i) {
    const Step& step = list[i];
    ProgramStep out{.kind = step.kind,
                    .peer = step.peer,
                    .piece = step.piece,
                    .source = step.source,
                    .set = step.set};
    opening = opening && step.kind == StepKind::kSignal;
    if (opening) out.opening = signalled.insert(step.peer).second;
    if (step.kind == StepKind::kSend) out.message = sent[step.peer]++;
    if (step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce) {
      out.message = received[step.peer]++;
    }
    for (uint32_t from : edges.Add(i, step)) {
      dependents[from].push_back(i);
      ++out.waits;
    }
    if (out.waits == 0) program->first.push_back(i);
    program->steps.push_back(out);
  }
  for (uint32_t i = 0; i < list.size(); ++i) {
    program->steps[i].first_dependent = static_cast<uint32_t>(program->dependents.size());
    program->steps[i].dependents = static_cast<uint32_t>(dependents[i].size());
    program->dependents.insert(program->dependents.end(), dependents[i].begin(),
                               dependents[i].end());
  }
}

void AddPeers(const Schedule& schedule, int rank, Program* program) {
  std::set<int> peers;
  for (int r = 0; r < schedule.ranks; ++r) {
    for (const Step& step : schedule.steps[r]) {
      if (r == rank && step.peer >= 0) peers.insert(step.peer);
      if (!IsMemoryStep(step.kind)) continue;
      const std::vector<int32_t>& set = schedule.sets[step.set];
      if (r == rank) peers.insert(set.begin(), set.end());
      if (Contains(set, rank)) peers.insert(r);
    }
  }
  peers.erase(rank);
  for (int peer : peers) {
    const bool signalled =
        std::any_of(program->steps.begin(), program->steps.end(),
                    [peer](const ProgramStep& step) { return step.opening && step.peer == peer; });
    program->peers.push_back({peer, signalled});
  }
}

void AddUses(const Schedule& schedule, int rank, Program* program) {
  program->uses.resize(schedule.pieces());
  std::vector<bool> written(schedule.data_pieces(), false);
  for (const Step& step : schedule.steps[rank]) {
    const Touched touched = TouchedBy(step);
    for (int piece : {touched.read, touched.also_read}) {
      if (piece >= 0 && piece < schedule.data_pieces() && !written[piece]) {
        program->uses[piece].starts_read = true;
      }
    }
    if (touched.write >= 0 && touched.write < schedule.data_pieces()) {
      written[touched.write] = true;
      program->uses[touched.write].own_writes = true;
    }
  }
  for (int r = 0; r < schedule.ranks; ++r) {
    for (const Step& step : schedule.steps[r]) {
      if (r == rank || !IsMemoryStep(step.kind) || !Contains(schedule.sets[step.set], rank)) {
        continue;
      }
      PieceUse& use = program->uses[step.piece];
      if (step.kind != StepKind::kStoreTo) use.peers_read = true;
      if (step.kind != StepKind::kReduceFrom) use.peers_write = true;
    }
  }
}

// What holds for the schedule as a whole, so that all ranks find the same.
void AddTraits(const Schedule& schedule, Program* program) {
  bool messages = false;
  bool reaches_all = true;
  program->sums_at_once = true;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::vector<bool> sent(schedule.pieces(), false);
    bool reaches = false;
    for (const Step& step : schedule.steps[rank]) {
      const bool memory = IsMemoryStep(step.kind);
      const Touched touched = TouchedBy(step);
      program->touches_memory |= memory;
      messages |= step.kind == StepKind::kSend;
      reaches |= memory && schedule.sets[step.set].size() == static_cast<size_t>(schedule.ranks);
      if (step.kind == StepKind::kReduce || step.kind == StepKind::kReceiveReduce) {
        program->sums_at_once = false;
      }
      if (memory && step.kind != StepKind::kStoreTo &&
          schedule.sets[step.set].size() != static_cast<size_t>(program->contributors)) {
        program->sums_at_once = false;
      }
      if (step.kind == StepKind::kSend) {
        sent[step.piece] = true;
        continue;
      }
      for (int piece : {touched.read, touched.also_read}) {
        if (piece >= 0 && sent[piece] && !memory) program->may_round = false;
      }
      if (touched.write >= 0) sent[touched.write] = false;
    }
    reaches_all &= reaches;
  }
  program->windowed = program->touches_memory && !messages &&
                      schedule.operation == Operation::kAllReduce && reaches_all;
}

}  // namespace

bool IsReduction(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

std::unique_ptr<const Program> MakeProgram(const Schedule& schedule, int rank) {
  auto program = std::make_unique<Program>();
  program->algorithm = schedule.algorithm;
  program->operation = schedule.operation;
  program->rank = rank;
  program->ranks = schedule.ranks;
  program->chunks = schedule.chunks;
  program->segments = schedule.segments;
  program->root = schedule.root;
  program->contributors = schedule.contributors.empty()
                              ? schedule.ranks
                              : static_cast<int>(schedule.contributors.size());
  program->scratch = schedule.scratch;
  program->sets = schedule.sets;
  AddSteps(schedule, rank, program.get());
  AddPeers(schedule, rank, program.get());
  AddUses(schedule, rank, program.get());
  AddTraits(schedule, program.get());
  return program;
}

}  // namespace tutti::collective
