// From a schedule to what happens in it.
//
// Rounds come from the step graph, signals left out: a message is one round later than the latest
// thing that its send had to wait for. The steps of a round are replayed in an order in which each
// stands behind what it waits for, with the data of a message taken when it is sent.

#include "tools/tutti/explain/story.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>

#include "tutti/base/status.h"
#include "tutti/collective/schedule/step_graph.h"

namespace tutti::tools {
namespace {

using collective::Operation;
using collective::Schedule;
using collective::Step;
using collective::StepGraph;
using collective::StepKind;

// Chunks of input: all-to-all numbers the output's behind them.
int InputChunks(const Schedule& schedule) {
  return schedule.operation == Operation::kAllToAll ? schedule.chunks / 2 : schedule.chunks;
}

bool Counts(const Schedule& schedule, int rank) {
  return schedule.contributors.empty() ||
         std::binary_search(schedule.contributors.begin(), schedule.contributors.end(), rank);
}

// True if the rank's piece holds data before the first step.
bool HoldsAtStart(const Schedule& schedule, int rank, int piece) {
  const int chunk = piece / schedule.segments;
  switch (schedule.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kReduce:
      return Counts(schedule, rank);
    case Operation::kBroadcast:
    case Operation::kScatter:
      return rank == schedule.root;
    case Operation::kAllGather:
    case Operation::kGather:
      return chunk == rank;
    case Operation::kAllToAll:
      return chunk < InputChunks(schedule);
    case Operation::kBarrier:
      return false;
  }
  return false;
}

// Part `index` of `parts` nearly equal parts.
std::vector<double> Part(const std::vector<double>& values, int index, int parts) {
  const auto at = [&](int i) { return std::ptrdiff_t(values.size() * size_t(i) / size_t(parts)); };
  return {values.begin() + at(index), values.begin() + at(index + 1)};
}

Holding AtStart(const Schedule& schedule, int rank, int piece, const std::vector<double>& values) {
  Holding holding;
  if (!HoldsAtStart(schedule, rank, piece)) return holding;
  holding.terms = {{rank, piece}};
  const bool own_chunk = schedule.operation == Operation::kAllGather ||  //
                         schedule.operation == Operation::kGather;
  holding.values = own_chunk ? Part(values, piece % schedule.segments, schedule.segments)
                             : Part(values, piece, InputChunks(schedule) * schedule.segments);
  return holding;
}

Holding Sum(const Holding& a, const Holding& b) {
  Holding sum;
  std::merge(a.terms.begin(), a.terms.end(), b.terms.begin(), b.terms.end(),
             std::back_inserter(sum.terms));
  sum.values = a.values.size() < b.values.size() ? b.values : a.values;
  const std::vector<double>& other = a.values.size() < b.values.size() ? a.values : b.values;
  for (size_t i = 0; i < other.size(); ++i) sum.values[i] += other[i];
  return sum;
}

// Replays steps into the memory and the moves of a round.
class StoryReplay {
 public:
  StoryReplay(const Schedule& schedule, const StepGraph& graph)
      : schedule_(schedule), graph_(graph), sent_(size_t(graph.size())) {}

  void Run(int32_t id, Round* round) {
    const StepGraph::Node& node = graph_.node(id);
    const Step& step = schedule_.steps[node.rank][node.index];
    std::vector<Holding>& memory = round->memory[node.rank];
    const auto from_own = [&](Move::Kind kind) {
      Bring({node.rank, node.rank, step.source, step.piece, kind, true}, memory[step.source],
            round);
    };
    switch (step.kind) {
      case StepKind::kSend:
        sent_[id] = memory[step.piece];
        break;
      case StepKind::kReceive:
        Receive(node, Move::Kind::kStore, round);
        break;
      case StepKind::kReceiveReduce:
        Receive(node, Move::Kind::kAdd, round);
        break;
      case StepKind::kCopy:
        from_own(Move::Kind::kStore);
        break;
      case StepKind::kReduce:
        from_own(Move::Kind::kAdd);
        break;
      case StepKind::kReduceFrom:
        SumSet(node.rank, step, round);
        break;
      case StepKind::kReduceToAll:
        SumSet(node.rank, step, round);
        StoreToSet(node.rank, step, round);
        break;
      case StepKind::kStoreTo:
        StoreToSet(node.rank, step, round);
        break;
      case StepKind::kSignal:
      case StepKind::kAwait:
        break;
    }
  }

 private:
  static void Bring(const Move& move, const Holding& what, Round* round) {
    Holding& target = round->memory[move.to][move.target];
    target = move.kind == Move::Kind::kAdd ? Sum(target, what) : Holding(what);
    round->moves.push_back(move);
  }

