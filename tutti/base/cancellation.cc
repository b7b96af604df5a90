#include "tutti/base/cancellation.h"

#include <thread>
#include <utility>

namespace tutti {
namespace {
thread_local const Cancellation* running_on_this_thread = nullptr;
}  // namespace

absl::Status Cancellation::status() const {
  if (!cancelled()) return absl::OkStatus();
  std::lock_guard lock(mutex_);
  return reason_;
}

void Cancellation::Cancel(absl::Status reason) {
  std::map<Handle, std::function<void()>> callbacks;
  {
    std::lock_guard lock(mutex_);
    if (cancelled()) return;
    reason_ = std::move(reason);
    callbacks.swap(callbacks_);
    callbacks_running_.store(!callbacks.empty(), std::memory_order_release);
    cancelled_.store(true, std::memory_order_release);
  }
  running_on_this_thread = this;
  for (auto& [handle, callback] : callbacks) callback();
  running_on_this_thread = nullptr;
  callbacks_running_.store(false, std::memory_order_release);
  callbacks_running_.notify_all();
}

Cancellation::Handle Cancellation::Register(std::function<void()> callback) {
  std::lock_guard lock(mutex_);
  if (cancelled()) return kNone;
  const Handle handle = next_++;
  callbacks_.emplace(handle, std::move(callback));
  return handle;
}

bool Cancellation::Deregister(Handle handle) {
  if (handle == kNone) return false;
  {
    std::lock_guard lock(mutex_);
    if (callbacks_.erase(handle) > 0) return true;
  }
  if (running_on_this_thread != this) callbacks_running_.wait(true, std::memory_order_acquire);
  return false;
}

void Cancellation::Forget(Handle handle) {
  if (handle == kNone) return;
  std::function<void()> forgotten;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    const auto it = callbacks_.find(handle);
    if (it == callbacks_.end()) return;
    forgotten = std::move(it->second);
    callbacks_.erase(it);
  }
}

}  // namespace tutti
