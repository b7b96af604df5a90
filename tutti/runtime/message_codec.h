#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/runtime/worker.h"

// The messages between master and workers as bytes. Numbers are little-endian, lists and texts are
// preceded by their 64-bit length, programs are graphs in protobuf form (graph/serialize.h).
//
// Bytes from anywhere are safe to decode: every length, index, dtype and shape is checked before
// memory is touched, and what does not fit is INVALID_ARGUMENT.
namespace tutti {

std::string EncodeStatus(const absl::Status& status);
// The status that was encoded, or why it cannot be decoded.
absl::Status DecodeStatus(std::string_view bytes);

std::string EncodeDevices(const std::vector<DeviceInfo>& devices);
absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(std::string_view bytes);

// RESOURCE_EXHAUSTED when a program has more than 2 GB of constants.
absl::StatusOr<std::string> EncodeRegister(const RegisterRequest& request);
absl::StatusOr<RegisterRequest> DecodeRegister(std::string_view bytes);

std::string EncodeRun(const RunRequest& request);
absl::StatusOr<RunRequest> DecodeRun(std::string_view bytes);

std::string EncodeResponse(const RunResponse& response);
absl::StatusOr<RunResponse> DecodeResponse(std::string_view bytes);

}  // namespace tutti
