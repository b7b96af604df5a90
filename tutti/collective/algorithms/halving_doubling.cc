// halving-doubling: distances halve on the way in and double on the way out.
//
// Reduce-scatter. Think of a rank's chunks by their distance from it: distance i is chunk r+i
// (around the circle). At first a rank is responsible for all distances 0 to N-1. In each round it
// hands over the farther half: of s distances, those from h = ceil(s/2) to s-1 go to the rank h
// above, for which they are distances 0 to s-h-1, and which adds them to its own. After
// ceil(log2 N) rounds only distance 0 is left: rank r holds the sum of chunk r. A contribution
// moves by the same distances whoever made it, so those of one chunk meet and never part: each
// arrives once. For five ranks, what rank 0 is responsible for:
//
//     distances   0 1 2 3 4
//     round 1     0 1 2 | 3 4 --> rank 3      h = 3; from rank 2 come its 3 4, added to 0 1
//     round 2     0 1 | 2 ------> rank 2      h = 2; from rank 3 comes its 2, added to 0
//     round 3     0 | 1 --------> rank 1      h = 1
//
// All-gather runs the same rounds in reverse: in the round of h a rank sends distances 0 to s-h-1
// to the rank h below, where they are distances h to s-1. An all-reduce runs both in sequence.
//
// 2 ceil(log2 N) rounds and 2(N-1)/N K bytes per rank, both for every N the least that an
// all-reduce of this kind can do with. The textbook version pairs ranks that differ in one bit and
// so needs a power of two; folding the ranks beyond into partners first and unfolding them at the
// end costs two more rounds and moves the whole data twice more over their links, which for 3 or 6
// ranks doubles the time. Sending to one rank and receiving from another, as here, avoids that and
// is no slower where links work in both directions.
//
// It wins for middling data, when the ring's 2(N-1) rounds cost more than sending across the
// network (and not only to neighbours) does. Each sum is made once, so all ranks hold the same
// bits. Sends come before receives in a round: they are what the next rank's round waits for.
#include "tutti/collective/algorithms/among_members.h"
#include "tutti/collective/algorithms/catalogue.h"

namespace tutti::collective {
namespace {

bool Supports(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduceScatter ||
         operation == Operation::kAllGather;
}

// One round among the members: distances [half, all) of each meet distances [0, all - half) of the
// member `half` above it. Inwards they go up and are added; outwards they come down and are kept.
void AddRound(Draft& draft, std::span<const int> members, int first_chunk, int all, bool inwards) {
  const int n = int(members.size());
  const int half = (all + 1) / 2;
  for (int member = 0; member < n; ++member) {
    const int rank = members[size_t(member)];
    const int above = members[size_t((member + half) % n)];
    const int below = members[size_t((member + n - half) % n)];
    const auto each = [&](int begin, int end, const auto& add) {
      for (int distance = begin; distance < end; ++distance) {
        for (int segment = 0; segment < draft.segments(); ++segment) {
          add(draft.Piece(first_chunk + (member + distance) % n, segment));
        }
      }
    };
    if (inwards) {
      each(half, all, [&](int piece) { draft.Send(rank, above, piece); });
      each(0, all - half, [&](int piece) { draft.ReceiveReduce(rank, below, piece); });
    } else {
      each(0, all - half, [&](int piece) { draft.Send(rank, below, piece); });
      each(half, all, [&](int piece) { draft.Receive(rank, above, piece); });
    }
  }
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (!Supports(request.operation)) return NotDone(kHalvingDoubling, request.operation);
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  Draft draft(kHalvingDoubling.name, request, request.ranks, request.segments);
  const std::vector<int> all = RanksUpTo(request.ranks);
  if (request.operation != Operation::kAllGather) AddHalvingReduceScatter(draft, all, 0);
  if (request.operation != Operation::kReduceScatter) AddDoublingAllGather(draft, all, 0);
  return std::move(draft).Take();
}

}  // namespace

void AddHalvingReduceScatter(Draft& draft, std::span<const int> members, int first_chunk) {
  for (int all = int(members.size()); all > 1; all = (all + 1) / 2) {
    AddRound(draft, members, first_chunk, all, true);
  }
}

void AddDoublingAllGather(Draft& draft, std::span<const int> members, int first_chunk) {
  std::vector<int> rounds;
  for (int all = int(members.size()); all > 1; all = (all + 1) / 2) rounds.push_back(all);
  for (size_t i = rounds.size(); i-- > 0;) AddRound(draft, members, first_chunk, rounds[i], false);
}

const Algorithm kHalvingDoubling = {
    .name = "halving-doubling",
    .summary = "distances halve, then double: few rounds and few bytes, for any number of ranks",
    .needs_memory_links = false,
    .supports = Supports,
    .make = Make,
};

}  // namespace tutti::collective
