// direct: every rank works in everybody's memory.
//
// The ranks of one host can load from and store into each other's buffers, so nothing has to be
// sent. This is a two-shot all-reduce (reduce-scatter, then all-gather) in one pass: each rank owns
// one of N chunks, sums it over all buffers, in rank order, and stores the sum back into all of
// them. For three ranks (a, b, c: their data; 0, 1, 2: the chunks):
//
//        rank 0       rank 1       rank 2
//      a0 a1 a2     b0 b1 b2     c0 c1 c2       signal all, await all: the data is there
//       \________________|____________/
//      S0 .. ..     S0 .. ..     S0 .. ..       rank 0: S0 = a0 + b0 + c0, into all three
//      .. S1 ..     .. S1 ..     .. S1 ..       rank 1, at the same time
//      .. .. S2     .. .. S2     .. .. S2       rank 2
//                                               signal all, await all: everybody is done
//
// Three rounds whatever N. Each rank reads N chunks of K/N and writes as many: 2K; the host's
// memory moves 2NK, and no algorithm can do with less, since all N buffers are read and all are
// written. A copy of the sum into a buffer of its own, and from there to the others, would make it
// (3N-1)K. Each element is added up once, by one rank, in rank order: all ranks hold the same bits.
//
// It wins wherever memory can be shared and the data is more than a few cache lines. The signals
// are N(N-1) in each of the two rounds of signals, which only matters for many ranks.
//
// The other operations are the same idea with fewer loads or stores. Where only one rank has
// something (broadcast, scatter) the others load it, all at once, instead of having it stored by
// one. All-to-all is not done: a step names one piece in all memories, and what all-to-all moves
// changes its place.
#include <array>

#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/algorithms/draft.h"

namespace tutti::collective {
namespace {

bool Supports(Operation operation) { return operation != Operation::kAllToAll; }

// The operations in which everybody needs everybody: each rank does `work` on its chunk.
template <typename Work>
void AmongAll(Draft& draft, const Work& work) {
  const std::vector<int> all = RanksUpTo(draft.ranks());
  const int set = draft.AddSet({all.begin(), all.end()});
  draft.SignalAll(all, all);
  for (const int rank : all) work(rank, set);
  draft.SignalAll(all, all);
}

void AddReduce(Draft& draft) {
  const int to_root = draft.AddSet({draft.root()});
  AmongAll(draft, [&](int rank, int set) {
    draft.ReduceFrom(rank, set, rank);
    if (rank != draft.root()) draft.StoreTo(rank, to_root, rank);
  });
}

// The root has it all; every other rank loads its piece: all of it, or its own chunk.
void AddLoadsFromRoot(Draft& draft, bool own_chunk) {
  const std::array root = {draft.root()};
  const std::vector<int> all = RanksUpTo(draft.ranks());
  const int set = draft.AddSet({draft.root()});
  draft.SignalAll(root, all);
  for (const int rank : all) {
    if (rank != draft.root()) draft.ReduceFrom(rank, set, own_chunk ? rank : 0);
  }
  draft.SignalAll(all, root);
}

void AddGather(Draft& draft) {
  const std::array root = {draft.root()};
  const std::vector<int> all = RanksUpTo(draft.ranks());
  draft.SignalAll(all, root);
  for (const int rank : all) {
    if (rank != draft.root()) draft.ReduceFrom(draft.root(), draft.AddSet({rank}), rank);
  }
  draft.SignalAll(root, all);
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (!Supports(request.operation)) return NotDone(kDirect, request.operation);
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const bool whole = request.operation == Operation::kBroadcast ||  //
                     request.operation == Operation::kBarrier;
  Draft draft(kDirect.name, request, whole ? 1 : request.ranks, 1);
  if (request.ranks == 1) return std::move(draft).Take();

  const std::vector<int> all = RanksUpTo(request.ranks);
  switch (request.operation) {
    case Operation::kAllReduce:
      AmongAll(draft, [&](int rank, int set) { draft.ReduceToAll(rank, set, rank); });
      break;
    case Operation::kReduceScatter:
      AmongAll(draft, [&](int rank, int set) { draft.ReduceFrom(rank, set, rank); });
      break;
    case Operation::kAllGather:
      AmongAll(draft, [&](int rank, int set) { draft.StoreTo(rank, set, rank); });
      break;
    case Operation::kReduce:
      AddReduce(draft);
      break;
    case Operation::kBroadcast:
      AddLoadsFromRoot(draft, false);
      break;
    case Operation::kScatter:
      AddLoadsFromRoot(draft, true);
      break;
    case Operation::kGather:
      AddGather(draft);
      break;
    case Operation::kBarrier:
      draft.SignalAll(all, all);
      break;
    case Operation::kAllToAll:
      break;
  }
  return std::move(draft).Take();
}

}  // namespace

const Algorithm kDirect = {
    .name = "direct",
    .summary = "every rank reduces its chunk in everybody's memory",
    .needs_memory_links = true,
    .supports = Supports,
    .make = Make,
};

}  // namespace tutti::collective
