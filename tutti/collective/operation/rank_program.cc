#include "tutti/collective/operation/rank_program.h"

#include <algorithm>
#include <set>

#include "tutti/base/check.h"
#include "tutti/collective/schedule/step_graph.h"

namespace tutti::collective {
namespace {

bool IsMemoryStep(StepKind kind) {
  return kind == StepKind::kReduceFrom || kind == StepKind::kStoreTo ||
         kind == StepKind::kReduceToAll;
}

bool Contains(const std::vector<int32_t>& ranks, int rank) {
  return std::binary_search(ranks.begin(), ranks.end(), rank);
}

// The edges are those of the StepGraph that begin and end in this rank's list.
void AddSteps(const Schedule& schedule, int rank, RankProgram* program) {
  const auto graph = StepGraph::Make(schedule);
  TUTTI_CHECK(graph.ok());
  int32_t base = 0;  // the graph has the lists of all ranks in one row
  for (int r = 0; r < rank; ++r) base += static_cast<int32_t>(schedule.steps[r].size());
  std::vector<uint32_t> sent(schedule.ranks, 0), received(schedule.ranks, 0);
  bool opening = true;
  std::set<int> signalled;
  for (uint32_t i = 0; i < schedule.steps[rank].size(); ++i) {
    const Step& step = schedule.steps[rank][i];
    const int32_t id = base + static_cast<int32_t>(i);
    ProgramStep out{.kind = step.kind,
                    .peer = step.peer,
                    .piece = step.piece,
                    .source = step.source,
                    .set = step.set,
                    .waits = static_cast<uint32_t>(graph->node(id).waits),
                    .first_dependent = static_cast<uint32_t>(program->dependents.size())};
    opening = opening && step.kind == StepKind::kSignal;
    if (opening) out.opening = signalled.insert(step.peer).second;
    if (step.kind == StepKind::kSend) {
      out.message = sent[step.peer]++;
      out.piggybacked = out.message == 0 && out.waits == 0;
    }
    if (step.kind == StepKind::kReceive || step.kind == StepKind::kReceiveReduce) {
      out.message = received[step.peer]++;
    }
    for (int32_t next : graph->Next(id)) {
      program->dependents.push_back(static_cast<uint32_t>(next - base));
      ++out.dependents;
    }
    if (out.waits == 0) program->first.push_back(i);
    program->steps.push_back(out);
  }
}

void AddPeers(const Schedule& schedule, int rank, RankProgram* program) {
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
    const auto piggyback = std::find_if(
        program->steps.begin(), program->steps.end(),
        [peer](const ProgramStep& step) { return step.piggybacked && step.peer == peer; });
    program->peers.push_back(
        {.rank = peer,
         .signalled = signalled,
         .piggyback = piggyback == program->steps.end()
                          ? -1
                          : static_cast<int32_t>(piggyback - program->steps.begin())});
  }
}

void AddUses(const Schedule& schedule, int rank, RankProgram* program) {
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

bool IsOneRound(const Schedule& schedule) {
  if (schedule.operation != Operation::kAllReduce || schedule.data_pieces() != 1 ||
      schedule.ranks == 1 || !schedule.contributors.empty()) {
    return false;
  }
  const auto first_sends = static_cast<ptrdiff_t>(schedule.ranks) - 1;
  return std::all_of(schedule.steps.begin(), schedule.steps.end(), [&](const auto& steps) {
    const auto is_send = [](const Step& step) {
      return step.kind == StepKind::kSend && step.piece == 0;
    };
    const auto is_local = [](const Step& step) {
      return step.kind == StepKind::kReceive || step.kind == StepKind::kReduce ||
             step.kind == StepKind::kCopy;
    };
    return std::ssize(steps) >= first_sends &&
           std::all_of(steps.begin(), steps.begin() + first_sends, is_send) &&
           std::all_of(steps.begin() + first_sends, steps.end(), is_local);
  });
}

// What holds for the schedule as a whole, so that all ranks find the same.
void AddTraits(const Schedule& schedule, RankProgram* program) {
  bool messages = false;
  bool reaches_all = true;
  bool may_round = true;
  program->sums_at_once = true;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    std::vector<bool> sent(schedule.pieces(), false);
    std::vector<bool> written(schedule.pieces(), false);
    std::set<int32_t> sums_and_sends;
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
        if (piece < 0 || !sent[piece] || memory) continue;
        sums_and_sends.insert(piece);
        may_round &= !written[piece] && piece < schedule.data_pieces();
      }
      if (touched.write < 0) continue;
      sent[touched.write] = false;
      written[touched.write] = true;
    }
    if (rank == program->rank) {
      program->rounds_own.assign(sums_and_sends.begin(), sums_and_sends.end());
    }
    reaches_all &= reaches;
  }
  program->one_round = IsOneRound(schedule);
  program->may_round = may_round && messages;
  program->windowed = program->touches_memory && !messages &&
                      schedule.operation == Operation::kAllReduce && reaches_all;
}

}  // namespace

bool IsReduction(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kReduceScatter;
}

std::unique_ptr<const RankProgram> MakeProgram(const Schedule& schedule, int rank) {
  auto program = std::make_unique<RankProgram>();
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
