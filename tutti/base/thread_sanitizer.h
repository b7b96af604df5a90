#pragma once

// What the thread sanitizer has to be told, because it happens in a library that is not
// instrumented. In other builds all of this is empty.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TUTTI_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define TUTTI_THREAD_SANITIZER 1
#endif

#ifdef TUTTI_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
// A function whose own loads and stores are not watched; those of the functions it calls are.
#define TUTTI_NOT_WATCHED_FOR_RACES __attribute__((no_sanitize("thread")))
#else
#define TUTTI_NOT_WATCHED_FOR_RACES
#endif

namespace tutti {

// Declares that what a thread did before HandOver(place) happened before what another thread does
// after a later TakeOver of the same place. Describes an order that exists; does not create one.
#ifdef TUTTI_THREAD_SANITIZER
inline void HandOver(void* place) { __tsan_release(place); }
inline void TakeOver(void* place) { __tsan_acquire(place); }
#else
inline void HandOver(void*) {}
inline void TakeOver(void*) {}
#endif

}  // namespace tutti
