#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "tutti/runtime/rendezvous/rendezvous.h"
#include "tutti/runtime/step_id.h"

namespace tutti {

// The rendezvous of all steps of a task, by step. A value from another task may arrive before the
// request that starts its step: it waits in the step's rendezvous, which is made by whoever asks
// for it first. Thread-safe.
class RendezvousTable {
 public:
  using Make = std::function<std::shared_ptr<Rendezvous>(const StepId&)>;

  // `make`: how the rendezvous of a step is made; empty: a LocalRendezvous.
  explicit RendezvousTable(Make make = nullptr);

  // Null where there is none.
  std::shared_ptr<Rendezvous> Find(const StepId& id) const;
  std::shared_ptr<Rendezvous> FindOrMake(const StepId& id);
  // The same for a value from another task: null when the step is over, as far back as the table
  // remembers. Such a value is late, and nobody will ask for it.
  std::shared_ptr<Rendezvous> FindOrMakeForValue(const StepId& id);

  // The step is over: what waits in its rendezvous ends with `reason`, and values are dropped.
  void Remove(const StepId& id, const absl::Status& reason);
  // The same for all steps of a session.
  void RemoveSession(uint64_t session, const absl::Status& reason);

  // Calls `visit` with the rendezvous of every step, without a lock held.
  void ForEach(const std::function<void(Rendezvous&)>& visit) const;
  size_t size() const;

 private:
  // Steps that are remembered when they are over. A late value comes within milliseconds.
  static constexpr size_t kMostClosed = 4096;

  const Make make_;
  mutable std::mutex mutex_;
  std::unordered_map<StepId, std::shared_ptr<Rendezvous>, StepIdHash> by_step_;
  std::unordered_set<StepId, StepIdHash> closed_;
  std::deque<StepId> closed_order_;  // oldest first
};

}  // namespace tutti
