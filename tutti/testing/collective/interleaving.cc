#include "tutti/testing/collective/interleaving.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tutti/collective/schedule/execute.h"

namespace tutti::collective {
namespace {

struct Access {
  int owner;
  int piece;
  bool writes;
};

bool InSet(const std::vector<int32_t>& set, int rank) {
  return std::find(set.begin(), set.end(), rank) != set.end();
}

// Everything that a step touches, in its own memory and in others'.
std::vector<Access> AccessesOf(const Schedule& schedule, int rank, const Step& step) {
  std::vector<Access> accesses;
  switch (step.kind) {
    case StepKind::kSend:
      return {{rank, step.piece, false}};
    case StepKind::kReceive:
    case StepKind::kReceiveReduce:
      return {{rank, step.piece, true}};
    case StepKind::kCopy:
    case StepKind::kReduce:
      return {{rank, step.piece, true}, {rank, step.source, false}};
    case StepKind::kSignal:
    case StepKind::kAwait:
      return {};
    default:
      break;
  }
  const bool stores = step.kind != StepKind::kReduceFrom;
  accesses.push_back({rank, step.piece, step.kind != StepKind::kStoreTo});
  for (const int peer : schedule.sets[size_t(step.set)]) {
    if (peer != rank) accesses.push_back({peer, step.piece, stores});
  }
  return accesses;
}

bool IsTaking(StepKind kind) {
  return kind == StepKind::kReceive || kind == StepKind::kReceiveReduce;
}

// The k-th message from one rank to another is the k-th taken: by counting, each time anew.
int OtherEnd(const Schedule& schedule, int rank, int index) {
  const Step& step = schedule.steps[size_t(rank)][size_t(index)];
  const auto same_kind = [&](StepKind kind) {
    return IsTaking(step.kind) ? IsTaking(kind) : kind == step.kind;
  };
  const auto other_kind = [&](StepKind kind) {
    switch (step.kind) {
      case StepKind::kSend:
        return IsTaking(kind);
      case StepKind::kSignal:
        return kind == StepKind::kAwait;
      case StepKind::kAwait:
        return kind == StepKind::kSignal;
      default:
        return kind == StepKind::kSend;
    }
  };
  int before = 0;
  for (int i = 0; i < index; ++i) {
    const Step& earlier = schedule.steps[size_t(rank)][size_t(i)];
    if (earlier.peer == step.peer && same_kind(earlier.kind)) ++before;
  }
  const std::vector<Step>& others = schedule.steps[size_t(step.peer)];
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].peer == rank && other_kind(others[i].kind) && before-- == 0) return int(i);
  }
  return -1;
}

