#pragma once

#include <sched.h>

#include <cstdint>

#include "tutti/base/clock.h"
#include "tutti/base/cores.h"

namespace tutti {

// Tells the core that this thread only looks.
inline void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a thread looks for what it waits for before it sleeps. Two threads that both look reach
// each other within some 100 ns; giving the core away and getting it back takes about 1 us; waking
// a sleeping thread 20 us and more.
struct Patience {
  int64_t spin_nanos = 20'000;    // looking, and nothing else; 0 where threads outnumber cores
  int64_t yield_nanos = 100'000;  // after that: looking between giving the core away
};

// Looks until come() is true; false when the time is over. In a process with one core, which
// whoever makes it come true needs, the whole time is spent between giving the core away.
template <typename Come>
bool LookFor(const Come& come, const Patience& patience) {
  constexpr int kLooksBetweenClocks = 32;
  const int64_t start = NowNanos();
  const int64_t spin_nanos = HasOneCore() ? 0 : patience.spin_nanos;
  int64_t waited = 0;
  while (waited < spin_nanos) {
    for (int i = 0; i < kLooksBetweenClocks; ++i) {
      if (come()) return true;
      Pause();
    }
    waited = NowNanos() - start;
  }
  const int64_t end = patience.spin_nanos + patience.yield_nanos;
  for (; waited < end; waited = NowNanos() - start) {
    if (come()) return true;
    sched_yield();
  }
  return come();
}

}  // namespace tutti
