#include "tutti/net/memory/doorbell.h"

#include <linux/futex.h>
#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <ctime>

namespace tutti::net::memory {

bool JoinBarriers() {
  static const bool joined =
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
  return joined;
}

void Ring(Doorbell& bell) {
  bell.sleeping.store(0, std::memory_order_relaxed);
  bell.count.fetch_add(1, std::memory_order_seq_cst);
  syscall(SYS_futex, &bell.count, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void AnnounceSleep(Doorbell& bell) {
  bell.sleeping.exchange(1, std::memory_order_seq_cst);
  if (JoinBarriers()) syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0);
}

bool Sleep(Doorbell& bell, uint32_t seen, int64_t nanos) {
  timespec time{.tv_sec = nanos / 1'000'000'000, .tv_nsec = nanos % 1'000'000'000};
  const int64_t result = syscall(SYS_futex, &bell.count, FUTEX_WAIT, seen, &time, nullptr, 0);
  return result != 0 && errno == ETIMEDOUT;
}

}  // namespace tutti::net::memory
