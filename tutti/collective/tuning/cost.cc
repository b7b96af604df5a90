// The cost model: predicts how long a schedule takes.
//
// A schedule is replayed in virtual time, event by event. The rules are few:
//
//   - A step starts when the earlier steps of its rank that it must wait for are done (MustWait in
//     schedule.h); a message, when both its send and its receive could start.
//   - A message passes the hops of its route one after the other: out of the sender, perhaps
//     through a rack's link and the spine, into the receiver. A hop carries one message at a time
//     and takes them as they come; a message of b bytes keeps it busy for b * seconds_per_byte. Its
//     head goes on to the next hop as soon as it has entered one, so that a free route takes
//     b * (the slowest hop) in all, plus the route's latency.
//   - The send is done when the message has left the first hop; the receive, when the tail arrived.
//   - What a receive-reduce brings is then added by the rank's core, one piece after the other, at
//     `reduce` seconds a byte: it is hidden behind transfers only if chunks are cut into segments.
//   - Loads and stores in memory take `memory` seconds a byte of the rank's core and `host_memory`
//     of the memory that the ranks of a host share: reduce-to-all over n ranks reads n pieces and
//     writes n, reduce-from reads n and writes one, store-to reads one and writes n, copy reads one
//     and writes one.
//   - A signal takes the latency of its route and nothing else.
//
// On equal links of bandwidth B and latency l this gives the closed forms that everybody knows: for
// the ring 2(N-1)/N K/B + 2(N-1) l; for central with one server beside a worker (N-1) (K/B + l) to
// push, as it adds up one after the other, and (N-1) K/B + l to pull; for direct over shared memory
// 2NK divided by what the memory moves a second. The tests compare them.

#include "tutti/collective/tuning/cost.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/collective/schedule/step_graph.h"

namespace tutti::collective {
namespace {

using topology::LinkCosts;
using topology::Place;
using topology::Route;

// How many pieces a step reads and writes in memory.
int PassesOf(const Schedule& schedule, const Step& step) {
  const int n = step.set < 0 ? 0 : static_cast<int>(schedule.sets[step.set].size());
  switch (step.kind) {
    case StepKind::kReduceFrom:
    case StepKind::kStoreTo:
      return n + 1;
    case StepKind::kReduceToAll:
      return 2 * n;
    case StepKind::kCopy:
      return 2;
    default:
      return 0;
  }
}

// What goes on at `time`: node's message reaches a hop of its route, or its bytes a core.
struct Event {
  double time;
  int32_t node;
  int32_t hop;
  // Ties go to the lower step, so that a rank's steps start in the order of its list.
  bool operator>(const Event& other) const {
    return time != other.time ? time > other.time : node > other.node;
  }
};
constexpr int32_t kCore = 1000;  // a hop behind all those of a route

}  // namespace

struct Replay::Compiled {
  StepGraph graph;
  std::vector<int32_t> passes;  // by node: over memory, in pieces
  LinkCosts costs;
  int hosts = 1;
  int racks = 1;
  double pieces = 1;  // that K is cut into
};

absl::StatusOr<Replay> Replay::Make(const Schedule& schedule, const LinkCosts& costs) {
  if (schedule.ranks != costs.ranks) {
    return InvalidArgument("the schedule is for {} ranks, the links are for {}", schedule.ranks,
                           costs.ranks);
  }
  TUTTI_ASSIGN_OR_RETURN(StepGraph graph, StepGraph::Make(schedule));
  auto program = std::make_shared<Compiled>(Compiled{.graph = std::move(graph), .costs = costs});
  for (const std::vector<Step>& steps : schedule.steps) {
    for (const Step& step : steps) program->passes.push_back(PassesOf(schedule, step));
  }
  for (const int host : costs.hosts) program->hosts = std::max(program->hosts, host + 1);
  for (const int rack : costs.racks) program->racks = std::max(program->racks, rack + 1);
  // All-to-all numbers the input's chunks and then the output's; each of them makes K.
  program->pieces =
      schedule.data_pieces() / (schedule.operation == Operation::kAllToAll ? 2.0 : 1.0);
  return Replay(std::move(program));
}

// One run. `Compiled` stays as it is.
class Replay::Run {
 public:
  Run(const Compiled& program, double bytes)
      : program_(program),
        costs_(program.costs),
        piece_bytes_(bytes / program.pieces),
        graph_(program.graph),
        waits_(static_cast<size_t>(graph_.size())),
        ready_(waits_.size(), 0),
        tail_(waits_.size(), 0),
        started_(waits_.size(), 0) {
    const size_t ranks = static_cast<size_t>(costs_.ranks);
    prediction_.ranks.assign(ranks, 0);
    busy_.assign(3 * ranks + 3 * static_cast<size_t>(program.hosts) +
                     2 * static_cast<size_t>(program.racks) + 1,
                 0);
  }

