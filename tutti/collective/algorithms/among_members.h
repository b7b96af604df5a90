#pragma once

#include <span>

#include "tutti/collective/algorithms/draft.h"

// The two halves of an all-reduce, among any of the ranks, as ring and halving-doubling and
// hierarchical use them. `members` are ranks in the order of the circle; member i is to end with,
// or brings, chunk first_chunk + i, and all others of the members' chunks move likewise.
namespace tutti::collective {

// Around the ring of members: 2(n-1) rounds in all. `direction` is 1 or -1: to the next or to the
// previous member.
void AddRingReduceScatter(Draft& draft, std::span<const int> members, int first_chunk,
                          int direction);
void AddRingAllGather(Draft& draft, std::span<const int> members, int first_chunk, int direction);

// With halved and doubled distances: 2 ceil(log2 n) rounds in all.
void AddHalvingReduceScatter(Draft& draft, std::span<const int> members, int first_chunk);
void AddDoublingAllGather(Draft& draft, std::span<const int> members, int first_chunk);

// A barrier among the members: ceil(log2 n) rounds of signals.
void AddDissemination(Draft& draft, std::span<const int> members);

}  // namespace tutti::collective
