#pragma once

// TUTTI_CHECK is for our own bugs only: a condition that no input can make false. It prints the
// place and aborts. Whatever a user, a file or a peer can cause is a Status.
namespace tutti {
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition);
}  // namespace tutti

#define TUTTI_CHECK(condition)                  \
  (__builtin_expect(!!(condition), 1) ? void(0) \
                                      : ::tutti::CheckFailed(__FILE__, __LINE__, #condition))
