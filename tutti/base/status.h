#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Inside Tutti a failure is an absl::Status: it crosses threads and the wire. Only the client API
// throws. ThrowIfError and ValueOrThrow turn a Status into an Error there; functions that have no
// Status throw an Error themselves.
namespace tutti {

template <typename... Args>
absl::Status MakeStatus(absl::StatusCode code, fmt::format_string<Args...> format, Args&&... args) {
  return absl::Status(code, fmt::format(format, std::forward<Args>(args)...));
}

#define TUTTI_STATUS_MAKER(Name)                                                       \
  template <typename... Args>                                                          \
  absl::Status Name(fmt::format_string<Args...> format, Args&&... args) {              \
    return MakeStatus(absl::StatusCode::k##Name, format, std::forward<Args>(args)...); \
  }
TUTTI_STATUS_MAKER(Cancelled)
TUTTI_STATUS_MAKER(InvalidArgument)
TUTTI_STATUS_MAKER(DeadlineExceeded)
TUTTI_STATUS_MAKER(NotFound)
TUTTI_STATUS_MAKER(AlreadyExists)
TUTTI_STATUS_MAKER(ResourceExhausted)
TUTTI_STATUS_MAKER(FailedPrecondition)
TUTTI_STATUS_MAKER(Aborted)
TUTTI_STATUS_MAKER(OutOfRange)
TUTTI_STATUS_MAKER(Unimplemented)
TUTTI_STATUS_MAKER(Internal)
TUTTI_STATUS_MAKER(Unavailable)
TUTTI_STATUS_MAKER(DataLoss)
#undef TUTTI_STATUS_MAKER

// The message as a std::string_view (absl's own string_view type does not convert).
std::string_view MessageOf(const absl::Status& status);

// The same status with `prefix` put before its message. OK stays OK.
absl::Status WithPrefix(const absl::Status& status, std::string_view prefix);

// Throws tutti::Error unless the status is OK.
void ThrowIfError(const absl::Status& status);

// Throws an Error of code kInvalidArgument; for client code that has no Status at hand.
[[noreturn]] void ThrowInvalidArgument(const std::string& message);

template <typename T>
T ValueOrThrow(absl::StatusOr<T> value) {
  ThrowIfError(value.status());
  return *std::move(value);
}

// The Status for the exception being handled, where code that throws is called by code that returns
// Status.
absl::Status StatusFromCurrentException();

}  // namespace tutti

#define TUTTI_CONCAT_INNER(a, b) a##b
#define TUTTI_CONCAT(a, b) TUTTI_CONCAT_INNER(a, b)

#define TUTTI_RETURN_IF_ERROR(expr)                                                     \
  do {                                                                                  \
    if (absl::Status tutti_status_ = (expr); !tutti_status_.ok()) return tutti_status_; \
  } while (false)

#define TUTTI_ASSIGN_OR_RETURN(lhs, expr) \
  TUTTI_ASSIGN_OR_RETURN_IMPL(TUTTI_CONCAT(tutti_statusor_, __LINE__), lhs, expr)
#define TUTTI_ASSIGN_OR_RETURN_IMPL(var, lhs, expr) \
  auto var = (expr);                                \
  if (!var.ok()) return var.status();               \
  lhs = *std::move(var)
