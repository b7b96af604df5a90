#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// A step of a RankProgram: a Step of the schedule with everything found out beforehand.
struct ProgramStep {
  StepKind kind;
  bool opening = false;  // a signal that the envelope of the operation says already
  bool piggybacked =
      false;          // a send that can go with the envelope: the first to its peer, at the start
  int32_t peer = -1;  // rank in the group
  int32_t piece = -1;
  int32_t source = -1;
  int32_t set = -1;
  uint32_t message = 0;          // its number among the messages to (or from) this peer
  uint32_t waits = 0;            // how many earlier steps it waits for
  uint32_t first_dependent = 0;  // the steps that wait for it, in RankProgram::dependents
  uint32_t dependents = 0;
};

// What the engine needs to know of a piece of this rank's data. A piece that no peer touches can
// stay where the caller has it, whatever memory that is.
struct PieceUse {
  bool peers_read = false;
  bool peers_write = false;
  bool starts_read = false;  // its first use by anybody reads what the caller put there
  bool own_writes = false;
  bool touched() const { return peers_read || peers_write; }
};

// One rank's part of a schedule, compiled once and run many times: running a step is O(1).
// Immutable.
struct RankProgram {
  std::string algorithm;
  Operation operation = Operation::kAllReduce;
  int rank = 0;
  int ranks = 1;
  int chunks = 1;
  int segments = 1;
  int root = 0;
  int contributors = 1;  // how many ranks' data counts
  std::vector<int32_t> scratch;
  std::vector<std::vector<int32_t>> sets;

  std::vector<ProgramStep> steps;
  std::vector<uint32_t> dependents;
  std::vector<uint32_t> first;  // the steps that wait for nothing

  // The ranks that this one has to do with: it sends to, receives from, or touches the memory of,
  // or is touched by. Every one of them gets an envelope, with or without a signal in it.
  struct Peer {
    int32_t rank;
    bool signalled;     // the envelope is also the first signal
    int32_t piggyback;  // the send that goes with it, or -1
  };
  std::vector<Peer> peers;
  std::vector<PieceUse> uses;  // per piece

  bool touches_memory = false;  // some rank loads from or stores into another's memory
  // All data moves through memory links, and every rank is a peer of every other. The program can
  // then run window by window, and all ranks know from the envelopes alone whether to do so.
  bool windowed = false;
  // A one-shot all-reduce: every rank starts by sending all its data to every other rank, and sends
  // nothing else. If the data is short, the envelopes carry all of it.
  bool one_round = false;
  // Every sum is computed in one step from the data of all ranks, so a mean can be scaled in that
  // step.
  bool sums_at_once = false;
  // Messages can be rounded to the wire type and all ranks still end with the same bits: either no
  // rank sums data that it also sends, or it rounds that data for itself before it starts, which
  // requires that the data is sent as the caller gave it. False if nothing is sent.
  bool may_round = false;
  std::vector<int32_t> rounds_own;  // the pieces that this rank rounds for itself

  int data_pieces() const { return chunks * segments; }
};

// True for operations that make sums: all-reduce, reduce, reduce-scatter.
bool IsReduction(Operation operation);

// REQUIRES: Verify(schedule) is OK, 0 <= rank < schedule.ranks.
std::unique_ptr<const RankProgram> MakeProgram(const Schedule& schedule, int rank);

}  // namespace tutti::collective
