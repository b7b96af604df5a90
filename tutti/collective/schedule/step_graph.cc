// The dependencies between the steps of a schedule.
//
// MustWait compares two steps; comparing all pairs of a list would be quadratic. Here every list is
// walked once. Per piece the walk remembers the last step that wrote it and those that have read it
// since: a reader waits for the writer, a writer for both. Every step waits for the last await. A
// signal waits for all steps since the previous signal, which has itself waited for all steps
// before it.

#include "tutti/collective/schedule/step_graph.h"

#include <algorithm>
#include <utility>

#include "tutti/base/status.h"

namespace tutti::collective {
namespace {

constexpr int32_t kNone = -1;

// (earlier, later)
using Edges = std::vector<std::pair<int32_t, int32_t>>;

// The walk over one rank's list.
class Walk {
 public:
  Walk(int pieces, Edges* edges) : pieces_(static_cast<size_t>(pieces)), edges_(edges) {}

  void Add(int32_t id, const Step& step) {
    if (last_await_ != kNone) Wait(last_await_, id);
    if (step.kind == StepKind::kSignal) {
      for (const int32_t earlier : since_signal_) Wait(earlier, id);
      since_signal_.clear();
    }
    since_signal_.push_back(id);
    if (step.kind == StepKind::kAwait) last_await_ = id;
    const Touched touched = TouchedBy(step);
    if (touched.write != kNone) Write(id, touched.write);
    if (touched.read != kNone) Read(id, touched.read);
    if (touched.also_read != kNone) Read(id, touched.also_read);
  }

 private:
  struct Piece {
    int32_t writer = kNone;
    int32_t reader = kNone;  // the last one; readings_ has those before
  };
  struct Reading {
    int32_t id;
    int32_t before;  // in readings_
  };

  void Wait(int32_t earlier, int32_t later) { edges_->emplace_back(earlier, later); }

  void Read(int32_t id, int32_t number) {
    Piece& piece = pieces_[static_cast<size_t>(number)];
    if (piece.writer == id) return;
    if (piece.writer != kNone) Wait(piece.writer, id);
    readings_.push_back({id, piece.reader});
    piece.reader = static_cast<int32_t>(readings_.size()) - 1;
  }

  void Write(int32_t id, int32_t number) {
    Piece& piece = pieces_[static_cast<size_t>(number)];
    if (piece.writer != kNone) Wait(piece.writer, id);
    for (int32_t at = piece.reader; at != kNone; at = readings_[static_cast<size_t>(at)].before) {
      Wait(readings_[static_cast<size_t>(at)].id, id);
    }
    piece = {.writer = id};
  }

  std::vector<Piece> pieces_;
  std::vector<Reading> readings_;
  std::vector<int32_t> since_signal_;
  int32_t last_await_ = kNone;
  Edges* edges_;
};

// Matches the k-th message from a to b with the k-th that b takes from a; signals apart. Sorting
// all of them by where they go keeps their order and puts the k-th beside the k-th.
class Matcher {
 public:
  explicit Matcher(int ranks) : ranks_(static_cast<uint64_t>(ranks)) {}

  void Add(int32_t id, int rank, const Step& step) {
    const bool send = IsSend(step.kind);
    const auto from = static_cast<uint64_t>(send ? rank : step.peer);
    const auto to = static_cast<uint64_t>(send ? step.peer : rank);
    const bool signal = step.kind == StepKind::kSignal || step.kind == StepKind::kAwait;
    const uint64_t way = (from * ranks_ + to) * 2 + signal;
    (send ? sends_ : receives_).push_back(way << 32 | static_cast<uint32_t>(id));
  }

  // Calls `pair` with both ends of each message; returns a step without another end, or kNone.
  template <typename Pair>
  int32_t Match(const Pair& pair) {
    std::sort(sends_.begin(), sends_.end());
    std::sort(receives_.begin(), receives_.end());
    auto send = sends_.begin();
    auto receive = receives_.begin();
    while (send != sends_.end() && receive != receives_.end()) {
      if (*send >> 32 != *receive >> 32) return Id(std::min(*send, *receive));
      pair(Id(*send++), Id(*receive++));
    }
    if (send != sends_.end()) return Id(*send);
    return receive != receives_.end() ? Id(*receive) : kNone;
  }

