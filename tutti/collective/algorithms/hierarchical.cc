// hierarchical: memory inside the host, messages between hosts.
//
// Ranks of one host reach each other's memory, and share one link to the other hosts. A flat ring
// would not use the one and would waste the other. So an all-reduce is done in three parts, here
// for two hosts with two ranks each (a, b: a half of the data, numbered by rank):
//
//             host A                          host B
//         rank 0    rank 1                rank 2    rank 3
//         a0 b0     a1 b1                 a2 b2     a3 b3
//   1    a0+a1       b0+b1               a2+a3       b2+b3      loads from the neighbour's memory
//   2      Sa  <--------------------------> Sa                  all-reduce among ranks 0 and 2,
//                      Sb <--------------------------> Sb       and among 1 and 3
//   3     Sa Sb      Sa Sb                Sa Sb      Sa Sb      stores into the neighbour's memory
//
// Every rank of a host is the owner of a shard of the data, which it adds up over its host, sums
// with the owners of the same shard on the other hosts, and stores to its host. So all ranks work,
// and between hosts every byte travels as it would between hosts of one rank each: 2(H-1)/H K per
// host in and out, for H hosts, however many ranks they have. Where hosts have different numbers
// of ranks there are as many shards as the smallest has ranks, and the other ranks just give their
// memory. An owner loads K/L from each of the L ranks of its host and stores as much: 2K, as in
// direct.
//
// Between hosts an owner runs the ring, piece by piece, if the data comes in segments, which says
// that it is long; else halving-doubling, which needs fewer rounds. Each piece is added up in the
// host right before it leaves, and stored once it has been passed on, so that the work in memory
// hides behind the link. Each sum is made once, in rank order inside the hosts: all ranks hold the
// same bits. It wins wherever several ranks share a host and there are several hosts.
//
// Broadcast is a chain over the hosts, from the root to the first rank of each, which stores into
// the memory of the others. The barrier gathers signals in the host, goes between the first ranks
// of the hosts as exchange does, and releases the host.
#include <algorithm>
#include <array>
#include <map>

#include "tutti/collective/algorithms/among_members.h"
#include "tutti/collective/algorithms/catalogue.h"