  void Receive(const StepGraph::Node& node, Move::Kind kind, Round* round) {
    const StepGraph::Node& sender = graph_.node(node.other);
    const Step& send = schedule_.steps[sender.rank][sender.index];
    const Step& receive = schedule_.steps[node.rank][node.index];
    Bring({sender.rank, node.rank, send.piece, receive.piece, kind, false}, sent_[node.other],
          round);
  }

  // The rank's piece becomes the sum of the piece over the step's set.
  void SumSet(int32_t rank, const Step& step, Round* round) {
    const std::vector<int32_t>& set = schedule_.sets[step.set];
    if (!std::binary_search(set.begin(), set.end(), rank)) round->memory[rank][step.piece] = {};
    for (const int32_t from : set) {
      if (from == rank) continue;
      Bring({from, rank, step.piece, step.piece, Move::Kind::kAdd, true},
            round->memory[from][step.piece], round);
    }
  }

  void StoreToSet(int32_t rank, const Step& step, Round* round) {
    for (const int32_t to : schedule_.sets[step.set]) {
      if (to == rank) continue;
      Bring({rank, to, step.piece, step.piece, Move::Kind::kStore, true},
            round->memory[rank][step.piece], round);
    }
  }

  const Schedule& schedule_;
  const StepGraph& graph_;
  std::vector<Holding> sent_;  // by the node of the send
};

std::string NumbersToText(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += fmt::format("{}{:.6g}", text.empty() ? "" : " ", value);
  return text;
}

// The chunk (with its segment) whose data lies in a piece if all goes well.
int PlaceOf(const Schedule& schedule, int piece) {
  return piece < schedule.data_pieces() ? piece : schedule.scratch[piece - schedule.data_pieces()];
}

}  // namespace

absl::StatusOr<Story> TellStory(Schedule schedule, const std::vector<std::vector<double>>& values) {
  TUTTI_ASSIGN_OR_RETURN(const StepGraph graph, StepGraph::Make(schedule));
  const StepGraph::Rounds rounds = graph.CountRounds(false);
  if (int32_t(rounds.order.size()) < graph.size()) {
    return FailedPrecondition("schedule {}: {} of its {} steps never run", schedule.algorithm,
                              graph.size() - int32_t(rounds.order.size()), graph.size());
  }
  // What a rank does within its memory before the first message is told with it.
  std::vector<std::vector<int32_t>> by_round;
  for (const int32_t id : rounds.order) {
    const StepKind kind = graph.node(id).kind;
    if (kind == StepKind::kSignal || kind == StepKind::kAwait) continue;
    const size_t round = std::max<size_t>(1, size_t(rounds.of[id]));
    if (by_round.size() < round) by_round.resize(round);
    by_round[round - 1].push_back(id);
  }
  const int64_t cells = int64_t(by_round.size() + 1) * schedule.ranks * int64_t{schedule.pieces()};
  if (cells > kMaxCells) {
    return ResourceExhausted(
        "{} rounds of {} ranks with {} pieces each are too much to show; ask for fewer ranks or "
        "segments, or for the schedule itself with --text",
        by_round.size(), schedule.ranks, schedule.pieces());
  }
  Story story{.schedule = std::move(schedule), .has_values = !values.empty()};
  Round start;
  for (int rank = 0; rank < story.schedule.ranks; ++rank) {
    std::vector<Holding>& memory = start.memory.emplace_back(story.schedule.pieces());
    for (int piece = 0; piece < story.schedule.data_pieces(); ++piece) {
      memory[piece] = AtStart(story.schedule, rank, piece,
                              values.empty() ? std::vector<double>() : values[rank]);
    }
  }
  story.rounds.push_back(std::move(start));
  StoryReplay replay(story.schedule, graph);
  for (const std::vector<int32_t>& steps : by_round) {
    Round round{.memory = story.rounds.back().memory};
    for (const int32_t id : steps) replay.Run(id, &round);
    story.rounds.push_back(std::move(round));
  }
  for (const int32_t round : graph.CountRounds(true).of) {
    story.rounds_with_signals = std::max(story.rounds_with_signals, round);
  }
  return story;
}

absl::StatusOr<std::vector<std::vector<double>>> ParseValues(std::string_view text, int ranks) {
  std::vector<std::vector<double>> values(1);
  const char* at = text.data();
  const char* const end = at + text.size();
  while (true) {
    double value = 0;
    const auto [behind, error] = std::from_chars(at, end, value);
    if (error != std::errc() || !std::isfinite(value)) {
      return InvalidArgument(
          "--values \"{}\": \"{}\" does not begin with a number; expected numbers with commas "
          "between them, and a slash between ranks: 2,4,6/1,2,3",
          text, std::string_view(at, size_t(end - at)));
    }
    values.back().push_back(value);
    if (behind == end) break;
    if (*behind == '/') values.emplace_back();
    if (*behind != '/' && *behind != ',') {
      return InvalidArgument("--values \"{}\": '{}' stands behind a number; expected , or /", text,
                             *behind);
    }
    at = behind + 1;
  }
  for (size_t rank = 1; rank < values.size(); ++rank) {
    if (values[rank].size() == values[0].size()) continue;
    return InvalidArgument(
        "--values \"{}\": rank {} has {} numbers, rank 0 has {}; expected the same of every rank",
        text, rank, values[rank].size(), values[0].size());
  }
  if (ranks != 0 && values.size() != size_t(ranks)) {
    return InvalidArgument(
        "--values \"{}\" has numbers for {} ranks, but there are {} ranks; expected one list for "
        "each, with / between them",
        text, values.size(), ranks);
  }
  return values;
}

std::string ShortNameOfPiece(const Schedule& schedule, int piece) {
  if (piece >= schedule.data_pieces()) {
    return fmt::format("scratch {}", piece - schedule.data_pieces());
  }
  int chunk = piece / schedule.segments;
  std::string name;
  if (chunk >= InputChunks(schedule)) {
    chunk -= InputChunks(schedule);
    name = "out ";
  }
  name += std::to_string(chunk);
  if (schedule.segments > 1) name += fmt::format(".{}", piece % schedule.segments);
  return name;
}

std::string NameOfPiece(const Schedule& schedule, int piece) {
  const std::string name = ShortNameOfPiece(schedule, piece);
  if (name.starts_with("out ")) return "output " + name.substr(4);
  return name.starts_with("scratch") ? name : "chunk " + name;
}

std::vector<Traffic> TrafficOf(const Story& story) {
  const double piece = 1.0 / (InputChunks(story.schedule) * story.schedule.segments);
  std::vector<Traffic> traffic(story.schedule.ranks);
  for (const Round& round : story.rounds) {
    for (const Move& move : round.moves) {
      if (move.from == move.to) continue;
      if (move.by_memory) {
        traffic[move.kind == Move::Kind::kAdd ? move.to : move.from].by_memory += piece;
        continue;
      }
      traffic[move.from].sent += piece;
      traffic[move.from].messages += 1;
      traffic[move.to].received += piece;
    }
  }
  return traffic;
}

bool IsComplete(const Schedule& schedule, const Holding& holding) {
  switch (schedule.operation) {
    case Operation::kAllReduce:
    case Operation::kReduceScatter:
    case Operation::kReduce:
      break;
    default:
      return !holding.terms.empty();
  }
  std::set<int32_t> ranks;
  for (const Holding::Term& term : holding.terms) ranks.insert(term.rank);
  const size_t expected =
      schedule.contributors.empty() ? size_t(schedule.ranks) : schedule.contributors.size();
  return ranks.size() == expected && holding.terms.size() == expected;
}

std::string ToText(const Story& story, int piece, const Holding& holding) {
  constexpr int kDigits = 10;
  const Schedule& schedule = story.schedule;
  if (holding.terms.empty()) return "·";
  if (story.has_values) return holding.values.empty() ? "-" : NumbersToText(holding.values);
  if (schedule.operation == Operation::kAllToAll) {
    const Holding::Term& term = holding.terms.front();
    return fmt::format("{}:{}", term.rank, ShortNameOfPiece(schedule, term.piece));
  }
  const bool misplaced = std::any_of(
      holding.terms.begin(), holding.terms.end(),
      [&](const Holding::Term& term) { return term.piece != PlaceOf(schedule, piece); });
  std::string text;
  if (schedule.ranks > kDigits) {
    text = holding.terms.size() == 1 ? fmt::format("{}", holding.terms[0].rank)
                                     : fmt::format("{}/{}", holding.terms.size(), schedule.ranks);
  } else {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto count = std::count_if(holding.terms.begin(), holding.terms.end(),
                                       [&](const Holding::Term& t) { return t.rank == rank; });
      text += count == 0 ? "·" : count == 1 ? std::to_string(rank) : "!";
    }
  }
  if (misplaced) text += ":" + ShortNameOfPiece(schedule, holding.terms.front().piece);
  return text;
}

}  // namespace tutti::tools
