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

}  // namespace tutti::testing
