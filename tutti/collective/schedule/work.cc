// Counts what a schedule does. The rounds are the length of the longest chain in which each step
// has to wait for the one before: a message takes one round from the start of its send, a signal as
// well, and a memory step takes one; copies and sums within a rank take none.
#include <algorithm>

#include "absl/container/flat_hash_map.h"
#include "tutti/base/check.h"
#include "tutti/collective/schedule/execute.h"
#include "tutti/collective/schedule/verify.h"

namespace tutti::collective {
namespace {

class Counter : public ExecutionObserver {
 public:
  explicit Counter(const Schedule& schedule) : schedule_(schedule) {
    const auto ranks = size_t(schedule.ranks);
    work_.sent.resize(ranks);
    work_.received.resize(ranks);
    work_.reduced.resize(ranks);
    work_.loaded.resize(ranks);
    ended_.resize(ranks);
    awaited_.resize(ranks);
    for (const std::vector<Step>& steps : schedule.steps) {
      work_.steps.push_back(int64_t(steps.size()));
      started_.emplace_back(steps.size());
    }
    written_.resize(ranks * size_t(schedule.pieces()));
    read_.resize(written_.size());
    // All-to-all's data is its input: half of its chunks.
    const int pieces = schedule.operation == Operation::kAllToAll ? schedule.data_pieces() / 2
                                                                  : schedule.data_pieces();
    share_ = schedule.operation == Operation::kBarrier ? 0 : 1.0 / pieces;
  }

  Work Take() {
    for (const auto& [ends, link] : links_) work_.links.push_back(link);
    std::sort(work_.links.begin(), work_.links.end(), [](const auto& a, const auto& b) {
      return std::pair(a.from, a.to) < std::pair(b.from, b.to);
    });
    return std::move(work_);
  }

  void Started(int rank, int number) override {
    const Step& step = StepAt(rank, number);
    int64_t start = awaited_[size_t(rank)];
    if (step.kind == StepKind::kSignal) start = std::max(start, ended_[size_t(rank)]);
    const Touched touched = TouchedBy(step);
    for (const int piece : {touched.read, touched.also_read, touched.write}) {
      if (piece >= 0) start = std::max(start, written_[Cell(rank, piece)]);
    }
    if (touched.write >= 0) start = std::max(start, read_[Cell(rank, touched.write)]);
    started_[size_t(rank)][size_t(number)] = start;
    if (step.kind == StepKind::kSignal) {
      End(rank, number, start);
      CountLink(rank, step.peer, 0);
    }
  }

  void Computed(int rank, int number) override {
    const Step& step = StepAt(rank, number);
    const int64_t start = started_[size_t(rank)][size_t(number)];
    if (step.kind == StepKind::kCopy || step.kind == StepKind::kReduce) {
      const bool reduces = step.kind == StepKind::kReduce;
      Count(rank, reduces ? 3 : 2, reduces ? 1 : 0);
      return End(rank, number, start);
    }
    const std::vector<int32_t>& set = schedule_.sets[size_t(step.set)];
    const auto size = double(set.size());
    const bool with_own = std::binary_search(set.begin(), set.end(), rank);
    const double others = with_own ? size - 1 : size;
    if (step.kind == StepKind::kReduceFrom) Count(rank, size + 1, size - 1);
    if (step.kind == StepKind::kStoreTo) Count(rank, 1 + others, 0);
    if (step.kind == StepKind::kReduceToAll) Count(rank, size + others + 1, size - 1);
    End(rank, number, start + 1);
  }

  void Delivered(int from, int send, int to, int receive) override {
    const int64_t sent = started_[size_t(from)][size_t(send)] + 1;
    End(from, send, sent);
    End(to, receive, std::max(sent, started_[size_t(to)][size_t(receive)]));
    const bool reduces = StepAt(to, receive).kind == StepKind::kReceiveReduce;
    work_.sent[size_t(from)] += share_;
    work_.received[size_t(to)] += share_;
    Count(from, 1, 0);
    Count(to, reduces ? 2 : 1, reduces ? 1 : 0);
    CountLink(from, to, share_);
  }

  void Awaited(int rank, int await, int from, int signal) override {
    const int64_t end =
        std::max(started_[size_t(from)][size_t(signal)] + 1, started_[size_t(rank)][size_t(await)]);
    awaited_[size_t(rank)] = std::max(awaited_[size_t(rank)], end);
    End(rank, await, end);
  }

 private:
  const Step& StepAt(int rank, int number) const {
    return schedule_.steps[size_t(rank)][size_t(number)];
  }
  size_t Cell(int rank, int piece) const {
    return size_t(rank) * size_t(schedule_.pieces()) + size_t(piece);
  }

  void Count(int rank, double loaded, double reduced) {
    work_.loaded[size_t(rank)] += loaded * share_;
    work_.reduced[size_t(rank)] += reduced * share_;
  }

  void CountLink(int from, int to, double bytes) {
    Work::Link& link = links_[std::pair(from, to)];
    link.from = from;
    link.to = to;
    link.bytes += bytes;
    ++link.messages;
  }

  void End(int rank, int number, int64_t end) {
    const Touched touched = TouchedBy(StepAt(rank, number));
    for (const int piece : {touched.read, touched.also_read}) {
      if (piece >= 0) read_[Cell(rank, piece)] = std::max(read_[Cell(rank, piece)], end);
    }
    if (touched.write >= 0) written_[Cell(rank, touched.write)] = end;
    ended_[size_t(rank)] = std::max(ended_[size_t(rank)], end);
    work_.rounds = std::max(work_.rounds, end);
  }

  const Schedule& schedule_;
  Work work_;
  double share_ = 0;  // a piece's of the whole data
  // Times in rounds.
  std::vector<std::vector<int64_t>> started_;  // per rank and step
  std::vector<int64_t> ended_;                 // per rank: the latest end of a step
  std::vector<int64_t> awaited_;               // per rank: the latest end of an await
  std::vector<int64_t> written_;               // per rank and piece: the end of its last write
  std::vector<int64_t> read_;                  // per rank and piece: the latest end of a read
  absl::flat_hash_map<std::pair<int, int>, Work::Link> links_;
};

}  // namespace

Work CountWork(const Schedule& schedule) {
  Counter counter(schedule);
  TUTTI_CHECK(Execute(schedule, counter).ok());
  return counter.Take();
}

}  // namespace tutti::collective
