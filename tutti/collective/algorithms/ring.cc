// ring: every rank talks to its two neighbours only.
//
// All-reduce cuts the data into N chunks and sends them around a circle of N ranks, twice. The
// first time (reduce-scatter) every rank adds its own data to the chunk that comes by, and passes
// it on: after N-1 rounds each chunk has been everywhere, and rank r holds the sum of chunk r. The
// second time (all-gather) the sums go around and are kept. For three ranks, to the right:
//
//                 rank 0             rank 1             rank 2
//   start       a0  a1  a2         b0  b1  b2         c0  c1  c2
//   round 1     a0 a1+c1 a2        b0  b1 b2+a2      c0+b0 c1  c2       0 sends chunk 2 to 1,
//                                                                       1 sends 0, 2 sends 1
//   round 2   *S0* a1+c1 a2        b0 *S1* b2+a2     c0+b0 c1 *S2*      2 sends 0 to rank 0, ...
//   round 3     S0  a1+c1 S2       S0  S1  b2+a2     c0+b0 S1  S2       0 sends S0 to 1, ...
//   round 4     S0  S1  S2         S0  S1  S2         S0  S1  S2
//
// 2(N-1) rounds; every rank sends and receives 2(N-1)/N K, whatever N: no all-reduce can do with
// less, and all links are busy in both directions all the time. Each sum is made once, along the
// circle, so all ranks hold the same bits. It wins for long data on links where bytes are what
// costs; for short data its rounds are what costs.
//
// A chunk is cut into segments, and the lists go by round and then by segment: while a segment is
// added up, the next one is on its way, and the reduction hides behind the transfer. Of each pair
// the receive comes first: it waits for nothing but the sends of its own piece, so it stands ready
// before the neighbour's data comes, while the send behind it waits for the round before.
//
// Reduce-scatter and all-gather are the two halves. Broadcast is a chain that starts at the root
// and reduce one that ends there: the data moves in N x segments pieces, so the chain is full most
// of the time: N-2 + N x segments rounds' worth of pieces, nearly K/B for many.
#include "tutti/collective/algorithms/among_members.h"
#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/algorithms/draft.h"

namespace tutti::collective {
namespace {

bool Supports(Operation operation) {
  switch (operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kBroadcast:
    case Operation::kReduce:
      return true;
    default:
      return false;
  }
}

// The root, its neighbour in the direction, and so on: each passes on what it got.
void AddBroadcast(Draft& draft, int direction) {
  Timetable timetable;
  for (int piece = 0; piece < draft.ranks() * draft.segments(); ++piece) {
    for (int hop = 0; hop + 1 < draft.ranks(); ++hop) {
      const int from = draft.Around(draft.root(), direction * hop);
      timetable.Move(piece + hop, from, draft.Around(from, direction), piece);
    }
  }
  timetable.AddTo(draft);
}

// Starts at the root's neighbour, so that the last one to add is the root.
void AddReduce(Draft& draft, int direction) {
  Timetable timetable;
  for (int piece = 0; piece < draft.ranks() * draft.segments(); ++piece) {
    for (int hop = 1; hop < draft.ranks(); ++hop) {
      const int from = draft.Around(draft.root(), direction * hop);
      timetable.MoveReduce(piece + hop, from, draft.Around(from, direction), piece);
    }
  }
  timetable.AddTo(draft);
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (!Supports(request.operation)) return NotDone(kRing, request.operation);
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  Draft draft(kRing.name, request, request.ranks, request.segments);
  const int direction = request.leftwards ? -1 : 1;
  const std::vector<int> all = RanksUpTo(request.ranks);
  switch (request.operation) {
    case Operation::kReduceScatter:
      AddRingReduceScatter(draft, all, 0, direction);
      break;
    case Operation::kAllGather:
      AddRingAllGather(draft, all, 0, direction);
      break;
    case Operation::kBroadcast:
      AddBroadcast(draft, direction);
      break;
    case Operation::kReduce:
      AddReduce(draft, direction);
      break;
    default:
      AddRingReduceScatter(draft, all, 0, direction);
      AddRingAllGather(draft, all, 0, direction);
      break;
  }
  return std::move(draft).Take();
}

}  // namespace

void AddRingReduceScatter(Draft& draft, std::span<const int> members, int first_chunk,
                          int direction) {
  const int n = int(members.size());
  const auto around = [n](int member) { return ((member % n) + n) % n; };
  for (int member = 0; member < n; ++member) {
    const int rank = members[size_t(member)];
    const int to = members[size_t(around(member + direction))];
    const int from = members[size_t(around(member - direction))];
    for (int round = 0; round + 1 < n; ++round) {
      const int leaving = first_chunk + around(member - direction * (round + 1));
      const int coming = first_chunk + around(member - direction * (round + 2));
      for (int segment = 0; segment < draft.segments(); ++segment) {
        draft.ReceiveReduce(rank, from, draft.Piece(coming, segment));
        draft.Send(rank, to, draft.Piece(leaving, segment));
      }
    }
  }
}

void AddRingAllGather(Draft& draft, std::span<const int> members, int first_chunk, int direction) {
  const int n = int(members.size());
  const auto around = [n](int member) { return ((member % n) + n) % n; };
  for (int member = 0; member < n; ++member) {
    const int rank = members[size_t(member)];
    const int to = members[size_t(around(member + direction))];
    const int from = members[size_t(around(member - direction))];
    for (int round = 0; round + 1 < n; ++round) {
      const int leaving = first_chunk + around(member - direction * round);
      const int coming = first_chunk + around(member - direction * (round + 1));
      for (int segment = 0; segment < draft.segments(); ++segment) {
        draft.Receive(rank, from, draft.Piece(coming, segment));
        draft.Send(rank, to, draft.Piece(leaving, segment));
      }
    }
  }
}

const Algorithm kRing = {
    .name = "ring",
    .summary = "chunks go around the circle of ranks: the fewest bytes per link",
    .needs_memory_links = false,
    .supports = Supports,
    .make = Make,
};

}  // namespace tutti::collective