  absl::StatusOr<Prediction> Go() {
    const int32_t count = graph_.size();
    for (int32_t id = 0; id < count; ++id) waits_[id] = graph_.node(id).waits;
    for (int32_t id = 0; id < count; ++id) {
      if (graph_.node(id).waits == 0) Ready(id);
    }
    for (Release(); !events_.empty(); Release()) {
      const Event event = events_.top();
      events_.pop();
      if (event.hop == kCore) {
        Work(event);
      } else {
        Travel(event);
      }
    }
    if (done_ != count) {
      return FailedPrecondition("the schedule deadlocks: {} of its {} steps can run", done_, count);
    }
    return std::move(prediction_);
  }

 private:
  using Node = StepGraph::Node;

  // All that the step waits for is done, at ready_[id].
  void Ready(int32_t id) {
    const Node& node = graph_.node(id);
    if (node.other < 0) {
      events_.push({ready_[id], id, kCore});
      return;
    }
    started_[id] = 1;
    if (node.kind == StepKind::kSignal) Finish(id, ready_[id]);
    if (!started_[node.other]) return;
    const int32_t send = IsSend(node.kind) ? id : node.other;
    const int32_t receive = graph_.node(send).other;
    if (graph_.node(send).kind == StepKind::kSignal) {
      const double latency = RouteOf(send).latency;
      Finish(receive, std::max(ready_[receive], ready_[send] + latency));
    } else {
      events_.push({std::max(ready_[send], ready_[receive]), send, 0});
    }
  }

  const Route& RouteOf(int32_t send) const {
    const Node& node = graph_.node(send);
    return costs_.Between(node.rank, graph_.node(node.other).rank);
  }

  // The head of a message is at a hop, and goes on as long as hops are free.
  void Travel(const Event& event) {
    const Node& send = graph_.node(event.node);
    const int to = graph_.node(send.other).rank;
    const Route& route = RouteOf(event.node);
    tail_[event.node] = std::max(tail_[event.node], event.time);
    for (auto hop = static_cast<size_t>(event.hop); hop < route.hops.size(); ++hop) {
      double& busy = busy_[Channel(route.hops[hop].place, send.rank, to)];
      const double begin = std::max(event.time, busy);
      busy = begin + piece_bytes_ * route.hops[hop].seconds_per_byte;
      tail_[event.node] = std::max(tail_[event.node], busy);
      if (hop == 0) Finish(event.node, busy);
      if (begin > event.time && hop + 1 < route.hops.size()) {
        events_.push({begin, event.node, static_cast<int32_t>(hop + 1)});
        return;
      }
    }
    if (route.hops.empty()) Finish(event.node, event.time);
    Arrive(send.other, tail_[event.node] + route.latency);
  }

  void Arrive(int32_t receive, double time) {
    if (graph_.node(receive).kind == StepKind::kReceiveReduce) {
      events_.push({time, receive, kCore});
    } else {
      Finish(receive, time);
    }
  }

