#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/device/pool.h"
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

// A value on its way from Send to Recv. The key points into the fields.
struct SentValue {
  StepId id;
  std::string_view key;
  Tensor value;
};
void EncodeValue(const StepId& id, std::string_view key, const Tensor& value, WireMessage& to);
// Memory for a value that lies in the fields comes from the pool that `pool_of` gives for its key.
absl::StatusOr<SentValue> DecodeValue(
    std::string_view fields, ReceivedTensors tensors,
    const std::function<MemoryPool&(std::string_view key)>& pool_of);
// About how many bytes EncodeValue appends to the fields, beside the key.
size_t BytesInFields(const Tensor& value);

}  // namespace tutti
