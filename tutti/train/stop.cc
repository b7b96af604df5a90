#include "tutti/train/stop.h"

#include <atomic>

namespace tutti {
namespace {
std::atomic<int> stop_signal{0};
static_assert(std::atomic<int>::is_always_lock_free);  // for signal handlers
}  // namespace

bool StopRequested() { return StopSignal() != 0; }
int StopSignal() { return stop_signal.load(std::memory_order_relaxed); }
void RequestStop(int signal) { stop_signal.store(signal); }
bool FirstStopRequest(int signal) { return stop_signal.exchange(signal) == 0; }

}  // namespace tutti
