#include "tutti/base/status.h"

#include <exception>
#include <new>

#include "tutti/base/error.h"

namespace tutti {

const char* CodeName(Code code) {
  switch (code) {
    case Code::kOk:
      return "OK";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnknown:
      return "UNKNOWN";
    case Code::kInvalidArgument:
      return "INVALID_ARGUMENT";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kNotFound:
      return "NOT_FOUND";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kPermissionDenied:
      return "PERMISSION_DENIED";
    case Code::kResourceExhausted:
      return "RESOURCE_EXHAUSTED";
    case Code::kFailedPrecondition:
      return "FAILED_PRECONDITION";
    case Code::kAborted:
      return "ABORTED";
    case Code::kOutOfRange:
      return "OUT_OF_RANGE";
    case Code::kUnimplemented:
      return "UNIMPLEMENTED";
    case Code::kInternal:
      return "INTERNAL";
    case Code::kUnavailable:
      return "UNAVAILABLE";
    case Code::kDataLoss:
      return "DATA_LOSS";
  }
  return "UNKNOWN";
}

std::string_view MessageOf(const absl::Status& status) {
  const auto message = status.message();
  return {message.data(), message.size()};
}

absl::Status WithPrefix(const absl::Status& status, std::string_view prefix) {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("{}{}", prefix, MessageOf(status)));
}

void ThrowIfError(const absl::Status& status) {
  if (status.ok()) return;
  throw Error(static_cast<Code>(status.code()), std::string(MessageOf(status)));
}

void ThrowInvalidArgument(const std::string& message) {
  throw Error(Code::kInvalidArgument, message);
}

absl::Status StatusFromCurrentException() {
  try {
    throw;
  } catch (const Error& error) {
    return absl::Status(static_cast<absl::StatusCode>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("out of memory");
  } catch (const std::exception& error) {
    return absl::InternalError(error.what());
  } catch (...) {
    return absl::InternalError("an exception of unknown type");
  }
}

}  // namespace tutti
