// Counts what a test program takes from the C++ allocator.
//
// A program that calls AllocationCount() gets the replacements of operator new and delete that are
// defined beside it; a program that does not call it keeps the standard ones. Over-aligned memory
// and memory that C code takes are not counted.
#pragma once

#include <cstdint>

namespace tutti::testing {

// The number of calls of operator new, of all threads, since the program began. The difference of
// two calls is what ran in between. Thread-safe.
int64_t AllocationCount();

// Of the next allocations of this thread `count` succeed, and the one after them throws
// std::bad_alloc.
void FailAllocationAfter(int64_t count);
// Takes that back. True if none has failed.
bool FailNoAllocation();

}  // namespace tutti::testing
