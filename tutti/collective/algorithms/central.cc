// central: S ranks add up for all.
//
// The data is cut into S chunks and each server owns one. Everybody pushes each chunk to its
// server, which adds it to what it has; when all are in, it sends the sum to everybody (pull). With
// one server, on a host of its own:
//
//     worker 0   worker 1   worker 2              worker 0   worker 1   worker 2
//          \a        |b        /c                      ^         ^        ^
//           \        |        /                         \S       |S      /S
//            v       v       v                           \       |      /
//                 server             S = a + b + c            server
//
// Two rounds, but all of the traffic meets at the servers' links: N workers bring NK/S to each
// server and take NK/S back, so the time is 2NK/(S B) where the phases do not overlap, and grows
// with N, while a worker moves only 2K. It is here as what the ring is compared with, whose links
// carry 2(N-1)/N K each whatever N; it wins only for a couple of ranks, or when there are as many
// servers as workers.
//
// Where servers sit: on hosts of their own (the last S ranks, which bring no data and need not get
// the result), or with the first S workers, whose own data is added in place and does not travel:
// then one server's link carries (N-1)K in and (N-1)K out.
//
// A server takes the workers one after the other, and server s starts with worker s W/S: so at
// every moment the servers draw on different workers' links, and need no memory but the sum's. Each
// sum is made once, by its server, so all ranks get the same bits.
//
// With one segment a server sends nothing before it has everything: the phases do not overlap. With
// more, the pull of a segment runs beside the push of the next, and a link that works in both
// directions carries both at once.
#include <charconv>
#include <string>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/catalogue.h"
#include "tutti/collective/algorithms/draft.h"

namespace tutti::collective {
namespace {

bool Supports(Operation operation) { return operation == Operation::kAllReduce; }

// The cast of a request: who serves, who works.
struct Cast {
  explicit Cast(const Request& request)
      : servers(request.variant == 0 ? 1 : request.variant / 2),
        own_hosts(request.variant % 2 != 0),
        workers(own_hosts ? request.ranks - servers : request.ranks),
        first_server(own_hosts ? workers : 0) {}

  int RankOf(int server) const { return first_server + server; }

  // Who brings data for a server, in the order in which it takes them.
  std::vector<int> WorkersFor(int server) const {
    const int first = first_server == 0 ? server : server * workers / servers;
    std::vector<int> order;
    for (int i = 0; i < workers; ++i) {
      const int worker = (first + i) % workers;
      if (worker != RankOf(server)) order.push_back(worker);
    }
    return order;
  }

  int servers;
  bool own_hosts;
  int workers;
  int first_server;
};

absl::Status CheckServers(const Cast& cast, int ranks) {
  const int most = cast.own_hosts ? ranks - 1 : ranks;
  if (cast.servers >= 1 && cast.servers <= most) return absl::OkStatus();
  return InvalidArgument("{} servers were asked for among {} ranks, expected 1 to {}{}",
                         cast.servers, ranks, most,
                         cast.own_hosts ? " (at least one rank must work)" : "");
}

// "2" or "2:own".
absl::StatusOr<int> ReadVariant(std::string_view parameters) {
  int servers = 0;
  const char* const end = parameters.data() + parameters.size();
  const auto [rest, error] = std::from_chars(parameters.data(), end, servers);
  const std::string_view place(rest, static_cast<size_t>(end - rest));
  if (error != std::errc() || servers < 1 || servers > 127 || (!place.empty() && place != ":own")) {
    return InvalidArgument("expected central:S or central:S:own with 1 to 127 servers");
  }
  return CentralVariant(servers, !place.empty());
}

std::string NameVariant(int variant) {
  return std::to_string(variant / 2) + (variant % 2 != 0 ? ":own" : "");
}

// A worker's pushes come before all else: they wait for nothing, and where it serves too, they must
// not stand behind receives that wait for one another.
void AddPushes(Draft& draft, const Cast& cast, int segment) {
  for (int worker = 0; worker < cast.workers; ++worker) {
    for (int i = 0; i < cast.servers; ++i) {
      const int server = (worker + i) % cast.servers;
      if (worker == cast.RankOf(server)) continue;
      draft.Send(worker, cast.RankOf(server), draft.Piece(server, segment));
    }
  }
}

void AddSums(Draft& draft, const Cast& cast, int segment) {
  for (int server = 0; server < cast.servers; ++server) {
    const int piece = draft.Piece(server, segment);
    bool empty = cast.first_server > 0;  // a server that brings nothing has nothing to add to
    for (const int worker : cast.WorkersFor(server)) {
      empty ? draft.Receive(cast.RankOf(server), worker, piece)
            : draft.ReceiveReduce(cast.RankOf(server), worker, piece);
      empty = false;
    }
  }
}

void AddPulls(Draft& draft, const Cast& cast, int segment) {
  for (int server = 0; server < cast.servers; ++server) {
    for (const int worker : cast.WorkersFor(server)) {
      draft.Move(cast.RankOf(server), worker, draft.Piece(server, segment));
    }
  }
}

absl::StatusOr<Schedule> Make(const Request& request) {
  if (!Supports(request.operation)) return NotDone(kCentral, request.operation);
  if (absl::Status status = CheckRequest(request); !status.ok()) return status;
  const Cast cast(request);
  if (absl::Status status = CheckServers(cast, request.ranks); !status.ok()) return status;
  Draft draft(kCentral.name, request, cast.servers, request.segments);
  if (cast.own_hosts) {
    const std::vector<int> all = RanksUpTo(cast.workers);
    draft.SetContributors({all.begin(), all.end()});
  }
  for (int segment = 0; segment < draft.segments(); ++segment) {
    AddPushes(draft, cast, segment);
    AddSums(draft, cast, segment);
    AddPulls(draft, cast, segment);
  }
  return std::move(draft).Take();
}

}  // namespace

const Algorithm kCentral = {
    .name = "central",
    .summary = "some ranks add up for all: the baseline",
    .needs_memory_links = false,
    .supports = Supports,
    .make = Make,
    .for_comparison = true,
    .read_variant = ReadVariant,
    .name_variant = NameVariant,
};

}  // namespace tutti::collective
