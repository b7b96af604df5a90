// Because steps start in the order of the list, one number says of a rank which of its steps have
// started, and a message is under way exactly while one of its two ends has started and the other
// has not. So the machine needs no queues: per rank a position, per piece how many sends read it
// and whether a receive writes it. Everything else is over as soon as it starts.
//
// Starting a step never prevents another rank from starting one, so the order in which ranks take
// their turns does not matter: they all get as far as they can, and a schedule is stuck on this
// machine or it is not.
#include "tutti/collective/schedule/execute.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/status.h"

namespace tutti::collective {
namespace {

bool Sends(StepKind kind) { return kind == StepKind::kSend; }
bool Receives(StepKind kind) {
  return kind == StepKind::kReceive || kind == StepKind::kReceiveReduce;
}
bool Signals(StepKind kind) { return kind == StepKind::kSignal; }
bool Awaits(StepKind kind) { return kind == StepKind::kAwait; }

// The messages of one rank in one direction, by peer and then in the order of the list.
struct Ends {
  struct End {
    int32_t peer;
    int32_t step;
  };
  std::vector<End> ends;

  Ends(const std::vector<Step>& steps, bool (*chosen)(StepKind)) {
    for (size_t i = 0; i < steps.size(); ++i) {
      if (chosen(steps[i].kind)) ends.push_back({steps[i].peer, int32_t(i)});
    }
    std::stable_sort(ends.begin(), ends.end(),
                     [](const End& a, const End& b) { return a.peer < b.peer; });
  }

  std::vector<End>::const_iterator First(int peer) const {
    return std::lower_bound(ends.begin(), ends.end(), peer,
                            [](const End& end, int wanted) { return end.peer < wanted; });
  }
};

absl::Status NoOtherEnd(const Schedule& schedule, int rank, int step) {
  const Step& lonely = schedule.steps[size_t(rank)][size_t(step)];
  const char* other = Sends(lonely.kind)     ? "receive that takes it"
                      : Signals(lonely.kind) ? "await that takes it"
                      : Awaits(lonely.kind)  ? "signal for it"
                                             : "send for it";
  return FailedPrecondition("{}: rank {} has no {}", Describe(schedule, rank, step), lonely.peer,
                            other);
}

// Joins all messages of one kind: the k-th from a to b with the k-th that b takes from a.
absl::Status Join(const Schedule& schedule, bool (*gives)(StepKind), bool (*takes)(StepKind),
                  std::vector<std::vector<int32_t>>& partners) {
  std::vector<Ends> taken;
  taken.reserve(schedule.steps.size());
  for (const std::vector<Step>& steps : schedule.steps) taken.emplace_back(steps, takes);
  for (int from = 0; from < schedule.ranks; ++from) {
    const Ends given(schedule.steps[size_t(from)], gives);
    for (auto end = given.ends.begin(); end != given.ends.end();) {
      const int to = end->peer;
      auto other = taken[size_t(to)].First(from);
      for (; end != given.ends.end() && end->peer == to; ++end, ++other) {
        if (other == taken[size_t(to)].ends.end() || other->peer != from) {
          return NoOtherEnd(schedule, from, end->step);
        }
        partners[size_t(from)][size_t(end->step)] = other->step;
        partners[size_t(to)][size_t(other->step)] = end->step;
      }
    }
  }
  for (int rank = 0; rank < schedule.ranks; ++rank) {
    for (const Ends::End& end : taken[size_t(rank)].ends) {
      if (partners[size_t(rank)][size_t(end.step)] < 0) {
        return NoOtherEnd(schedule, rank, end.step);
      }
    }
  }
  return absl::OkStatus();
}

class Machine {
 public:
  Machine(const Schedule& schedule, const std::vector<std::vector<int32_t>>& partners,
          ExecutionObserver& observer)
      : schedule_(schedule),
        partners_(partners),
        observer_(observer),
        ranks_(size_t(schedule.ranks)),
        sent_from_(size_t(schedule.ranks) * size_t(schedule.pieces())),
        received_into_(sent_from_.size()) {}

  absl::Status Run() {
    for (int rank = 0; rank < schedule_.ranks; ++rank) runnable_.push_back(rank);
    while (!runnable_.empty()) {
      const int rank = runnable_.back();
      runnable_.pop_back();
      while (CanStart(rank)) Start(rank);
    }
    for (int rank = 0; rank < schedule_.ranks; ++rank) {
      if (!Finished(rank)) return Stuck(rank);
    }
    return absl::OkStatus();
  }

 private:
  struct Rank {
    int next = 0;       // the first step that has not started
    int under_way = 0;  // messages with one end started: this one
    bool awaiting = false;
  };

  const std::vector<Step>& StepsOf(int rank) const { return schedule_.steps[size_t(rank)]; }
  bool Done(int rank) const { return size_t(ranks_[size_t(rank)].next) == StepsOf(rank).size(); }
  bool Finished(int rank) const { return Done(rank) && ranks_[size_t(rank)].under_way == 0; }
  int PartnerOf(int rank, int step) const { return partners_[size_t(rank)][size_t(step)]; }
  size_t Cell(int rank, int piece) const {
    return size_t(rank) * size_t(schedule_.pieces()) + size_t(piece);
  }

