#include "tutti/collective/engine/operation_table.h"

namespace tutti::collective {
namespace {

// Operations that peers have begun and this rank has not: more than any program has in flight.
constexpr size_t kMaxOpen = 1 << 16;

}  // namespace

OpenOperation* OperationTable::FindOrOpen(uint64_t id) {
  const auto [place, is_new] = open_.try_emplace(id, nullptr);
  if (!is_new) return place->second;
  if (open_.size() > kMaxOpen) {
    open_.erase(place);
    return nullptr;
  }
  if (free_.empty()) {
    slots_.push_back(std::make_unique<OpenOperation>(workshop_, world_));
    free_.push_back(slots_.back().get());
  }
  OpenOperation* operation = free_.back();
  free_.pop_back();
  operation->identity().id = id;
  place->second = operation;
  count_.store(open_.size(), std::memory_order_relaxed);
  return operation;
}

void OperationTable::Close(OpenOperation* operation) {
  open_.erase(operation->identity().id);
  count_.store(open_.size(), std::memory_order_relaxed);
  operation->Reset();
  free_.push_back(operation);
}

}  // namespace tutti::collective
