#pragma once

#include <stdexcept>
#include <string>

namespace tutti {

// What kind of failure an Error is. The numbers are those of absl::StatusCode and of gRPC, so a
// code crosses the wire unchanged.
enum class Code {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
};

// "INVALID_ARGUMENT" and so on.
const char* CodeName(Code code);

// The one exception that Tutti's client API throws. The message says what failed, on which node, op
// and device, what was expected, what was found, and what to do.
class Error : public std::runtime_error {
 public:
  Error(Code code, const std::string& message) : std::runtime_error(message), code_(code) {}
  Code code() const { return code_; }

 private:
  Code code_;
};

}  // namespace tutti
