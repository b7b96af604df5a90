#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// A step of a Program: a Step of the schedule with everything found out beforehand.
struct ProgramStep {
  StepKind kind;
  bool opening = false;  // a signal that the greeting of the operation says already
  bool rides = false;  // a send that can go with the greeting: the first to its peer, at the start
  int32_t peer = -1;   // rank in the group
  int32_t piece = -1;
  int32_t source = -1;
  int32_t set = -1;
  uint32_t message = 0;          // its number among the messages to (or from) this peer
  uint32_t waits = 0;            // how many earlier steps it waits for
  uint32_t first_dependent = 0;  // the steps that wait for it, in Program::dependents
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
struct Program {
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
  // or is touched by. Every one of them gets a greeting, with or without a signal in it.
  struct Peer {
    int32_t rank;
    bool signalled;  // the greeting is also the first signal
    int32_t rider;   // the send that rides with it, or -1
  };
  std::vector<Peer> peers;
  std::vector<PieceUse> uses;  // per piece

  bool touches_memory = false;  // some rank loads from or stores into another's memory
  // All data moves that way, and everybody has to do with everybody: it can be run for one part of
  // the data after the other, and all ranks know from the greetings alone whether to do so.
  bool windowed = false;
  // An all-reduce in which every rank begins with sending all its data to every other, and sends
  // nothing else: where the data is short, the greetings bring all there is to add up.
  bool one_round = false;
  // Every sum is made at one go out of everybody's data, so a mean can be scaled right there.
  bool sums_at_once = false;
  // What travels can be rounded for the journey, and all ranks still end with the same bits: either
  // nobody sums what it also sends, or it rounds it for itself before it starts, which takes data
  // that is sent as the caller gave it. False where nothing travels.
  bool may_round = false;
  std::vector<int32_t> rounds_own;  // the pieces that this rank rounds for itself

  int data_pieces() const { return chunks * segments; }
};

// True for operations that make sums: all-reduce, reduce, reduce-scatter.
bool IsReduction(Operation operation);

// REQUIRES: Verify(schedule) is OK, 0 <= rank < schedule.ranks.
std::unique_ptr<const Program> MakeProgram(const Schedule& schedule, int rank);

}  // namespace tutti::collective
