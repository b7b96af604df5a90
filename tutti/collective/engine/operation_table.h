#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "tutti/collective/operation/open_operation.h"

namespace tutti::collective {

// The open operations of a rank, by id: those that were called here, and those for which a message
// of a peer has arrived. OpenOperation objects are reused. Guarded by the engine's lock, except
// count().
class OperationTable {
 public:
  OperationTable(const Workshop& workshop, int world) : workshop_(workshop), world_(world) {
    open_.reserve(256);
  }

  // The operation of this id, opened if there is none; null if too many are open.
  OpenOperation* FindOrOpen(uint64_t id);
  void Close(OpenOperation* operation);

  bool empty() const { return open_.empty(); }
  size_t size() const { return open_.size(); }
  OpenOperation* any() const { return open_.begin()->second; }  // REQUIRES: !empty()
  // From any thread.
  size_t count() const { return count_.load(std::memory_order_relaxed); }

  template <typename Function>
  void ForEach(const Function& function) const {
    for (const auto& [id, operation] : open_) function(*operation);
  }

 private:
  const Workshop workshop_;
  const int world_;
  absl::flat_hash_map<uint64_t, OpenOperation*> open_;
  std::vector<std::unique_ptr<OpenOperation>> slots_;
  std::vector<OpenOperation*> free_;
  std::atomic<size_t> count_{0};
};

}  // namespace tutti::collective
