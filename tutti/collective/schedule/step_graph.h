#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// The steps of all ranks of a schedule in one row, with what each waits for: the earlier steps of
// its rank that MustWait names (those that follow from others left out), and the other end of its
// message. Linear in the number of steps.
class StepGraph {
 public:
  struct Node {
    StepKind kind;
    int32_t rank = -1;
    int32_t index = -1;  // in the rank's list
    int32_t other = -1;  // the node at the other end of the message; -1 for none
    int32_t waits = 0;   // nodes of its rank that must be done before it
    int32_t next = 0;    // see Next
  };

  // REQUIRES: every number in the schedule is in its range, as ParseSchedule and Verify check.
  // FAILED_PRECONDITION if a message has no other end.
  static absl::StatusOr<StepGraph> Make(const Schedule& schedule);

  int32_t size() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  const Node& node(int32_t id) const { return nodes_[static_cast<size_t>(id)]; }
  // The nodes that wait for this one.
  std::span<const int32_t> Next(int32_t id) const {
    const Node* node = &nodes_[static_cast<size_t>(id)];
    return {next_.data() + node[0].next, next_.data() + node[1].next};
  }

  struct Rounds {
    std::vector<int32_t> of;     // by node: the number of the round at whose end it is done
    std::vector<int32_t> order;  // nodes that run, each behind all that it waits for
  };
  // Rounds as CountWork counts them: a message and a memory step take one, from the start of the
  // send, and wait for nothing but what MustWait says; copies and sums within a rank take none. So
  // a rank may receive many messages in one round. With `signals` they take a round too; without,
  // none, as they carry nothing. Nodes that a deadlock keeps from running are not in `order`.
  Rounds CountRounds(bool signals) const;

 private:
  // Lists the edges, (earlier, later), by their earlier node.
  void Index(std::span<const std::pair<int32_t, int32_t>> edges);

  std::vector<Node> nodes_;  // and one more, that ends the last one's list
  std::vector<int32_t> next_;
};

inline bool IsSend(StepKind kind) { return kind == StepKind::kSend || kind == StepKind::kSignal; }
inline bool IsReceive(StepKind kind) {
  return kind == StepKind::kReceive || kind == StepKind::kReceiveReduce || kind == StepKind::kAwait;
}

}  // namespace tutti::collective
