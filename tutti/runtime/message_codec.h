#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/runtime/master.h"
#include "tutti/runtime/worker.h"

// The messages between clients, masters and workers as bytes. Numbers are little-endian, lists and
// texts are preceded by their 64-bit length, programs are graphs in protobuf form
// (graph/serialize.h).
//
// Bytes from anywhere are safe to decode: every length, index, dtype and shape is checked before
// memory is touched, and what does not fit is INVALID_ARGUMENT.
namespace tutti {

// A message as it travels: its fields, and the tensors that are too large to be copied into them,
// constants of programs included, in the order in which the fields name them.
struct WireMessage {
  std::string fields;
  std::vector<Tensor> tensors;
};
// Tensors of fewer bytes lie in the fields.
inline constexpr size_t kLargeTensor = 4096;

// Every Encode appends to `to`, every Decode takes the whole message. `tensors` are those that came
// beside the fields, as plain bytes (uint8, one dimension); decoded tensors share their memory.
using ReceivedTensors = std::span<const Tensor>;

void EncodeStatus(const absl::Status& status, WireMessage& to);
// The status that was encoded, or why it cannot be decoded.
absl::Status DecodeStatus(std::string_view fields);

void EncodeDevices(const std::vector<DeviceInfo>& devices, WireMessage& to);
absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(std::string_view fields);

// RESOURCE_EXHAUSTED when a program has more than 2 GB without its large constants.
absl::Status EncodeRegister(const RegisterRequest& request, WireMessage& to);
absl::StatusOr<RegisterRequest> DecodeRegister(std::string_view fields, ReceivedTensors tensors);

void EncodeRun(const RunRequest& request, WireMessage& to);
absl::StatusOr<RunRequest> DecodeRun(std::string_view fields, ReceivedTensors tensors);

void EncodeMasterRun(const MasterRunRequest& request, WireMessage& to);
absl::StatusOr<MasterRunRequest> DecodeMasterRun(std::string_view fields, ReceivedTensors tensors);

void EncodeResponse(const RunResponse& response, WireMessage& to);
absl::StatusOr<RunResponse> DecodeResponse(std::string_view fields, ReceivedTensors tensors);

// A value on its way from Send to Recv.
struct SentValue {
  StepId id;
  std::string key;
  Tensor value;
};
void EncodeValue(const SentValue& value, WireMessage& to);
absl::StatusOr<SentValue> DecodeValue(std::string_view fields, ReceivedTensors tensors);

}  // namespace tutti
