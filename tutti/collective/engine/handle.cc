#include "tutti/collective/engine/handle.h"

#include "tutti/base/status.h"
#include "tutti/collective/engine/engine.h"

namespace tutti::collective {

std::function<void(const absl::Status&)> Handle::Impl::Finish(absl::Status how) {
  status = std::move(how);
  const State before = state.exchange(State::kDone, std::memory_order_acq_rel);
  if (before != State::kOpenWithCallback) return {};
  return std::exchange(callback, {});
}

bool Handle::done() const { return impl_ == nullptr || impl_->done(); }

absl::Status Handle::Wait() const {
  if (impl_ == nullptr) return FailedPrecondition("an empty handle: no operation was started");
  if (!impl_->done()) impl_->engine->Wait(*impl_);
  return impl_->status;
}

void Handle::OnDone(std::function<void(const absl::Status&)> callback) const {
  if (impl_ == nullptr) {
    callback(FailedPrecondition("an empty handle: no operation was started"));
    return;
  }
  if (!impl_->done()) {
    impl_->callback = callback;
    Impl::State open = Impl::State::kOpen;
    if (impl_->state.compare_exchange_strong(open, Impl::State::kOpenWithCallback,
                                             std::memory_order_acq_rel)) {
      return;
    }
  }
  callback(impl_->status);
}

std::string_view Handle::algorithm() const { return impl_ == nullptr ? "" : impl_->algorithm; }

void HandlePool::Release() {
  std::unique_lock lock(mutex_);
  owned_ = false;
  if (on_loan_ > 0) return;
  lock.unlock();
  delete this;
}

HandlePool::~HandlePool() {
  for (void* block : free_) ::operator delete(block);
}

void* HandlePool::Take(size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (block_bytes_ == 0) block_bytes_ = bytes;
  ++on_loan_;
  if (bytes == block_bytes_ && !free_.empty()) {
    void* block = free_.back();
    free_.pop_back();
    return block;
  }
  return ::operator new(bytes);
}

void HandlePool::Return(void* block, size_t bytes) {
  std::unique_lock lock(mutex_);
  if (bytes == block_bytes_) {
    free_.push_back(block);
  } else {
    ::operator delete(block);
  }
  if (--on_loan_ > 0 || owned_) return;
  lock.unlock();
  delete this;
}

}  // namespace tutti::collective
