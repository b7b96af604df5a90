#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tutti/collective/communicator.h"

namespace tutti::collective {

class Engine;

// What the copies of a Handle share. The engine calls Finish once.
struct Handle::Impl {
  Impl(Engine* engine, std::string_view algorithm) : engine(engine), algorithm(algorithm) {}

  bool done() const { return state.load(std::memory_order_acquire) == State::kDone; }
  // Ends the operation. Returns the callback to be called with no lock held; mostly none.
  std::function<void(const absl::Status&)> Finish(absl::Status how);

  enum class State : uint8_t { kOpen, kOpenWithCallback, kDone };
  std::atomic<State> state{State::kOpen};
  Engine* const engine;        // good until done
  std::string_view algorithm;  // static text
  absl::Status status;         // set before kDone
  std::function<void(const absl::Status&)> callback;
};

// Blocks of one size for the shared state of handles, so that starting an operation does not call
// the system's allocator. Handles may outlive their communicator: the pool ends when its owner has
// let go of it and the last block is back. Thread-safe.
class HandlePool {
 public:
  static HandlePool* Create() { return new HandlePool; }
  void Release();  // by the owner, once

  void* Take(size_t bytes);
  void Return(void* block, size_t bytes);

 private:
  HandlePool() = default;
  ~HandlePool();
  std::mutex mutex_;
  size_t block_bytes_ = 0;  // of the first request: all have one size
  size_t on_loan_ = 0;
  bool owned_ = true;
  std::vector<void*> free_;
};

template <typename T>
struct HandleAllocator {
  using value_type = T;
  explicit HandleAllocator(HandlePool* pool) : pool(pool) {}
  template <typename U>
  explicit(false) HandleAllocator(const HandleAllocator<U>& other) : pool(other.pool) {}
  T* allocate(size_t n) { return static_cast<T*>(pool->Take(n * sizeof(T))); }
  void deallocate(T* block, size_t n) { pool->Return(block, n * sizeof(T)); }
  bool operator==(const HandleAllocator&) const = default;
  HandlePool* pool;
};

}  // namespace tutti::collective
