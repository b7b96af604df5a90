#include "tutti/train/cancelled_by_signal.h"

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <system_error>

#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/train/stop.h"

namespace tutti {
namespace {
constexpr auto kSignalLook = std::chrono::milliseconds(20);
}  // namespace

CancelledBySignal::CancelledBySignal() {
  try {
    watch_ = std::jthread([this](const std::stop_token& stop) { Watch(stop); });
  } catch (const std::system_error& error) {
    ThrowIfError(CannotStartThread("the thread that looks for signals", error.code().message()));
  }
}

void CancelledBySignal::Watch(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any changed;
  while (!stop.stop_requested() && !StopRequested()) {
    changed.wait_for(lock, stop, kSignalLook, [] { return false; });
  }
  if (StopRequested()) {
    cancellation_.Cancel(
        Cancelled("stopped by signal {} while workers were waited for", StopSignal()));
  }
}

}  // namespace tutti
