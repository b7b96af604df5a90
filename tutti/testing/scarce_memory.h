// What a process does when memory runs out. For child processes only (EXPECT_EXIT): what is taken
// is not given back. Header-only, so that the tests of every folder can use it without linking
// anything.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

namespace tutti::testing {

// Sanitizers reserve terabytes of addresses, which a limit would refuse them.
constexpr bool CanLimitMemory() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return false;
#else
  return true;
#endif
#else
  return true;
#endif
}

// From here on the process gets `more` bytes of addresses and not one beyond.
inline void LimitMemory(int64_t more) {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const auto bytes = rlim_t(pages * sysconf(_SC_PAGESIZE) + more);
  const rlimit limit = {bytes, bytes};
  setrlimit(RLIMIT_AS, &limit);
}

// From here on no piece of 128 KB can be allocated, and no thread started; small pieces, for the
// text of an error, can.
inline void LeaveLittleMemory() {
  constexpr size_t kLeft = 48 << 10;
  constexpr size_t kPiece = 64 << 10;
  LimitMemory(1 << 20);
  void* volatile left = std::malloc(kLeft);
  // Volatile, because a compiler may assume that an unused allocation succeeds.
  void* volatile taken = nullptr;
  do {
    taken = std::malloc(kPiece);
  } while (taken != nullptr);
  std::free(left);
}

}  // namespace tutti::testing