class Game {
 public:
  Game(const Schedule& schedule, std::mt19937_64& random)
      : schedule_(schedule), random_(random), strict_(random() % 2 == 0) {
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      auto& memory = memory_.emplace_back();
      auto& brought = brought_.emplace_back();
      for (int piece = 0; piece < schedule.pieces(); ++piece) {
        brought.push_back(random());
        memory.push_back(Brings(rank, piece) ? brought.back() : random());
      }
      const size_t steps = schedule.steps[size_t(rank)].size();
      states_.emplace_back(steps, kWaiting);
      partners_.emplace_back(steps, -1);
      taken_.emplace_back(steps, 0);
      for (size_t i = 0; i < steps; ++i) {
        if (schedule.steps[size_t(rank)][i].peer >= 0) {
          partners_.back()[i] = OtherEnd(schedule, rank, int(i));
        }
      }
    }
    entered_.resize(size_t(schedule.ranks));
    left_.resize(size_t(schedule.ranks));
  }

  std::string Play() {
    FindStaticFaults();
    while (fault_.empty()) {
      const std::vector<Move> moves = Moves();
      if (moves.empty()) break;
      Do(moves[random_() % moves.size()]);
    }
    if (fault_.empty()) CheckEnd();
    return fault_;
  }

 private:
  enum State { kWaiting, kRunning, kDone };
  struct Move {
    int rank;
    int step;  // -1: the rank enters
    bool start;
  };

  bool Adds(int rank) const {
    return schedule_.contributors.empty() || InSet(schedule_.contributors, rank);
  }

  bool Brings(int rank, int piece) const {
    const int chunk = piece / schedule_.segments;
    if (piece >= schedule_.data_pieces()) return false;
    switch (schedule_.operation) {
      case Operation::kAllGather:
      case Operation::kGather:
        return chunk == rank;
      case Operation::kBroadcast:
      case Operation::kScatter:
        return rank == schedule_.root;
      case Operation::kAllToAll:
        return chunk < schedule_.ranks;
      default:
        return Adds(rank);
    }
  }

  int SizeOf(int piece) const {
    if (piece >= schedule_.data_pieces()) {
      piece = schedule_.scratch[size_t(piece - schedule_.data_pieces())];
    }
    const bool equal = schedule_.operation == Operation::kAllToAll ||
                       schedule_.operation == Operation::kReduceScatter;
    return equal ? piece % schedule_.segments : piece;
  }

  void FindStaticFaults() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      const auto& steps = schedule_.steps[size_t(rank)];
      for (size_t i = 0; i < steps.size(); ++i) {
        int other = steps[i].source;
        if (steps[i].peer >= 0) {
          const int partner = partners_[size_t(rank)][i];
          if (partner < 0) return Fault("a message without its other end");
          other = schedule_.steps[size_t(steps[i].peer)][size_t(partner)].piece;
        }
        if (other >= 0 && SizeOf(other) != SizeOf(steps[i].piece)) return Fault("sizes differ");
        for (const Access& access : AccessesOf(schedule_, rank, steps[i])) {
          if (schedule_.operation == Operation::kAllToAll && access.writes &&
              access.piece < schedule_.ranks * schedule_.segments) {
            return Fault("the input is written");
          }
          if (schedule_.operation == Operation::kBarrier) return Fault("data in a barrier");
        }
      }
    }
  }

  // All that may happen next.
  std::vector<Move> Moves() const {
    std::vector<Move> moves;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (!entered_[size_t(rank)]) {
        moves.push_back({rank, -1, true});
        continue;
      }
      const auto& states = states_[size_t(rank)];
      for (size_t i = 0; i < states.size(); ++i) {
        if (states[i] == kRunning && MayEnd(rank, int(i))) moves.push_back({rank, int(i), false});
        if (states[i] == kWaiting && MayStart(rank, int(i))) moves.push_back({rank, int(i), true});
      }
    }
    return moves;
  }

  bool MayStart(int rank, int index) const {
    const auto& steps = schedule_.steps[size_t(rank)];
    const auto& states = states_[size_t(rank)];
    for (int i = 0; i < index; ++i) {
      if (strict_ && states[size_t(i)] == kWaiting) return false;
      if (states[size_t(i)] != kDone && MustWait(steps[size_t(i)], steps[size_t(index)])) {
        return false;
      }
    }
    return true;
  }

  bool MayEnd(int rank, int index) const {
    const Step& step = schedule_.steps[size_t(rank)][size_t(index)];
    if (step.peer < 0 || step.kind == StepKind::kSignal) return true;
    if (step.kind == StepKind::kSend && !strict_) return true;
    const State other = states_[size_t(step.peer)][size_t(partners_[size_t(rank)][size_t(index)])];
    return step.kind == StepKind::kAwait ? other == kDone : other != kWaiting;
  }

  void Do(const Move& move) {
    if (move.step < 0) {
      entered_[size_t(move.rank)] = true;
    } else if (move.start) {
      Start(move.rank, move.step);
    } else {
      End(move.rank, move.step);
    }
    const auto& states = states_[size_t(move.rank)];
    const bool over = std::all_of(states.begin(), states.end(), [](State s) { return s == kDone; });
    if (!over) return;
    left_[size_t(move.rank)] = true;
    if (schedule_.operation == Operation::kBarrier &&
        std::find(entered_.begin(), entered_.end(), false) != entered_.end()) {
      Fault("a rank left the barrier before another entered");
    }
    for (const Running& running : running_) {
      if (running.access.owner == move.rank) Fault("memory is touched after its rank left");
    }
  }

  void Start(int rank, int index) {
    for (const Access& access : AccessesOf(schedule_, rank, StepAt(rank, index))) {
      if (!entered_[size_t(access.owner)]) Fault("memory is touched before its rank entered");
      if (left_[size_t(access.owner)]) Fault("memory is touched after its rank left");
      for (const Running& other : running_) {
        if (other.access.owner == access.owner && other.access.piece == access.piece &&
            (other.access.writes || access.writes) && (other.rank != rank || other.step != index)) {
          Fault("two steps touch one piece at the same time");
        }
      }
      running_.push_back({rank, index, access});
    }
    states_[size_t(rank)][size_t(index)] = kRunning;
  }

  void End(int rank, int index) {
    const Step& step = StepAt(rank, index);
    Run(rank, index, step);
    states_[size_t(rank)][size_t(index)] = kDone;
    std::erase_if(running_, [&](const Running& r) { return r.rank == rank && r.step == index; });
  }

  void Run(int rank, int index, const Step& step) {
    if (step.peer >= 0) return RunMessage(rank, index, step);
    uint64_t& own = memory_[size_t(rank)][size_t(step.piece)];
    if (step.kind == StepKind::kCopy) own = memory_[size_t(rank)][size_t(step.source)];
    if (step.kind == StepKind::kReduce) own += memory_[size_t(rank)][size_t(step.source)];
    if (step.kind == StepKind::kReduceFrom || step.kind == StepKind::kReduceToAll) {
      uint64_t sum = 0;
      for (const int peer : schedule_.sets[size_t(step.set)]) {
        sum += memory_[size_t(peer)][size_t(step.piece)];
      }
      own = sum;
    }
    if (step.kind == StepKind::kStoreTo || step.kind == StepKind::kReduceToAll) {
      for (const int peer : schedule_.sets[size_t(step.set)]) {
        memory_[size_t(peer)][size_t(step.piece)] = own;
      }
    }
  }

  // The bytes leave when the first of the two ends is over.
  void RunMessage(int rank, int index, const Step& step) {
    if (step.kind == StepKind::kSend) {
      const int receive = partners_[size_t(rank)][size_t(index)];
      if (states_[size_t(step.peer)][size_t(receive)] != kDone) {
        taken_[size_t(rank)][size_t(index)] = memory_[size_t(rank)][size_t(step.piece)];
      }
    } else if (IsTaking(step.kind)) {
      const auto send = size_t(partners_[size_t(rank)][size_t(index)]);
      const auto peer = size_t(step.peer);
      const uint64_t sent = states_[peer][send] == kDone
                                ? taken_[peer][send]
                                : memory_[peer][size_t(schedule_.steps[peer][send].piece)];
      uint64_t& own = memory_[size_t(rank)][size_t(step.piece)];
      own = step.kind == StepKind::kReceive ? sent : own + sent;
    }
  }

  uint64_t Total(int piece) const {
    uint64_t sum = 0;
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (Adds(rank)) sum += brought_[size_t(rank)][size_t(piece)];
    }
    return sum;
  }

  void CheckEnd() {
    for (const auto& states : states_) {
      for (const State state : states) {
        if (state != kDone) return Fault("stuck");
      }
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      for (int piece = 0; piece < schedule_.data_pieces(); ++piece) CheckPiece(rank, piece);
    }
  }

  void CheckPiece(int rank, int piece) {
    const int chunk = piece / schedule_.segments;
    const bool is_root = rank == schedule_.root;
    const auto expect = [&](uint64_t value) {
      if (memory_[size_t(rank)][size_t(piece)] != value) Fault("wrong result");
    };
    const auto of = [&](int source, int from) { return brought_[size_t(source)][size_t(from)]; };
    switch (schedule_.operation) {
      case Operation::kAllReduce:
        return Adds(rank) ? expect(Total(piece)) : void();
      case Operation::kReduce:
        return is_root ? expect(Total(piece)) : void();
      case Operation::kReduceScatter:
        return chunk == rank ? expect(Total(piece)) : void();
      case Operation::kAllGather:
        return expect(of(chunk, piece));
      case Operation::kGather:
        return is_root ? expect(of(chunk, piece)) : void();
      case Operation::kBroadcast:
        return expect(of(schedule_.root, piece));
      case Operation::kScatter:
        return chunk == rank ? expect(of(schedule_.root, piece)) : void();
      case Operation::kAllToAll:
        if (chunk < schedule_.ranks) return;
        return expect(
            of(chunk - schedule_.ranks, rank * schedule_.segments + piece % schedule_.segments));
      case Operation::kBarrier:
        return;
    }
  }

  const Step& StepAt(int rank, int index) const {
    return schedule_.steps[size_t(rank)][size_t(index)];
  }
  void Fault(std::string_view what) {
    if (fault_.empty()) fault_ = what;
  }

  struct Running {
    int rank;
    int step;
    Access access;
  };

  const Schedule& schedule_;
  std::mt19937_64& random_;
  const bool strict_;
  std::vector<std::vector<uint64_t>> brought_;  // per rank and piece
  std::vector<std::vector<uint64_t>> memory_;
  std::vector<std::vector<State>> states_;    // per rank and step
  std::vector<std::vector<int>> partners_;    // per rank and step
  std::vector<std::vector<uint64_t>> taken_;  // per rank and send: what left
  std::vector<bool> entered_;
  std::vector<bool> left_;
  std::vector<Running> running_;
  std::string fault_;
};