 private:
  static int32_t Id(uint64_t entry) { return static_cast<int32_t>(entry & 0xffffffff); }

  uint64_t ranks_;
  std::vector<uint64_t> sends_;  // the way it goes, and the step
  std::vector<uint64_t> receives_;
};

}  // namespace

absl::StatusOr<StepGraph> StepGraph::Make(const Schedule& schedule) {
  StepGraph graph;
  std::vector<Node>& nodes = graph.nodes_;
  Edges edges;
  Matcher matcher(schedule.ranks);
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    Walk walk(schedule.pieces(), &edges);
    const std::vector<Step>& steps = schedule.steps[static_cast<size_t>(rank)];
    for (size_t i = 0; i < steps.size(); ++i) {
      const auto id = static_cast<int32_t>(nodes.size());
      nodes.push_back({.kind = steps[i].kind, .rank = rank, .index = static_cast<int32_t>(i)});
      walk.Add(id, steps[i]);
      if (IsSend(steps[i].kind) || IsReceive(steps[i].kind)) matcher.Add(id, rank, steps[i]);
    }
  }
  const int32_t left = matcher.Match([&](int32_t send, int32_t receive) {
    nodes[static_cast<size_t>(send)].other = receive;
    nodes[static_cast<size_t>(receive)].other = send;
  });
  if (left != kNone) {
    const Node& node = graph.node(left);
    const Step& step =
        schedule.steps[static_cast<size_t>(node.rank)][static_cast<size_t>(node.index)];
    return FailedPrecondition("schedule {}: step {} of rank {} ({} with rank {}) has no other end",
                              schedule.algorithm, node.index, node.rank, NameOf(node.kind),
                              step.peer);
  }
  graph.Index(edges);
  return graph;
}

void StepGraph::Index(std::span<const std::pair<int32_t, int32_t>> edges) {
  nodes_.push_back({});
  for (const auto& [earlier, later] : edges) {
    ++nodes_[static_cast<size_t>(earlier) + 1].next;
    ++nodes_[static_cast<size_t>(later)].waits;
  }
  for (size_t i = 1; i < nodes_.size(); ++i) nodes_[i].next += nodes_[i - 1].next;
  next_.resize(edges.size());
  std::vector<int32_t> filled(nodes_.size(), 0);
  for (const auto& [earlier, later] : edges) {
    const auto from = static_cast<size_t>(earlier);
    next_[static_cast<size_t>(nodes_[from].next + filled[from]++)] = later;
  }
}

StepGraph::Rounds StepGraph::CountRounds(bool signals) const {
  const auto count = static_cast<size_t>(size());
  std::vector<int32_t> start(count, 0);  // the end of the last of what a node waits for
  std::vector<int32_t> waits(count);
  std::vector<char> ready(count, 0);
  Rounds rounds{.of = std::vector<int32_t>(count, 0), .order = {}};
  const auto run = [&](size_t id, int32_t end) {
    rounds.of[id] = end;
    rounds.order.push_back(static_cast<int32_t>(id));
  };
  // A send runs when it is ready; a receive when, besides, its send has run.
  const auto become_ready = [&](size_t id) {
    const Node& node = nodes_[id];
    ready[id] = 1;
    const bool local = node.kind == StepKind::kCopy || node.kind == StepKind::kReduce;
    if (node.other == kNone) return run(id, start[id] + !local);
    const size_t send = IsSend(node.kind) ? id : static_cast<size_t>(node.other);
    const auto receive = static_cast<size_t>(nodes_[send].other);
    const bool signal = nodes_[send].kind == StepKind::kSignal;
    const int32_t arrival = start[send] + (signal ? signals : 1);
    if (send == id) run(send, signal ? start[send] : arrival);
    if (ready[send] && ready[receive]) run(receive, std::max(arrival, start[receive]));
  };
  for (size_t id = 0; id < count; ++id) {
    waits[id] = nodes_[id].waits;
    if (waits[id] == 0) become_ready(id);
  }
  for (size_t i = 0; i < rounds.order.size(); ++i) {
    const int32_t id = rounds.order[i];
    for (const int32_t later : Next(id)) {
      const auto at = static_cast<size_t>(later);
      start[at] = std::max(start[at], rounds.of[static_cast<size_t>(id)]);
      if (--waits[at] == 0) become_ready(at);
    }
  }
  return rounds;
}

}  // namespace tutti::collective
