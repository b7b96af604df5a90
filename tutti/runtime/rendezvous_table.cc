#include "tutti/runtime/rendezvous_table.h"

#include <utility>
#include <vector>

#include "tutti/runtime/local_rendezvous.h"

namespace tutti {

RendezvousTable::RendezvousTable(Make make)
    : make_(make != nullptr ? std::move(make)
                            : [](const StepId&) { return std::make_shared<LocalRendezvous>(); }) {}

std::shared_ptr<Rendezvous> RendezvousTable::FindOrMake(const StepId& id) {
  std::lock_guard lock(mutex_);
  auto& rendezvous = by_step_[id];
  if (rendezvous == nullptr) rendezvous = make_(id);
  return rendezvous;
}

void RendezvousTable::Remove(const StepId& id, const absl::Status& reason) {
  std::shared_ptr<Rendezvous> removed;
  {
    std::lock_guard lock(mutex_);
    const auto it = by_step_.find(id);
    if (it == by_step_.end()) return;
    removed = std::move(it->second);
    by_step_.erase(it);
  }
  removed->Abort(reason);
}

void RendezvousTable::RemoveSession(uint64_t session, const absl::Status& reason) {
  std::vector<std::shared_ptr<Rendezvous>> removed;
  {
    std::lock_guard lock(mutex_);
    for (auto it = by_step_.begin(); it != by_step_.end();) {
      if (it->first.session == session) {
        removed.push_back(std::move(it->second));
        it = by_step_.erase(it);
      } else {
        ++it;
      }
    }
  }
  for (const auto& rendezvous : removed) rendezvous->Abort(reason);
}

size_t RendezvousTable::size() const {
  std::lock_guard lock(mutex_);
  return by_step_.size();
}

}  // namespace tutti
