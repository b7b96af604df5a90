// From a schedule to what happens in it.
//
// Rounds come from the step graph: a message is one round later than the latest thing that either
// of its ends has to wait for. So the moves of one round do not depend on each other, and a round
// is replayed by reading all that its moves take and only then writing what they bring.

#include "tools/tutti/explain_story.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <set>
#include <span>

#include "tutti/base/status.h"
#include "tutti/collective/step_graph.h"

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

// What a step moves. The receiving end tells of a message, so that each is told once.
void AddMoves(const Schedule& schedule, const StepGraph& graph, int32_t id,
              std::vector<Move>* moves) {
  const StepGraph::Node& node = graph.node(id);
  const Step& step = schedule.steps[node.rank][node.index];
  const auto own = [&](Move::Kind kind, int source) {
    moves->push_back({node.rank, node.rank, source, step.piece, kind, true});
  };
  switch (step.kind) {
    case StepKind::kReceive:
    case StepKind::kReceiveReduce: {
      const StepGraph::Node& sender = graph.node(node.other);
      const Step& send = schedule.steps[sender.rank][sender.index];
      moves->push_back({sender.rank, node.rank, send.piece, step.piece,
                        step.kind == StepKind::kReceive ? Move::Kind::kStore : Move::Kind::kAdd,
                        false});
      break;
    }
    case StepKind::kCopy:
      own(Move::Kind::kStore, step.source);
      break;
    case StepKind::kReduce:
      own(Move::Kind::kAdd, step.source);
      break;
    default:
      break;
  }
}

// One round's steps, read first and written then.
class RoundReplay {
 public:
  RoundReplay(const Schedule& schedule, const StepGraph& graph, Round* round)
      : schedule_(schedule), graph_(graph), round_(round), before_(round->memory) {}

  void Add(int32_t id) {
    const StepGraph::Node& node = graph_.node(id);
    const Step& step = schedule_.steps[node.rank][node.index];
    switch (step.kind) {
      case StepKind::kReduceFrom:
        AddSum(node.rank, step, {&node.rank, 1});
        break;
      case StepKind::kReduceToAll:
        AddSum(node.rank, step, schedule_.sets[step.set]);
        break;
      case StepKind::kStoreTo:
        for (const int32_t to : schedule_.sets[step.set]) {
          if (to != node.rank) Store(node.rank, to, step.piece, before_[node.rank][step.piece]);
        }
        break;
      default:
        AddMessage(id);
    }
  }

 private:
  // The sum over the step's set, into the same piece of each of `targets`.
  void AddSum(int32_t rank, const Step& step, std::span<const int32_t> targets) {
    Holding sum;
    for (const int32_t from : schedule_.sets[step.set]) {
      sum = Sum(sum, before_[from][step.piece]);
      if (from == rank) continue;
      round_->moves.push_back({from, rank, step.piece, step.piece, Move::Kind::kAdd, true});
    }
    for (const int32_t to : targets) {
      if (to == rank) {
        round_->memory[to][step.piece] = sum;
      } else {
        Store(rank, to, step.piece, sum);
      }
    }
  }

  void Store(int32_t from, int32_t to, int32_t piece, const Holding& what) {
    round_->moves.push_back({from, to, piece, piece, Move::Kind::kStore, true});
    round_->memory[to][piece] = what;
  }

  void AddMessage(int32_t id) {
    const size_t first = round_->moves.size();
    AddMoves(schedule_, graph_, id, &round_->moves);
    for (size_t i = first; i < round_->moves.size(); ++i) {
      const Move& move = round_->moves[i];
      const Holding& what = before_[move.from][move.source];
      Holding& target = round_->memory[move.to][move.target];
      target = move.kind == Move::Kind::kAdd ? Sum(target, what) : what;
    }
  }

  const Schedule& schedule_;
  const StepGraph& graph_;
  Round* round_;
  const std::vector<std::vector<Holding>> before_;
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
  const std::vector<int32_t> round_of = graph.Rounds();
  std::vector<std::vector<int32_t>> by_round;
  for (int32_t id = 0; id < graph.size(); ++id) {
    const StepKind kind = graph.node(id).kind;
    if (kind == StepKind::kSignal || kind == StepKind::kAwait) continue;
    const auto round = size_t(round_of[id]);
    if (round == 0) {
      return FailedPrecondition("schedule {}: step {} of rank {} never runs", schedule.algorithm,
                                graph.node(id).index, graph.node(id).rank);
    }
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
  for (const std::vector<int32_t>& steps : by_round) {
    Round round{.memory = story.rounds.back().memory};
    RoundReplay replay(story.schedule, graph, &round);
    for (const int32_t id : steps) replay.Add(id);
    story.rounds.push_back(std::move(round));
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
