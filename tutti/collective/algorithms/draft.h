#pragma once

#include <string_view>
#include <vector>

#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/schedule/schedule.h"

// What algorithms write schedules with.
namespace tutti::collective {

// OK for a request that every algorithm can make sense of: ranks, root, segments and hosts in their
// ranges, and a schedule of a size that fits into memory. INVALID_ARGUMENT names the field.
absl::Status CheckRequest(const Request& request);

// UNIMPLEMENTED: the algorithm does not do the operation. Names those that it does.
absl::Status NotDone(const Algorithm& algorithm, Operation operation);

// A schedule under construction, with no steps yet. A message is added to both of its ends at once,
// so that the k-th send of one rank to another always meets the k-th receive there.
class Draft {
 public:
  // `segments` is the request's, or 1 for algorithms that do not pipeline.
  Draft(std::string_view algorithm, const Request& request, int chunks, int segments);

  int ranks() const { return schedule_.ranks; }
  int segments() const { return schedule_.segments; }
  int root() const { return schedule_.root; }
  int Piece(int chunk, int segment) const { return chunk * schedule_.segments + segment; }
  // `rank` plus an offset of any sign, around the circle.
  int Around(int rank, int offset) const;

  // A scratch piece of every rank, as large as the data piece `like`.
  int AddScratch(int like);
  // The number of a set of ranks in ascending order.
  int AddSet(std::vector<int32_t> set);
  void SetContributors(std::vector<int32_t> ranks) { schedule_.contributors = std::move(ranks); }

  void Send(int rank, int peer, int piece);
  void Receive(int rank, int peer, int piece);
  void ReceiveReduce(int rank, int peer, int piece);
  // Both ends: `to` takes `piece` of `from` as its own `piece`, or adds it.
  void Move(int from, int to, int piece);
  void MoveReduce(int from, int to, int piece);

  void Copy(int rank, int piece, int source);
  void Reduce(int rank, int piece, int source);
  void Signal(int rank, int peer);
  void Await(int rank, int peer);
  void ReduceFrom(int rank, int set, int piece);
  void StoreTo(int rank, int set, int piece);
  void ReduceToAll(int rank, int set, int piece);
  // Each of `from` signals each of `to`, which awaits it; nobody signals itself. Everything that
  // the one has listed so far happens before everything that the other lists from here on.
  void SignalAll(std::span<const int> from, std::span<const int> to);

  // What a rank has listed so far, to be woven with other steps.
  std::vector<Step>& StepsOf(int rank) { return schedule_.steps[size_t(rank)]; }

  Schedule Take() && { return std::move(schedule_); }

 private:
  void Add(int rank, const Step& step) { schedule_.steps[size_t(rank)].push_back(step); }

  Schedule schedule_;
};

// Messages in the order of a timetable. Each is given the time at which it would move if all moved
// one after the other as early as they can, and every rank lists its own by time, receives before
// sends: so a receive stands ready while the send before it still waits for its data.
// REQUIRES: messages of one time touch different pieces of a rank, or only send it.
class Timetable {
 public:
  void Move(int time, int from, int to, int piece);
  void MoveReduce(int time, int from, int to, int piece);
  void AddTo(Draft& draft);

 private:
  struct Message {
    int time;
    int from;
    int to;
    int piece;
    bool reduces;
  };
  std::vector<Message> messages_;
};

// 0, 1, ... ranks - 1.
std::vector<int> RanksUpTo(int ranks);

}  // namespace tutti::collective