namespace tutti::collective {
namespace {

bool Supports(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kBroadcast ||
         operation == Operation::kBarrier;
}

using Hosts = std::vector<std::vector<int>>;  // the ranks of each, in order of the lowest

Hosts HostsOf(const Request& request) {
  Hosts hosts;
  std::map<int, size_t> known;
  for (int rank = 0; rank < request.ranks; ++rank) {
    const int name = request.hosts.empty() ? 0 : request.hosts[size_t(rank)];
    const auto [entry, is_first] = known.try_emplace(name, hosts.size());
    if (is_first) hosts.emplace_back();
    hosts[entry->second].push_back(rank);
  }
  return hosts;
}

// How many more messages are started before a piece that has arrived is stored: while the store
// waits for one piece, the next ones are on their way.
constexpr size_t kMessagesAhead = 2;

// The last step that writes each piece of `messages`, or the first that sends it if none does: from
// then on it is the result.
std::map<int, size_t> Settled(const std::vector<Step>& messages) {
  std::map<int, size_t> settled;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (TouchedBy(messages[i]).write >= 0) {
      settled[messages[i].piece] = i;
    } else {
      settled.try_emplace(messages[i].piece, i);
    }
  }
  return settled;
}

// Puts the work in memory between the messages that a rank has listed from `begin` on: before a
// piece's first message the sum over the host, if `sums`; behind its last, the stores to the host.
void Weave(Draft& draft, int rank, size_t begin, int set, bool sums) {
  std::vector<Step>& steps = draft.StepsOf(rank);
  const std::vector<Step> messages(steps.begin() + ptrdiff_t(begin), steps.end());
  steps.resize(begin);
  std::map<size_t, int> stored_behind;
  for (const auto& [piece, message] : Settled(messages)) stored_behind[message] = piece;
  std::vector<bool> summed;
  auto next_store = stored_behind.begin();
  for (size_t i = 0; i < messages.size(); ++i) {
    const auto piece = size_t(messages[i].piece);
    summed.resize(std::max(summed.size(), piece + 1));
    if (sums && !summed[piece]) draft.ReduceFrom(rank, set, int(piece));
    summed[piece] = true;
    steps.push_back(messages[i]);
    if (next_store != stored_behind.end() && next_store->first + kMessagesAhead <= i) {
      draft.StoreTo(rank, set, (next_store++)->second);
    }
  }
  for (; next_store != stored_behind.end(); ++next_store) {
    draft.StoreTo(rank, set, next_store->second);
  }
}

void AddAllReduce(Draft& draft, const Hosts& hosts, int shards) {
  const int n_hosts = int(hosts.size());
  std::vector<int> sets;
  std::vector<size_t> begins;  // per rank
  for (const std::vector<int>& host : hosts) {
    draft.SignalAll(host, std::span(host).first(size_t(shards)));
    sets.push_back(draft.AddSet({host.begin(), host.end()}));
  }
  for (int rank = 0; rank < draft.ranks(); ++rank) begins.push_back(draft.StepsOf(rank).size());
  for (int shard = 0; shard < shards; ++shard) {
    std::vector<int> owners;
    for (const std::vector<int>& host : hosts) owners.push_back(host[size_t(shard)]);
    const int first_chunk = shard * n_hosts;
    if (draft.segments() > 1) {
      AddRingReduceScatter(draft, owners, first_chunk, 1);
      AddRingAllGather(draft, owners, first_chunk, 1);
    } else {
      AddHalvingReduceScatter(draft, owners, first_chunk);
      AddDoublingAllGather(draft, owners, first_chunk);
    }
    for (int i = 0; i < n_hosts; ++i) {
      const int rank = owners[size_t(i)];
      if (n_hosts == 1) {
        for (int segment = 0; segment < draft.segments(); ++segment) {
          draft.ReduceToAll(rank, sets[0], draft.Piece(shard, segment));
        }
      } else if (hosts[size_t(i)].size() > 1) {
        Weave(draft, rank, begins[size_t(rank)], sets[size_t(i)], true);
      }
    }
  }
  for (const std::vector<int>& host : hosts) {
    draft.SignalAll(std::span(host).first(size_t(shards)), host);
  }
}

// The root of the operation, or else the first rank, stands for its host.
std::vector<int> Leaders(const Hosts& hosts, int root) {
  std::vector<int> leaders;
  for (const std::vector<int>& host : hosts) {
    const bool has_root = std::find(host.begin(), host.end(), root) != host.end();
    leaders.push_back(has_root ? root : host[0]);
  }
  return leaders;
}

void AddBroadcast(Draft& draft, Hosts hosts) {
  const int root = draft.root();
  const auto first = std::find_if(hosts.begin(), hosts.end(), [root](const std::vector<int>& host) {
    return std::find(host.begin(), host.end(), root) != host.end();
  });
  std::rotate(hosts.begin(), first, hosts.end());
  const std::vector<int> leaders = Leaders(hosts, root);
  const int n_hosts = int(hosts.size());
  std::vector<size_t> begins;
  for (int i = 0; i < n_hosts; ++i) {
    draft.SignalAll(hosts[size_t(i)], std::array{leaders[size_t(i)]});
    begins.push_back(draft.StepsOf(leaders[size_t(i)]).size());
  }
  Timetable timetable;
  for (int piece = 0; piece < n_hosts * draft.segments(); ++piece) {
    for (int hop = 0; hop + 1 < n_hosts; ++hop) {
      timetable.Move(piece + hop, leaders[size_t(hop)], leaders[size_t(hop) + 1], piece);
    }
  }
  timetable.AddTo(draft);
  for (int i = 0; i < n_hosts; ++i) {
    const std::vector<int>& host = hosts[size_t(i)];
    const int leader = leaders[size_t(i)];
    if (host.size() == 1) continue;
    const int set = draft.AddSet({host.begin(), host.end()});
    if (n_hosts > 1) {
      Weave(draft, leader, begins[size_t(i)], set, false);
    } else {
      for (int s = 0; s < draft.segments(); ++s) draft.StoreTo(leader, set, draft.Piece(0, s));
    }
    draft.SignalAll(std::array{leader}, host);
  }
}

void AddBarrier(Draft& draft, const Hosts& hosts) {
  const std::vector<int> leaders = Leaders(hosts, hosts[0][0]);
  for (size_t i = 0; i < hosts.size(); ++i) draft.SignalAll(hosts[i], std::array{leaders[i]});
  AddDissemination(draft, leaders);
  for (size_t i = 0; i < hosts.size(); ++i) draft.SignalAll(std::array{leaders[i]}, hosts[i]);
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (!Supports(request.operation)) return NotDone(kHierarchical, request.operation);
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const Hosts hosts = HostsOf(request);
  const int n_hosts = int(hosts.size());
  if (request.operation == Operation::kBarrier) {
    Draft draft(kHierarchical.name, request, 1, 1);
    AddBarrier(draft, hosts);
    return std::move(draft).Take();
  }
  if (request.operation == Operation::kBroadcast) {
    Draft draft(kHierarchical.name, request, n_hosts, request.segments);
    AddBroadcast(draft, hosts);
    return std::move(draft).Take();
  }
  size_t shards = hosts[0].size();
  for (const std::vector<int>& host : hosts) shards = std::min(shards, host.size());
  Draft draft(kHierarchical.name, request, int(shards) * n_hosts, request.segments);
  if (request.ranks > 1) AddAllReduce(draft, hosts, int(shards));
  return std::move(draft).Take();
}

}  // namespace

const Algorithm kHierarchical = {
    .name = "hierarchical",
    .summary = "memory inside the host, messages between hosts",
    .needs_memory_links = true,
    .supports = Supports,
    .make = Make,
};

}  // namespace tutti::collective
