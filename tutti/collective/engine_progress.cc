#include <algorithm>
#include <chrono>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/collective/engine.h"

namespace tutti::collective {
namespace {

// The longest sleep: how soon a verdict that does not come, or a late rank, is noticed.
constexpr int64_t kSleepNanos = 50'000'000;
// While callers drive, the service thread looks this often whether they still do. Waking it at the
// end of every wait would cost two switches of threads an operation; so does each look, where ranks
// fill the cores. An operation that nobody waits for is taken up within this time.
constexpr auto kPark = std::chrono::milliseconds(2);

}  // namespace

bool Engine::TakeMessages() {
  bool moved = transport_->Progress();
  net::Transport::ShortMessage message;
  while (transport_->NextShort(&message)) {
    moved = true;
    OnShort(message);
  }
  return moved;
}

bool Engine::Progress() {
  bool moved = TakeMessages();
  net::Transport::BrokenLink broken;
  while (transport_->NextBroken(&broken)) gone_.push_back(broken);
  if (!gone_.empty()) {
    // What a rank sent before it went may have come since the last look.
    moved = true;
    TakeMessages();
    for (const net::Transport::BrokenLink& link : std::exchange(gone_, {})) OnBroken(link);
  }
  return RunWork() || moved;
}

bool Engine::Poll() {
  if (open_count_.load(std::memory_order_relaxed) == 0) return false;
  Lock lock(links_->mutex, std::try_to_lock);
  if (!lock.owns_lock()) return false;  // whoever has it makes progress
  const bool moved = Progress();
  if (!moved) Idle();
  Unlock(lock);
  return moved;
}

void Engine::WaitForWork(int64_t timeout_nanos) {
  Lock lock(links_->mutex);
  if (!runnable_.empty()) return;
  if (driven_) {
    ++waiting_;
    changed_.wait_for(lock, std::chrono::nanoseconds(std::min(timeout_nanos, kSleepNanos)));
    --waiting_;
    return;
  }
  driven_ = true;
  ++drives_;
  asleep_ = true;
  Unlock(lock);
  transport_->Wait(std::min(timeout_nanos, kSleepNanos));
  lock.lock();
  asleep_ = false;
  driven_ = false;
  if (waiting_ > 0) changed_.notify_all();
}

void Engine::Wait(Handle::Impl& handle) {
  Lock lock(links_->mutex);
  while (!handle.done()) {
    if (driven_) {
      ++waiting_;
      changed_.wait(lock, [&] { return handle.done() || !driven_; });
      --waiting_;
      continue;
    }
    driven_ = true;
    ++drives_;
    Drive(lock, handle);
    driven_ = false;
    if (waiting_ > 0) changed_.notify_all();
    if (service_.joinable() && started_ > 0) parked_.notify_one();
  }
  Unlock(lock);
}

void Engine::Drive(Lock& lock, const Handle::Impl& handle) {
  while (!handle.done()) {
    bool moved = Progress();
    for (int i = 0; i < looks_ && !moved; ++i) moved = Progress();
    if (handle.done()) return;
    if (!moved) {
      Idle();
      if (!handle.done()) Sleep(lock);
    } else {
      // Others may want to start an operation.
      Unlock(lock);
      lock.lock();
    }
  }
}

void Engine::Sleep(Lock& lock) {
  asleep_ = true;
  Unlock(lock);
  transport_->Wait(kSleepNanos);
  lock.lock();
  asleep_ = false;
}

void Engine::Serve() {
  Lock lock(links_->mutex);
  uint64_t seen = 0;
  while (!stopping_) {
    // Callers that drive again and again need no help between their operations: a thread in the
    // transport's Wait would only be woken by what comes for the next one.
    if (driven_ || (drives_ != seen && started_ == 0)) {
      seen = drives_;
      parked_.wait_for(lock, kPark);
      continue;
    }
    Unlock(lock);
    transport_->Wait(kSleepNanos);
    lock.lock();
    while (!driven_ && !stopping_ && Progress()) {
      Unlock(lock);
      lock.lock();
    }
    Idle();
  }
  Unlock(lock);
}

void Engine::Idle() {
  TellProgress();
  if (open_.empty() && verdict_deadline_ == 0) return;
  const int64_t now = NowNanos();
  if (now < next_idle_) return;
  next_idle_ = now + kSleepNanos;
  if (verdict_deadline_ != 0 && now > verdict_deadline_ && failure_.ok()) {
    report_due_ = true;
    return;
  }
  MissLeavers(now);
  for (const auto& [id, operation] : open_) WarnIfLate(operation, now);
}

}  // namespace tutti::collective