// The order of everything as a matrix: who happens before whom.
class Order {
 public:
  explicit Order(const Schedule& schedule) {
    for (const auto& steps : schedule.steps) {
      first_.push_back(size_);
      size_ += int(steps.size()) + 2;  // with the start and the end of the rank
    }
    before_.assign(size_t(size_), std::vector<bool>(size_t(size_)));
    for (int rank = 0; rank < schedule.ranks; ++rank) {
      const auto& steps = schedule.steps[size_t(rank)];
      Put(Start(rank), End(rank, schedule));
      for (int i = 0; i < int(steps.size()); ++i) {
        Put(Start(rank), Of(rank, i));
        Put(Of(rank, i), End(rank, schedule));
        for (int j = i + 1; j < int(steps.size()); ++j) {
          if (MustWait(steps[size_t(i)], steps[size_t(j)])) Put(Of(rank, i), Of(rank, j));
        }
        if (steps[size_t(i)].kind == StepKind::kSignal) {
          const int await = OtherEnd(schedule, rank, i);
          if (await >= 0) Put(Of(rank, i), Of(steps[size_t(i)].peer, await));
        }
      }
    }
    Close();
  }

  int Start(int rank) const { return first_[size_t(rank)]; }
  int Of(int rank, int step) const { return first_[size_t(rank)] + 1 + step; }
  int End(int rank, const Schedule& schedule) const {
    return Of(rank, int(schedule.steps[size_t(rank)].size()));
  }
  bool Before(int a, int b) const { return before_[size_t(a)][size_t(b)]; }

