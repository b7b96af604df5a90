#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::net::memory {

// Where a rank sleeps and how its peers wake it, in memory that all of them share. Waking costs a
// system call, so a sender looks whether anybody sleeps. Sender and sleeper each write one word and
// then read the other's:
//
//   sender                     sleeper
//   publish the message        sleeping = 1
//   read sleeping              look for messages, sleep if there are none
//
// which needs a full fence on both sides, lest both read the old value. The fence would cost the
// sender more than the message, so where the kernel can do it (membarrier), the sleeper has it run
// on the sender's core. Sleeps are short anyway (kLongestSleepNanos): a peer that breaks these
// rules makes a rank late, never stuck.
struct alignas(64) Doorbell {
  std::atomic<uint32_t> count;     // grows with every ring; what sleepers sleep on
  std::atomic<uint32_t> sleeping;  // 1: somebody may sleep; the one who rings sets it to 0
};

inline constexpr int64_t kLongestSleepNanos = 20'000'000;

// True if this process lets sleepers of other processes run fences on its cores. Asks the kernel
// once.
bool JoinBarriers();

// Wakes whoever sleeps.
void Ring(Doorbell& bell);

// Wakes whoever sleeps, if anybody. `fence`: sleepers cannot run a fence on this core.
inline void RingIfSleeping(Doorbell& bell, bool fence) {
  if (fence) {
    if (bell.sleeping.fetch_or(0, std::memory_order_seq_cst) == 0) return;
  } else {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (bell.sleeping.load(std::memory_order_relaxed) == 0) return;
  }
  Ring(bell);
}

// Announces a sleep. What was published before a sender could see the announcement is visible to
// the caller afterwards.
void AnnounceSleep(Doorbell& bell);
// Sleeps while bell.count == seen, at most `nanos`. True if the time is over.
bool Sleep(Doorbell& bell, uint32_t seen, int64_t nanos);

}  // namespace tutti::net::memory
