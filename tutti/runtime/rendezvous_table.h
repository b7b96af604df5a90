#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "tutti/runtime/rendezvous.h"
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

  std::shared_ptr<Rendezvous> FindOrMake(const StepId& id);

  // The step is over: what waits in its rendezvous ends with `reason`, and values are dropped.
  // Nothing happens when the step has none.
  void Remove(const StepId& id, const absl::Status& reason);
  // The same for all steps of a session.
  void RemoveSession(uint64_t session, const absl::Status& reason);

  size_t size() const;

 private:
  const Make make_;
  mutable std::mutex mutex_;
  std::unordered_map<StepId, std::shared_ptr<Rendezvous>, StepIdHash> by_step_;
};

}  // namespace tutti