  // The order rules of Schedule; all that is under way is messages and at most one await.
  bool CanStart(int rank) const {
    const Rank& state = ranks_[size_t(rank)];
    if (Done(rank) || state.awaiting) return false;
    const Step& step = StepsOf(rank)[size_t(state.next)];
    if (step.kind == StepKind::kSignal) return state.under_way == 0;
    const Touched touched = TouchedBy(step);
    const auto free = [&](int piece) { return piece < 0 || !received_into_[Cell(rank, piece)]; };
    return free(touched.read) && free(touched.also_read) && free(touched.write) &&
           (touched.write < 0 || sent_from_[Cell(rank, touched.write)] == 0);
  }

  void Start(int rank) {
    const int index = ranks_[size_t(rank)].next++;
    const Step& step = StepsOf(rank)[size_t(index)];
    observer_.Started(rank, index);
    switch (step.kind) {
      case StepKind::kSend:
      case StepKind::kReceive:
      case StepKind::kReceiveReduce:
        return StartMessage(rank, index);
      case StepKind::kSignal:
        // The peer may be waiting for exactly this one.
        if (ranks_[size_t(step.peer)].awaiting) FinishAwait(step.peer);
        return;
      case StepKind::kAwait:
        ++ranks_[size_t(rank)].under_way;
        ranks_[size_t(rank)].awaiting = true;
        return FinishAwait(rank);
      default:
        return observer_.Computed(rank, index);
    }
  }

  void StartMessage(int rank, int index) {
    const int peer = StepsOf(rank)[size_t(index)].peer;
    const int partner = PartnerOf(rank, index);
    if (partner >= ranks_[size_t(peer)].next) return MarkUnderWay(rank, index, 1);
    MarkUnderWay(peer, partner, -1);
    if (Sends(StepsOf(rank)[size_t(index)].kind)) {
      observer_.Delivered(rank, index, peer, partner);
    } else {
      observer_.Delivered(peer, partner, rank, index);
    }
    runnable_.push_back(peer);
  }

  void MarkUnderWay(int rank, int index, int change) {
    const Step& step = StepsOf(rank)[size_t(index)];
    ranks_[size_t(rank)].under_way += change;
    if (Sends(step.kind)) {
      sent_from_[Cell(rank, step.piece)] += change;
    } else {
      received_into_[Cell(rank, step.piece)] = change > 0;
    }
  }

  // Ends the await that the rank is in if its signal has been given.
  void FinishAwait(int rank) {
    Rank& state = ranks_[size_t(rank)];
    const int await = state.next - 1;
    const int peer = StepsOf(rank)[size_t(await)].peer;
    const int signal = PartnerOf(rank, await);
    if (signal >= ranks_[size_t(peer)].next) return;
    state.awaiting = false;
    --state.under_way;
    observer_.Awaited(rank, await, peer, signal);
    runnable_.push_back(rank);
  }

  // The step of a rank that got stuck for which all others of the rank wait: its other end has not
  // started.
  int Blocker(int rank) const {
    const Rank& state = ranks_[size_t(rank)];
    for (int i = 0; i < state.next; ++i) {
      const int partner = PartnerOf(rank, i);
      const int peer = StepsOf(rank)[size_t(i)].peer;
      const bool under_way = partner >= 0 && StepsOf(rank)[size_t(i)].kind != StepKind::kSignal &&
                             partner >= ranks_[size_t(peer)].next;
      if (under_way &&
          (Done(rank) || MustWait(StepsOf(rank)[size_t(i)], StepsOf(rank)[size_t(state.next)]))) {
        return i;
      }
    }
    return -1;
  }

  absl::Status Stuck(int rank) const {
    std::string cycle;
    std::vector<bool> seen(ranks_.size());
    for (int hops = 0; hops < kShownWaits && !seen[size_t(rank)]; ++hops) {
      const int blocker = Blocker(rank);
      if (blocker < 0) break;
      seen[size_t(rank)] = true;
      const int peer = StepsOf(rank)[size_t(blocker)].peer;
      cycle += fmt::format("{}{} waits for rank {} to reach step {}", hops == 0 ? "" : "; ",
                           Describe(schedule_, rank, blocker), peer, PartnerOf(rank, blocker));
      rank = peer;
    }
    return FailedPrecondition("deadlock: {}", cycle);
  }

  static constexpr int kShownWaits = 4;

  const Schedule& schedule_;
  const std::vector<std::vector<int32_t>>& partners_;
  ExecutionObserver& observer_;
  std::vector<Rank> ranks_;
  std::vector<int32_t> sent_from_;      // per rank and piece: sends under way
  std::vector<uint8_t> received_into_;  // per rank and piece: a receive is under way
  std::vector<int> runnable_;
};

}  // namespace

absl::StatusOr<std::vector<std::vector<int32_t>>> MatchMessages(const Schedule& schedule) {
  std::vector<std::vector<int32_t>> partners;
  for (const std::vector<Step>& steps : schedule.steps) partners.emplace_back(steps.size(), -1);
  TUTTI_RETURN_IF_ERROR(Join(schedule, Sends, Receives, partners));
  TUTTI_RETURN_IF_ERROR(Join(schedule, Signals, Awaits, partners));
  return partners;
}

absl::Status Execute(const Schedule& schedule, ExecutionObserver& observer) {
  TUTTI_ASSIGN_OR_RETURN(const auto partners, MatchMessages(schedule));
  return Machine(schedule, partners, observer).Run();
}

std::string Describe(const Schedule& schedule, int rank, int step) {
  return fmt::format("rank {}, step {} ({})", rank, step,
                     ToText(schedule.steps[size_t(rank)][size_t(step)]));
}

}  // namespace tutti::collective
