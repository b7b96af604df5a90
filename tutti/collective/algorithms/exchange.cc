// exchange: one round, everybody talks to everybody.
//
// The one-shot all-reduce, for data so short that only the number of rounds counts. Every rank
// sends all its data to every other rank, and sums what it received, in scratch, in rank order:
//
//               rank 0              rank 1              rank 2
//   has         a                   b                   c
//   receives    [b] [c]             [a] [c]             [a] [b]            into scratch
//   adds up     a + [b] + [c]       [a] + b + [c]       [a] + [b] + c
//   in          a                   [a], copied to b    [a], copied to c
//
// One round; every rank sends and receives (N-1)K, and needs as much scratch. All add in the same
// order, so all hold the same bits although each did it for itself. It wins up to some hundred
// bytes, and for two ranks, where it moves no more than the others do, up to where the reduction
// of all the data on both ranks costs more than a second round.
//
// The other operations work the same way with the data that they need to send: all in one round,
// root to all or all to root. A rank starts with the rank above it, so that not all send to rank 0
// first. Only the barrier has rounds (dissemination): in round k a rank signals the rank 2^k above
// it and awaits the one 2^k below; after ceil(log2 N) rounds every rank has a signal, directly or
// through others, from every rank. Because exchange works over any link and does every operation,
// it is also the fallback where no other algorithm can do an operation.
#include <algorithm>

#include "tutti/collective/algorithms/among_members.h"
#include "tutti/collective/algorithms/catalogue.h"

namespace tutti::collective {
namespace {

bool Supports(Operation) { return true; }

// A scratch piece, as large as data piece `like`, for what each of the others sends.
std::vector<int> AddScratchPerPeer(Draft& draft, int like) {
  std::vector<int> scratch;
  for (int i = 0; i + 1 < draft.ranks(); ++i) scratch.push_back(draft.AddScratch(like));
  return scratch;
}

// `rank` gets the sum of `piece` over all ranks, which is added up in rank order: in the scratch
// piece of rank 0's data, or in place on rank 0 itself. The others have sent, or will.
void AddSum(Draft& draft, int rank, int piece, const std::vector<int>& scratch) {
  const auto place = [&](int peer) {
    return peer == rank ? piece : scratch[size_t(peer < rank ? peer : peer - 1)];
  };
  for (int distance = 1; distance < draft.ranks(); ++distance) {
    const int peer = draft.Around(rank, -distance);
    draft.Receive(rank, peer, place(peer));
  }
  for (int peer = 1; peer < draft.ranks(); ++peer) draft.Reduce(rank, place(0), place(peer));
  if (rank != 0) draft.Copy(rank, piece, place(0));
}

// Everybody to everybody: `leaving(rank, peer)` is the piece that rank sends to peer.
template <typename Leaving>
void AddSends(Draft& draft, const Leaving& leaving) {
  for (int rank = 0; rank < draft.ranks(); ++rank) {
    for (int distance = 1; distance < draft.ranks(); ++distance) {
      const int peer = draft.Around(rank, distance);
      draft.Send(rank, peer, leaving(rank, peer));
    }
  }
}

void AddAllReduce(Draft& draft) {
  const std::vector<int> scratch = AddScratchPerPeer(draft, 0);
  AddSends(draft, [](int, int) { return 0; });
  for (int rank = 0; rank < draft.ranks(); ++rank) AddSum(draft, rank, 0, scratch);
}

void AddReduceScatter(Draft& draft) {
  const std::vector<int> scratch = AddScratchPerPeer(draft, 0);  // all chunks are equally long
  AddSends(draft, [](int, int peer) { return peer; });
  for (int rank = 0; rank < draft.ranks(); ++rank) AddSum(draft, rank, rank, scratch);
}

void AddReduce(Draft& draft) {
  const std::vector<int> scratch = AddScratchPerPeer(draft, 0);
  for (int rank = 0; rank < draft.ranks(); ++rank) {
    if (rank != draft.root()) draft.Send(rank, draft.root(), 0);
  }
  AddSum(draft, draft.root(), 0, scratch);
}

void AddAllGather(Draft& draft) {
  AddSends(draft, [](int rank, int) { return rank; });
  for (int rank = 0; rank < draft.ranks(); ++rank) {
    for (int distance = 1; distance < draft.ranks(); ++distance) {
      const int peer = draft.Around(rank, -distance);
      draft.Receive(rank, peer, peer);
    }
  }
}

void AddAllToAll(Draft& draft) {
  AddSends(draft, [](int, int peer) { return peer; });
  for (int rank = 0; rank < draft.ranks(); ++rank) {
    for (int distance = 1; distance < draft.ranks(); ++distance) {
      const int peer = draft.Around(rank, -distance);
      draft.Receive(rank, peer, draft.ranks() + peer);
    }
    draft.Copy(rank, draft.ranks() + rank, rank);
  }
}

void AddRootToAll(Draft& draft, bool own_chunks) {
  for (int distance = 1; distance < draft.ranks(); ++distance) {
    const int peer = draft.Around(draft.root(), distance);
    draft.Move(draft.root(), peer, own_chunks ? peer : 0);
  }
}

void AddGather(Draft& draft) {
  for (int distance = 1; distance < draft.ranks(); ++distance) {
    const int peer = draft.Around(draft.root(), distance);
    draft.Move(peer, draft.root(), peer);
  }
}

int ChunksFor(const Request& request) {
  switch (request.operation) {
    case Operation::kAllReduce:
    case Operation::kReduce:
    case Operation::kBroadcast:
    case Operation::kBarrier:
      return 1;
    case Operation::kAllToAll:
      return 2 * request.ranks;
    default:
      return request.ranks;
  }
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  Draft draft(kExchange.name, request, ChunksFor(request), 1);
  switch (request.operation) {
    case Operation::kAllReduce:
      AddAllReduce(draft);
      break;
    case Operation::kReduceScatter:
      AddReduceScatter(draft);
      break;
    case Operation::kReduce:
      AddReduce(draft);
      break;
    case Operation::kAllGather:
      AddAllGather(draft);
      break;
    case Operation::kAllToAll:
      AddAllToAll(draft);
      break;
    case Operation::kBroadcast:
      AddRootToAll(draft, false);
      break;
    case Operation::kScatter:
      AddRootToAll(draft, true);
      break;
    case Operation::kGather:
      AddGather(draft);
      break;
    case Operation::kBarrier:
      AddDissemination(draft, RanksUpTo(request.ranks));
      break;
  }
  return std::move(draft).Take();
}

}  // namespace

void AddDissemination(Draft& draft, std::span<const int> members) {
  const int n = int(members.size());
  for (int distance = 1; distance < n; distance *= 2) {
    for (int member = 0; member < n; ++member) {
      draft.Signal(members[size_t(member)], members[size_t((member + distance) % n)]);
      draft.Await(members[size_t(member)], members[size_t((member + n - distance) % n)]);
    }
  }
}

const Algorithm kExchange = {
    .name = "exchange",
    .summary = "everybody sends to everybody, in one round",
    .needs_memory_links = false,
    .supports = Supports,
    .make = Make,
};

}  // namespace tutti::collective
