#include "tutti/runtime/rendezvous/rendezvous_table.h"

#include <utility>
#include <vector>

#include "tutti/runtime/rendezvous/local_rendezvous.h"

namespace tutti {

RendezvousTable::RendezvousTable(Make make)
    : make_(make != nullptr ? std::move(make)
                            : [](const StepId&) { return std::make_shared<LocalRendezvous>(); }) {}

std::shared_ptr<Rendezvous> RendezvousTable::Find(const StepId& id) const {
  std::lock_guard lock(mutex_);
  const auto it = by_step_.find(id);
  return it == by_step_.end() ? nullptr : it->second;
}

std::shared_ptr<Rendezvous> RendezvousTable::FindOrMake(const StepId& id) {
  std::lock_guard lock(mutex_);
  auto& rendezvous = by_step_[id];
  if (rendezvous == nullptr) rendezvous = make_(id);
  return rendezvous;
}

std::shared_ptr<Rendezvous> RendezvousTable::FindOrMakeForValue(const StepId& id) {
  std::lock_guard lock(mutex_);
  if (closed_.contains(id)) return nullptr;
  auto& rendezvous = by_step_[id];
  if (rendezvous == nullptr) rendezvous = make_(id);
  return rendezvous;
}

void RendezvousTable::Remove(const StepId& id, const absl::Status& reason) {
  std::shared_ptr<Rendezvous> removed;
  {
    std::lock_guard lock(mutex_);
    if (closed_.insert(id).second) {
      closed_order_.push_back(id);
      if (closed_order_.size() > kMostClosed) {
        closed_.erase(closed_order_.front());
        closed_order_.pop_front();
      }
    }
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

void RendezvousTable::ForEach(const std::function<void(Rendezvous&)>& visit) const {
  std::vector<std::shared_ptr<Rendezvous>> all;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [id, rendezvous] : by_step_) all.push_back(rendezvous);
  }
  for (const auto& rendezvous : all) visit(*rendezvous);
}

size_t RendezvousTable::size() const {
  std::lock_guard lock(mutex_);
  return by_step_.size();
}

}  // namespace tutti
