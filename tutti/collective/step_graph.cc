// Who waits for whom.
//
// MustWait compares two steps; comparing all pairs of a list would be quadratic. Here every list is
// walked once. Per piece the walk remembers the last step that wrote it and those that have read it
// since: a reader waits for the writer, a writer for both. Everything waits for the last await. A
// signal waits for all that stands between the last signal and itself; what stands before that one
// was done before that one was.

#include "tutti/collective/step_graph.h"

#include <algorithm>
#include <unordered_map>
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
  Walk(int pieces, Edges* edges)
      : writer_(static_cast<size_t>(pieces), kNone),
        readers_(static_cast<size_t>(pieces)),
        edges_(edges) {}

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
  void Wait(int32_t earlier, int32_t later) { edges_->emplace_back(earlier, later); }

  void Read(int32_t id, int32_t piece) {
    const int32_t writer = writer_[static_cast<size_t>(piece)];
    if (writer == id) return;
    if (writer != kNone) Wait(writer, id);
    readers_[static_cast<size_t>(piece)].push_back(id);
  }

  void Write(int32_t id, int32_t piece) {
    int32_t& writer = writer_[static_cast<size_t>(piece)];
    std::vector<int32_t>& readers = readers_[static_cast<size_t>(piece)];
    if (writer != kNone) Wait(writer, id);
    for (const int32_t reader : readers) Wait(reader, id);
    readers.clear();
    writer = id;
  }

  std::vector<int32_t> writer_;
  std::vector<std::vector<int32_t>> readers_;
  std::vector<int32_t> since_signal_;
  int32_t last_await_ = kNone;
  Edges* edges_;
};

// Matches the k-th message from a to b with the k-th that b takes from a; signals apart.
class Matcher {
 public:
  explicit Matcher(int ranks) : ranks_(static_cast<uint64_t>(ranks)) {}

  // The other end, if it came before; otherwise the step waits here for it.
  int32_t Match(int32_t id, int rank, const Step& step) {
    const bool send = IsSend(step.kind);
    const auto from = static_cast<uint64_t>(send ? rank : step.peer);
    const auto to = static_cast<uint64_t>(send ? step.peer : rank);
    const bool signal = step.kind == StepKind::kSignal || step.kind == StepKind::kAwait;
    Queue& queue = queues_[(from * ranks_ + to) * 2 + signal];
    if (queue.begin < queue.open.size() && queue.of_sends != send) return queue.open[queue.begin++];
    queue.of_sends = send;
    queue.open.push_back(id);
    return kNone;
  }

  // The first step that found no other end; kNone if all did.
  int32_t Left() const {
    int32_t left = kNone;
    for (const auto& [key, queue] : queues_) {
      if (queue.begin == queue.open.size()) continue;
      const int32_t id = queue.open[queue.begin];
      left = left == kNone ? id : std::min(left, id);
    }
    return left;
  }

 private:
  struct Queue {
    bool of_sends = false;
    size_t begin = 0;
    std::vector<int32_t> open;
  };
  uint64_t ranks_;
  std::unordered_map<uint64_t, Queue> queues_;
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
      if (!IsSend(steps[i].kind) && !IsReceive(steps[i].kind)) continue;
      const int32_t other = matcher.Match(id, rank, steps[i]);
      if (other == kNone) continue;
      nodes[static_cast<size_t>(id)].other = other;
      nodes[static_cast<size_t>(other)].other = id;
    }
  }
  if (const int32_t left = matcher.Left(); left != kNone) {
    const Node& node = graph.node(left);
    const Step& step =
        schedule.steps[static_cast<size_t>(node.rank)][static_cast<size_t>(node.index)];
    return FailedPrecondition("schedule {}: step {} of rank {} ({} with rank {}) has no other end",
                              schedule.algorithm, node.index, node.rank, NameOf(node.kind),
                              step.peer);
  }
  nodes.push_back({});
  for (const auto& [earlier, later] : edges) {
    ++nodes[static_cast<size_t>(earlier) + 1].next;
    ++nodes[static_cast<size_t>(later)].waits;
  }
  for (size_t i = 1; i < nodes.size(); ++i) nodes[i].next += nodes[i - 1].next;
  graph.next_.resize(edges.size());
  std::vector<int32_t> filled(nodes.size(), 0);
  for (const auto& [earlier, later] : edges) {
    const auto from = static_cast<size_t>(earlier);
    graph.next_[static_cast<size_t>(nodes[from].next + filled[from]++)] = later;
  }
  return graph;
}

std::vector<int32_t> StepGraph::Rounds() const {
  const auto count = static_cast<size_t>(size());
  std::vector<int32_t> rounds(count, 0);  // of what a node waits for; then its own
  std::vector<int32_t> waits(count);
  std::vector<int32_t> ready;
  for (size_t id = 0; id < count; ++id) {
    // A message waits for both its ends; the node of its receive stands for both.
    waits[id] = nodes_[id].waits;
    if (waits[id] == 0) ready.push_back(static_cast<int32_t>(id));
  }
  std::vector<char> at_end(count, 0);
  std::vector<int32_t> done;
  while (!ready.empty() || !done.empty()) {
    if (done.empty()) {
      const auto id = static_cast<size_t>(ready.back());
      ready.pop_back();
      const Node& node = nodes_[id];
      const bool carries = node.kind != StepKind::kSignal && node.kind != StepKind::kAwait;
      if (node.other == kNone) {
        rounds[id] += carries;
        done.push_back(static_cast<int32_t>(id));
        continue;
      }
      at_end[id] = 1;
      const auto other = static_cast<size_t>(node.other);
      if (node.kind == StepKind::kSignal) done.push_back(static_cast<int32_t>(id));
      if (!at_end[other]) continue;
      const int32_t round = std::max(rounds[id], rounds[other]) + carries;
      const size_t send = IsSend(node.kind) ? id : other;
      const size_t receive = send == id ? other : id;
      rounds[receive] = round;
      done.push_back(static_cast<int32_t>(receive));
      if (!carries) continue;
      rounds[send] = round;
      done.push_back(static_cast<int32_t>(send));
      continue;
    }
    const int32_t id = done.back();
    done.pop_back();
    for (const int32_t later : Next(id)) {
      const auto at = static_cast<size_t>(later);
      rounds[at] = std::max(rounds[at], rounds[static_cast<size_t>(id)]);
      if (--waits[at] == 0) ready.push_back(later);
    }
  }
  return rounds;
}

}  // namespace tutti::collective
