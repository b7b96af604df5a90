// All forms that are not over-aligned are replaced together: a sanitizer's own form of one of them
// would refuse memory that came from another one of ours. They have a file to themselves because a
// compiler that inlines delete beside a call of new takes malloc and free for a mismatched pair.
#include "tutti/testing/allocation_count.h"

#include <atomic>
#include <cstdlib>
#include <new>
#include <utility>

namespace {

std::atomic<int64_t> allocations{0};

constexpr int64_t kNever = -1;
thread_local int64_t until_failure = kNever;

void* CountedAllocation(size_t size) noexcept {
  allocations.fetch_add(1, std::memory_order_relaxed);
  if (until_failure != kNever && until_failure-- == 0)
    return nullptr;  // and is kNever from here on
  return std::malloc(size != 0 ? size : 1);
}

void* CountedAllocationOrThrow(size_t size) {
  if (void* memory = CountedAllocation(size)) return memory;
  throw std::bad_alloc();
}

}  // namespace

void* operator new(size_t size) { return CountedAllocationOrThrow(size); }
void* operator new[](size_t size) { return CountedAllocationOrThrow(size); }
void* operator new(size_t size, const std::nothrow_t&) noexcept { return CountedAllocation(size); }
void* operator new[](size_t size, const std::nothrow_t&) noexcept {
  return CountedAllocation(size);
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete[](void* memory, const std::nothrow_t&) noexcept { std::free(memory); }

int64_t tutti::testing::AllocationCount() { return allocations.load(std::memory_order_relaxed); }

void tutti::testing::FailAllocationAfter(int64_t count) { until_failure = count; }

bool tutti::testing::FailNoAllocation() { return std::exchange(until_failure, kNever) != kNever; }
