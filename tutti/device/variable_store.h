#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/device/counted_mutex.h"
#include "tutti/device/pool.h"
#include "tutti/graph/graph.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// The value of one variable, copied on write: reading takes a reference; an update works in place
// when nobody else holds one and in a fresh copy otherwise. So a snapshot costs nothing and never
// changes. Thread-safe.
class VariableState {
 public:
  // `cloned_bytes` counts the copies that updates had to make, `lock_nanos` the time that readers
  // and updates waited for each other.
  VariableState(std::string name, ValueType declared,
                std::shared_ptr<std::atomic<int64_t>> cloned_bytes = nullptr,
                std::shared_ptr<std::atomic<int64_t>> lock_nanos = nullptr)
      : name_(std::move(name)),
        declared_(std::move(declared)),
        cloned_bytes_(std::move(cloned_bytes)),
        mutex_(std::move(lock_nanos)) {}
  const std::string& name() const { return name_; }

  // FAILED_PRECONDITION, naming both types, unless a graph may declare the variable as `type`:
  // with the dtype of the first declaration, and a shape that agrees with it or with the value.
  absl::Status CheckDeclaration(const ValueType& type) const;

  bool initialized() const;
  int64_t bytes() const;  // of the value; 0 without one

  // The current value; FAILED_PRECONDITION, saying what to do, when there is none.
  absl::StatusOr<Tensor> Read() const;

  // The same for a value that other processes want. If `pool` has memory that they can read in
  // place, the value moves there once, and its later versions are made there: a send then copies
  // nothing. Variables that are updated by rows do not move: their rows are sent, not the table.
  // REQUIRES: `pool` outlives all later calls, as that of the variable's device does.
  absl::StatusOr<Tensor> ReadToSend(MemoryPool& pool);
  // Plans on this device send the whole value to others.
  void MarkSent() { sent_.store(true, std::memory_order_relaxed); }
  bool is_sent() const { return sent_.load(std::memory_order_relaxed); }

  // The value for a save, which holds it for long. A dense variable gives a reference, and its next
  // update copies it on its way through memory. One that is updated by rows would be copied as a
  // whole under the lock by the next update of a few rows: it is copied here instead, in pieces
  // between which reads and updates go on. Every row is as one update left it. ABORTED if the shape
  // changes meanwhile.
  absl::StatusOr<Tensor> Snapshot() const;
  // Updates of this variable change some of its rows.
  void MarkUpdatedByRows() { updated_by_rows_.store(true, std::memory_order_relaxed); }

  // Replaces the value. No copy: the variable shares the tensor's memory from now on.
  void Assign(Tensor value);

  // Calls update(value) with a tensor that may be changed: updates of one variable are atomic and
  // come one after the other. `update` returns a Status; on an error of its own the value may be
  // half changed, so updates check their arguments first.
  template <typename Update>
  absl::Status Modify(Update&& update) {
    std::lock_guard lock(mutex_);
    TUTTI_RETURN_IF_ERROR(MakeWritable());
    return update(value_);
  }

  // Locks several variables in a fixed order. For fused updates.
  CountedMutex& mutex() { return mutex_; }
  // Makes the value safe to change. REQUIRES: mutex() is held.
  absl::Status MakeWritable();
  // The same for a caller that writes the whole value anyway. If the value is referenced elsewhere,
  // it gets new memory and the old tensor is returned: the caller must copy the bytes from it, or
  // put it back into value_locked(). An invalid tensor: there is nothing to copy. REQUIRES: mutex()
  // is held.
  absl::StatusOr<Tensor> MakeFresh();
  // Memory for another value, where such values of this variable lie. REQUIRES: mutex() is held.
  absl::StatusOr<Tensor> Allocate(const ValueType& type);
  Tensor& value_locked() { return value_; }

 private:
  absl::Status NoValue() const;

  const std::string name_;
  const ValueType declared_;                                  // by the first graph that named it
  const std::shared_ptr<std::atomic<int64_t>> cloned_bytes_;  // may be null
  std::atomic<bool> updated_by_rows_{false};
  std::atomic<bool> sent_{false};
  mutable CountedMutex mutex_;
  Tensor value_;
  MemoryPool* pool_ = nullptr;      // where the value moved, or null
  const Buffer* pooled_ = nullptr;  // the last memory from there, perhaps given back since
};

// The variables of a device, by (container, name). Thread-safe; a state lives as long as the store
// or the longest holder of it.
class VariableStore {
 public:
  // Made without a value when there is none. FAILED_PRECONDITION when another graph has declared it
  // with another dtype or shape.
  absl::StatusOr<std::shared_ptr<VariableState>> FindOrCreate(const std::string& container,
                                                              const std::string& name,
                                                              const ValueType& declared);
  // Null when there is none.
  std::shared_ptr<VariableState> Find(const std::string& container, const std::string& name) const;
  std::vector<std::shared_ptr<VariableState>> List() const;
  // Forgets the variables of a container. Plans that hold one keep it alive, but new ones do not
  // see it.
  void Clear(const std::string& container);

  // How much updates have copied so far because somebody held the value.
  int64_t cloned_bytes() const { return cloned_bytes_->load(std::memory_order_relaxed); }
  // How long readers and updates have waited for each other so far, all threads together.
  int64_t lock_nanos() const { return lock_nanos_->load(std::memory_order_relaxed); }

 private:
  const std::shared_ptr<std::atomic<int64_t>> cloned_bytes_ =
      std::make_shared<std::atomic<int64_t>>(0);
  const std::shared_ptr<std::atomic<int64_t>> lock_nanos_ =
      std::make_shared<std::atomic<int64_t>>(0);
  mutable std::mutex mutex_;
  std::map<std::pair<std::string, std::string>, std::shared_ptr<VariableState>> states_;
};

}  // namespace tutti
