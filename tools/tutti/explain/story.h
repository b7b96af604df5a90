#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::tools {

// What a piece of a rank's memory holds: of which ranks' data it is the sum.
struct Holding {
  struct Term {
    int32_t rank;   // whose data
    int32_t piece;  // which piece of it
    bool operator==(const Term&) const = default;
    auto operator<=>(const Term&) const = default;
  };
  std::vector<Term> terms;     // in ascending order; empty: nothing that counts
  std::vector<double> values;  // the numbers themselves, where there are any
};

// Something that moves in a round.
struct Move {
  enum class Kind { kStore, kAdd };
  int32_t from;
  int32_t to;      // the same rank: within its memory
  int32_t source;  // piece of `from`
  int32_t target;  // piece of `to`
  Kind kind;
  bool by_memory;  // loaded or stored, not sent
};

// One round: what moves, and what every rank holds afterwards.
struct Round {
  std::vector<Move> moves;
  std::vector<std::vector<Holding>> memory;  // [rank][piece]
};

// A schedule told round by round; rounds[0] is the start, without moves.
struct Story {
  collective::Schedule schedule;
  std::vector<Round> rounds;
  int32_t rounds_with_signals = 0;  // as many as rounds, or more where signals take some
  bool has_values = false;
};

inline constexpr int64_t kMaxCells = 200'000;  // rounds x ranks x pieces

// Follows the schedule. `values` has the numbers of each rank: a whole vector of equal length in
// all-reduce, reduce, reduce-scatter, broadcast, scatter (where only the root's count) and
// all-to-all; a rank's own chunk in gather and all-gather. It may be empty. Vectors that
// do not divide evenly are cut as evenly as possible.
//
// REQUIRES: the schedule is valid. FAILED_PRECONDITION if it deadlocks; RESOURCE_EXHAUSTED if there
// is more to tell than anybody would read (kMaxCells).
absl::StatusOr<Story> TellStory(collective::Schedule schedule,
                                const std::vector<std::vector<double>>& values);

// "2,4,6/1,2,3/4,8,12": a vector per rank. INVALID_ARGUMENT unless there is one for each of `ranks`
// ranks, all equally long and of at least one number. With ranks == 0 any number of them will do.
absl::StatusOr<std::vector<std::vector<double>>> ParseValues(std::string_view text, int ranks);

// "chunk 2"; "chunk 2.1" where chunks are cut; "output 2" for what all-to-all makes; "scratch 0".
std::string NameOfPiece(const collective::Schedule& schedule, int piece);
// The same for the head of a column: "2", "2.1", "out 2", "scratch 0".
std::string ShortNameOfPiece(const collective::Schedule& schedule, int piece);

// What a rank moves in all the rounds, in units of the whole data.
struct Traffic {
  double sent = 0;
  double received = 0;
  int64_t messages = 0;  // sent
  double by_memory = 0;  // loaded from peers' memory and stored there
};
std::vector<Traffic> TrafficOf(const Story& story);

// True where the holding has the contribution of everybody whose data counts.
bool IsComplete(const collective::Schedule& schedule, const Holding& holding);

// The holding as text: its numbers if there are any; else which ranks' data are in it: "0·2·", a
// digit for each rank that is in it, or "3/12" for more than 10 ranks. Data of another chunk than
// the place it lies in carries its name: "2:1" is chunk 1 of rank 2.
std::string ToText(const Story& story, int piece, const Holding& holding);

}  // namespace tutti::tools
