#include "tutti/collective/engine/driver.h"

#include <algorithm>
#include <chrono>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"

namespace tutti::collective {
namespace {

// While callers drive, the service thread looks this often whether they still do. Waking it at the
// end of every wait would cost two switches of threads an operation; so does each look, where ranks
// fill the cores. An operation that nobody waits for is taken up within this time.
constexpr auto kPark = std::chrono::milliseconds(2);

// Polls for about 1 us, in which most short messages arrive; the transport's own wait starts by
// reading the clock, which takes as long as several polls. If the ranks of this host outnumber the
// cores, the awaited rank may need this core, so it is yielded at once. Polling sockets is a system
// call, and their transport knows better how long to poll.
int LooksOf(const net::Transport& transport) {
  int neighbours = 0;  // this rank among them
  for (int peer = 0; peer < transport.size(); ++peer) {
    neighbours += transport.link(peer) != net::LinkKind::kSocket;
  }
  return neighbours == 1 || transport.crowded() ? 0 : 20;
}

}  // namespace

Driver::Driver(std::mutex* mutex, net::Transport* transport, Work* work)
    : mutex_(*mutex), transport_(transport), work_(*work), looks_(LooksOf(*transport)) {}

absl::Status Driver::StartService() {
  if (!transport_->NeedsService()) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(service_,
                         StartThread("the thread that serves sockets", [this] { Serve(); }));
  return absl::OkStatus();
}

void Driver::Stop() {
  {
    const Lock lock(mutex_);
    stopping_ = true;
    parked_.notify_all();
  }
  transport_->Wake();
  if (service_.joinable()) service_.join();
}

void Driver::WaitForWork(int64_t timeout_nanos) {
  Lock lock(mutex_);
  if (work_.has_work()) return;
  const int64_t nanos = std::min(timeout_nanos, kSleepNanos);
  if (driven_) {
    ++waiting_;
    changed_.wait_for(lock, std::chrono::nanoseconds(nanos));
    --waiting_;
    return;
  }
  driven_ = true;
  ++drives_;
  Sleep(lock, nanos);
  driven_ = false;
  TellWaiting();
}

void Driver::Wait(const Handle::Impl& handle) {
  Lock lock(mutex_);
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
    TellWaiting();
    if (service_.joinable() && work_.has_operations()) parked_.notify_one();
  }
  work_.Unlock(lock);
}

void Driver::Drive(Lock& lock, const Handle::Impl& handle) {
  while (!handle.done()) {
    bool moved = work_.Progress();
    for (int i = 0; i < looks_ && !moved; ++i) moved = work_.Progress();
    if (handle.done()) return;
    if (!moved) {
      work_.Idle();
      if (!handle.done()) Sleep(lock, kSleepNanos);
    } else {
      // Others may want to start an operation.
      work_.Unlock(lock);
      lock.lock();
    }
  }
}

void Driver::Sleep(Lock& lock, int64_t nanos) {
  asleep_ = true;
  work_.Unlock(lock);
  transport_->Wait(nanos);
  lock.lock();
  asleep_ = false;
}

void Driver::Serve() {
  Lock lock(mutex_);
  uint64_t seen = 0;
  while (!stopping_) {
    // Callers that drive again and again need no help between their operations: a thread in the
    // transport's Wait would only be woken by what comes for the next one.
    if (driven_ || (drives_ != seen && !work_.has_operations())) {
      seen = drives_;
      parked_.wait_for(lock, kPark);
      continue;
    }
    work_.Unlock(lock);
    transport_->Wait(kSleepNanos);
    lock.lock();
    while (!driven_ && !stopping_ && work_.Progress()) {
      work_.Unlock(lock);
      lock.lock();
    }
    work_.Idle();
  }
  work_.Unlock(lock);
}

}  // namespace tutti::collective
