#include "tutti/collective/algorithms/draft.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "tutti/base/status.h"

namespace tutti::collective {
namespace {

// The longest schedules have about 4 x ranks x ranks x segments steps of 20 bytes each.
constexpr int64_t kMaxRanksSquaredTimesSegments = int64_t{1} << 24;
constexpr int kMaxSegments = 4096;

bool HasRoot(Operation operation) {
  return operation == Operation::kBroadcast || operation == Operation::kReduce ||
         operation == Operation::kGather || operation == Operation::kScatter;
}

}  // namespace

absl::Status CheckRequest(const Request& request) {
  const int ranks = request.ranks;
  if (ranks < 1 || ranks > kMaxRanks) {
    return InvalidArgument("{} ranks were asked for, expected 1 to {}", ranks, kMaxRanks);
  }
  if (request.segments < 1 || request.segments > kMaxSegments ||
      int64_t{ranks} * ranks * request.segments > kMaxRanksSquaredTimesSegments) {
    return InvalidArgument(
        "{} segments were asked for, expected 1 to {} among {} ranks", request.segments,
        std::min<int64_t>(kMaxSegments, kMaxRanksSquaredTimesSegments / (int64_t{ranks} * ranks)),
        ranks);
  }
  if (HasRoot(request.operation) && (request.root < 0 || request.root >= ranks)) {
    return InvalidArgument("the root is rank {}, expected 0 to {}", request.root, ranks - 1);
  }
  if (!request.hosts.empty() && request.hosts.size() != size_t(ranks)) {
    return InvalidArgument("hosts are given for {} ranks, expected {} or none",
                           request.hosts.size(), ranks);
  }
  return absl::OkStatus();
}

absl::Status NotDone(const Algorithm& algorithm, Operation operation) {
  std::string done;
  for (int i = int(Operation::kAllReduce); i <= int(Operation::kBarrier); ++i) {
    if (!algorithm.supports(Operation(i))) continue;
    done += done.empty() ? "" : ", ";
    done += NameOf(Operation(i));
  }
  return Unimplemented("algorithm \"{}\" does not do {}; it does {}", algorithm.name,
                       NameOf(operation), done);
}

Draft::Draft(std::string_view algorithm, const Request& request, int chunks, int segments) {
  schedule_.algorithm = std::string(algorithm);
  schedule_.operation = request.operation;
  schedule_.ranks = request.ranks;
  schedule_.chunks = chunks;
  schedule_.segments = segments;
  schedule_.root = HasRoot(request.operation) ? request.root : 0;
  schedule_.steps.resize(size_t(request.ranks));
}

int Draft::Around(int rank, int offset) const {
  const int moved = (rank + offset) % schedule_.ranks;
  return moved < 0 ? moved + schedule_.ranks : moved;
}

int Draft::AddScratch(int like) {
  schedule_.scratch.push_back(like);
  return schedule_.pieces() - 1;
}

int Draft::AddSet(std::vector<int32_t> set) {
  schedule_.sets.push_back(std::move(set));
  return int(schedule_.sets.size()) - 1;
}

void Draft::Send(int rank, int peer, int piece) {
  Add(rank, {.kind = StepKind::kSend, .peer = peer, .piece = piece});
}
void Draft::Receive(int rank, int peer, int piece) {
  Add(rank, {.kind = StepKind::kReceive, .peer = peer, .piece = piece});
}
void Draft::ReceiveReduce(int rank, int peer, int piece) {
  Add(rank, {.kind = StepKind::kReceiveReduce, .peer = peer, .piece = piece});
}
void Draft::Move(int from, int to, int piece) {
  Send(from, to, piece);
  Receive(to, from, piece);
}
void Draft::MoveReduce(int from, int to, int piece) {
  Send(from, to, piece);
  ReceiveReduce(to, from, piece);
}
void Draft::Copy(int rank, int piece, int source) {
  Add(rank, {.kind = StepKind::kCopy, .piece = piece, .source = source});
}
void Draft::Reduce(int rank, int piece, int source) {
  Add(rank, {.kind = StepKind::kReduce, .piece = piece, .source = source});
}
void Draft::Signal(int rank, int peer) { Add(rank, {.kind = StepKind::kSignal, .peer = peer}); }
void Draft::Await(int rank, int peer) { Add(rank, {.kind = StepKind::kAwait, .peer = peer}); }
void Draft::ReduceFrom(int rank, int set, int piece) {
  Add(rank, {.kind = StepKind::kReduceFrom, .piece = piece, .set = set});
}
void Draft::StoreTo(int rank, int set, int piece) {
  Add(rank, {.kind = StepKind::kStoreTo, .piece = piece, .set = set});
}
void Draft::ReduceToAll(int rank, int set, int piece) {
  Add(rank, {.kind = StepKind::kReduceToAll, .piece = piece, .set = set});
}

void Draft::SignalAll(std::span<const int> from, std::span<const int> to) {
  // A rank that both signals and awaits signals first: the other way round all would wait.
  for (const int rank : from) {
    for (const int peer : to) {
      if (peer != rank) Signal(rank, peer);
    }
  }
  for (const int rank : to) {
    for (const int peer : from) {
      if (peer != rank) Await(rank, peer);
    }
  }
}

void Timetable::Move(int time, int from, int to, int piece) {
  messages_.push_back({time, from, to, piece, false});
}
void Timetable::MoveReduce(int time, int from, int to, int piece) {
  messages_.push_back({time, from, to, piece, true});
}

void Timetable::AddTo(Draft& draft) {
  std::stable_sort(messages_.begin(), messages_.end(),
                   [](const Message& a, const Message& b) { return a.time < b.time; });
  for (auto begin = messages_.begin(); begin != messages_.end();) {
    const auto end = std::find_if(begin, messages_.end(),
                                  [&](const Message& m) { return m.time != begin->time; });
    for (auto message = begin; message != end; ++message) {
      message->reduces ? draft.ReceiveReduce(message->to, message->from, message->piece)
                       : draft.Receive(message->to, message->from, message->piece);
    }
    for (auto message = begin; message != end; ++message) {
      draft.Send(message->from, message->to, message->piece);
    }
    begin = end;
  }
}

std::vector<int> RanksUpTo(int ranks) {
  std::vector<int> all(size_t(ranks), 0);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

}  // namespace tutti::collective