 private:
  void Put(int a, int b) { before_[size_t(a)][size_t(b)] = true; }
  void Close() {
    for (int via = 0; via < size_; ++via) {
      for (int from = 0; from < size_; ++from) {
        if (!Before(from, via)) continue;
        for (int to = 0; to < size_; ++to) {
          if (Before(via, to)) Put(from, to);
        }
      }
    }
  }

  int size_ = 0;
  std::vector<int> first_;
  std::vector<std::vector<bool>> before_;
};

}  // namespace

std::string PlayOnce(const Schedule& schedule, std::mt19937_64& random) {
  return Game(schedule, random).Play();
}

std::string FindUnordered(const Schedule& schedule) {
  const Order order(schedule);
  struct Touch {
    int node;
    bool writes;
    std::string name;
  };
  std::map<std::pair<int, int>, std::vector<Touch>> touches;
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (int piece = 0; piece < schedule.pieces(); ++piece) {
      touches[{rank, piece}].push_back({order.Start(rank), true, "the start"});
      touches[{rank, piece}].push_back({order.End(rank, schedule), true, "the end"});
    }
    for (int i = 0; i < int(schedule.steps[size_t(rank)].size()); ++i) {
      const Step& step = schedule.steps[size_t(rank)][size_t(i)];
      for (const Access& access : AccessesOf(schedule, rank, step)) {
        touches[{access.owner, access.piece}].push_back(
            {order.Of(rank, i), access.writes, Describe(schedule, rank, i)});
      }
    }
  }
  for (const auto& [cell, list] : touches) {
    for (size_t i = 0; i < list.size(); ++i) {
      for (size_t j = i + 1; j < list.size(); ++j) {
        if (list[i].node == list[j].node || (!list[i].writes && !list[j].writes)) continue;
        if (order.Before(list[i].node, list[j].node)) continue;
        if (order.Before(list[j].node, list[i].node)) continue;
        return fmt::format("{} and {} at piece {} of rank {}", list[i].name, list[j].name,
                           cell.second, cell.first);
      }
    }
  }
  if (schedule.operation != Operation::kBarrier) return "";
  for (int a = 0; a < schedule.ranks; ++a) {
    for (int b = 0; b < schedule.ranks; ++b) {
      if (!order.Before(order.Start(a), order.End(b, schedule))) {
        return fmt::format("the start of rank {} and the end of rank {}", a, b);
      }
    }
  }
  return "";
}

}  // namespace tutti::collective
