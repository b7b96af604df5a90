#include "tutti/train/stop.h"

#include <atomic>

namespace tutti {
namespace {
std::atomic<int> stop_signal{0};
std::atomic<bool> signalled{false};  // this process itself
// For signal handlers.
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);
}  // namespace

bool StopRequested() { return StopSignal() != 0; }
int StopSignal() { return stop_signal.load(std::memory_order_relaxed); }

void RequestStop(int signal) {
  stop_signal.store(signal);
  if (signal == 0) signalled.store(false);
}

bool FirstStopSignal(int signal) {
  stop_signal.store(signal);
  return !signalled.exchange(true);
}

}  // namespace tutti