  // The bytes of a step are there, and its rank's core takes them as soon as it can.
  void Work(const Event& event) {
    const Node& node = graph_.node(event.node);
    const bool adds = node.kind == StepKind::kReceiveReduce || node.kind == StepKind::kReduce;
    const double passes = piece_bytes_ * program_.passes[event.node];
    double& core = busy_[CoreOf(node.rank)];
    core = std::max(core, event.time) + passes * costs_.memory +
           (adds ? piece_bytes_ * costs_.reduce : 0);
    double end = core;
    if (passes > 0 && costs_.host_memory > 0) {
      double& memory = busy_[Channel(Place::kHostMemory, node.rank, node.rank)];
      memory = std::max(memory, event.time) + passes * costs_.host_memory;
      end = std::max(end, memory);
    }
    if (adds || node.kind == StepKind::kReduceFrom || node.kind == StepKind::kReduceToAll) {
      prediction_.reduced = std::max(prediction_.reduced, end);
    }
    Finish(event.node, end);
  }

  void Finish(int32_t id, double time) {
    double& rank = prediction_.ranks[graph_.node(id).rank];
    rank = std::max(rank, time);
    prediction_.seconds = std::max(prediction_.seconds, time);
    finished_.emplace_back(id, time);
  }

  // Tells those that wait for what has finished. A loop, not a recursion: chains are long.
  void Release() {
    while (!finished_.empty()) {
      const auto [id, time] = finished_.back();
      finished_.pop_back();
      ++done_;
      for (const int32_t later : graph_.Next(id)) {
        ready_[later] = std::max(ready_[later], time);
        if (--waits_[later] == 0) Ready(later);
      }
    }
  }

  size_t CoreOf(int rank) const { return 2 * static_cast<size_t>(costs_.ranks) + rank; }

  // Where busy_ keeps the channel that a place means for this sender and receiver.
  size_t Channel(Place place, int from, int to) const {
    const auto ranks = static_cast<size_t>(costs_.ranks);
    const auto hosts = static_cast<size_t>(program_.hosts);
    const auto racks = static_cast<size_t>(program_.racks);
    const size_t host_base = 3 * ranks;
    const size_t rack_base = host_base + 3 * hosts;
    switch (place) {
      case Place::kRankOut:
        return from;
      case Place::kRankIn:
        return ranks + to;
      case Place::kHostOut:
        return host_base + costs_.hosts[from];
      case Place::kHostIn:
        return host_base + hosts + costs_.hosts[to];
      case Place::kHostMemory:
        return host_base + 2 * hosts + costs_.hosts[to];
      case Place::kRackOut:
        return rack_base + costs_.racks[from];
      case Place::kRackIn:
        return rack_base + racks + costs_.racks[to];
      case Place::kSpine:
        break;
    }
    return rack_base + 2 * racks;
  }

  const Compiled& program_;
  const LinkCosts& costs_;
  const double piece_bytes_;
  const StepGraph& graph_;
  std::vector<int32_t> waits_;
  std::vector<double> ready_;  // when the last of what a step waits for was done
  std::vector<double> tail_;   // of a message, as far as it got
  std::vector<char> started_;
  std::vector<double> busy_;  // until when each channel and each core is
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<std::pair<int32_t, double>> finished_;  // not yet told to those that wait
  int32_t done_ = 0;
  Prediction prediction_;
};

absl::StatusOr<Prediction> Replay::Predict(int64_t bytes) const {
  return Run(*program_, static_cast<double>(bytes)).Go();
}

int64_t Replay::Rounds() const {
  int32_t rounds = 0;
  for (const int32_t round : program_->graph.CountRounds(true).of) rounds = std::max(rounds, round);
  return rounds;
}

absl::StatusOr<Prediction> PredictCost(const Schedule& schedule, const LinkCosts& costs,
                                       int64_t bytes) {
  TUTTI_ASSIGN_OR_RETURN(const Replay replay, Replay::Make(schedule, costs));
  return replay.Predict(bytes);
}

}  // namespace tutti::collective
