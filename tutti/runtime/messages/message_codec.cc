#include "tutti/runtime/messages/message_codec.h"

#include <array>
#include <cstring>
#include <memory>
#include <span>

#include "tutti/device/memory_limit.h"
#include "tutti/net/wire.h"
#include "tutti/runtime/messages/codec_fields.h"

namespace tutti {
namespace {

using codec::Decoder;
using codec::GetCount;
using codec::GetText;
using codec::IfComplete;
using codec::PutText;
using net::WireReader;
using net::WireWriter;

// In the byte of a tensor's rank: its bytes travel beside the fields.
constexpr uint8_t kBeside = 0x80;

void PutStatus(WireWriter& out, const absl::Status& status) {
  out.U32(uint32_t(status.code()));
  PutText(out, MessageOf(status));
}

absl::Status GetStatus(WireReader& in) {
  constexpr auto kMostCode = uint32_t(absl::StatusCode::kUnauthenticated);
  const uint32_t code = in.U32();
  const std::string_view message = GetText(in);
  if (code > kMostCode) return Internal("a status with the unknown code {}: {}", code, message);
  return MakeStatus(absl::StatusCode(code), "{}", message);
}

void PutTensor(const Tensor& tensor, WireMessage& to) {
  WireWriter out(&to.fields);
  out.U8(uint8_t(tensor.dtype()));
  if (!tensor.valid()) return;
  const bool beside = tensor.bytes() >= kLargeTensor;
  out.U8(uint8_t(tensor.shape().rank()) | (beside ? kBeside : 0));
  for (const int64_t dim : tensor.shape().dims()) out.I64(dim);
  if (beside) {
    to.tensors.push_back(tensor);
  } else {
    out.Raw({static_cast<const char*>(tensor.raw()), tensor.bytes()});
  }
}

absl::Status CheckBools(const Tensor& tensor) {
  if (tensor.dtype() != kBool) return absl::OkStatus();
  const std::string_view bytes(static_cast<const char*>(tensor.raw()), tensor.bytes());
  for (const char byte : bytes) {
    if (byte != 0 && byte != 1) return InvalidArgument("a bool with the value {}", uint8_t(byte));
  }
  return absl::OkStatus();
}

// How many bytes the tensor has that the fields describe.
absl::StatusOr<size_t> GetDims(Decoder& in, DType dtype, std::span<int64_t> dims) {
  size_t bytes = SizeOf(dtype);
  bool empty = false;
  for (int64_t& dim : dims) {
    dim = in.I64();
    if (dim < 0) return InvalidArgument("a tensor with a dimension of {}", dim);
    empty = empty || dim == 0;
  }
  if (empty) return 0;
  for (const int64_t dim : dims) {
    if (size_t(dim) > kMostBytes / bytes) return InvalidArgument("a tensor that is too large");
    bytes *= size_t(dim);
  }
  return bytes;
}

// Memory for a tensor that lies in the fields, which are in the memory of this process: it is not
// large.
absl::StatusOr<Tensor> FreshTensor(DType dtype, const Shape& shape) { return Tensor(dtype, shape); }

template <typename Allocate>
absl::Status GetTensor(Decoder& in, Tensor& tensor, const Allocate& allocate) {
  const uint8_t type = in.U8();
  if (type > uint8_t(DType::kBool)) return InvalidArgument("a tensor of unknown dtype {}", type);
  const auto dtype = DType(type);
  if (dtype == DType::kInvalid) return absl::OkStatus();
  const uint8_t rank_and_flag = in.U8();
  const int rank = rank_and_flag & ~kBeside;
  if (rank > kMaxRank) return InvalidArgument("a tensor of rank {}", rank);
  std::array<int64_t, kMaxRank> all_dims{};
  const std::span dims = std::span(all_dims).first(static_cast<size_t>(rank));
  TUTTI_ASSIGN_OR_RETURN(const size_t bytes, GetDims(in, dtype, dims));
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return InvalidArgument("a tensor of a shape that cannot be: {}", why);
  if ((rank_and_flag & kBeside) != 0) {
    const Tensor* const beside = in.NextTensor();
    if (beside == nullptr) return InvalidArgument("a tensor whose bytes did not come");
    if (beside->bytes() != bytes || bytes == 0) {
      return InvalidArgument("a tensor of {} {} came with {} bytes; expected {}", NameOf(dtype),
                             shape->ToString(), beside->bytes(), bytes);
    }
    const auto* const start = static_cast<const std::byte*>(beside->buffer()->data());
    tensor = Tensor(dtype, *shape, beside->buffer(),
                    size_t(static_cast<const std::byte*>(beside->raw()) - start));
    return CheckBools(tensor);
  }
  if (bytes > in.remaining()) return InvalidArgument("a tensor that is cut off");
  const std::string_view data = in.Raw(bytes);
  TUTTI_ASSIGN_OR_RETURN(tensor, allocate(dtype, *shape));
  if (bytes > 0) std::memcpy(tensor.raw(), data.data(), bytes);
  return CheckBools(tensor);
}

void PutTensors(const TensorList& tensors, WireMessage& to) {
  WireWriter(&to.fields).U64(tensors.size());
  for (const Tensor& tensor : tensors) PutTensor(tensor, to);
}

absl::Status GetTensors(Decoder& in, TensorList& tensors) {
  const size_t count = GetCount(in, 1);
  tensors.resize(count);
  for (Tensor& tensor : tensors) {
    TUTTI_RETURN_IF_ERROR(GetTensor(in, tensor, FreshTensor));
  }
  return absl::OkStatus();
}

void PutTrace(WireWriter& out, const StepTrace& trace) {
  out.I64(trace.start_nanos);
  out.I64(trace.answer_nanos);
  out.U64(trace.nodes.size());
  for (const NodeRecord& node : trace.nodes) {
    PutText(out, node.name);
    PutText(out, node.op);
    PutText(out, node.device);
    out.I64(node.start_nanos);
    out.I64(node.end_nanos);
    out.I64(node.bytes);
    PutText(out, node.transfer);
  }
  out.I64(trace.arena_bytes);
  out.U64(trace.peaks.size());
  for (const PeakRecord& peak : trace.peaks) {
    PutText(out, peak.device);
    PutText(out, peak.node);
    out.U64(peak.values.size());
    for (const auto& [name, bytes] : peak.values) {
      PutText(out, name);
      out.I64(bytes);
    }
  }
}

std::unique_ptr<StepTrace> GetTrace(WireReader& in) {
  auto trace = std::make_unique<StepTrace>();
  trace->start_nanos = in.I64();
  trace->answer_nanos = in.I64();
  trace->nodes.resize(GetCount(in, 56));
  for (NodeRecord& node : trace->nodes) {
    node.name = GetText(in);
    node.op = GetText(in);
    node.device = GetText(in);
    node.start_nanos = in.I64();
    node.end_nanos = in.I64();
    node.bytes = in.I64();
    node.transfer = GetText(in);
  }
  trace->arena_bytes = in.I64();
  trace->peaks.resize(GetCount(in, 24));
  for (PeakRecord& peak : trace->peaks) {
    peak.device = GetText(in);
    peak.node = GetText(in);
    peak.values.resize(GetCount(in, 16));
    for (auto& [name, bytes] : peak.values) {
      name = GetText(in);
      bytes = in.I64();
    }
  }
  return trace;
}

void PutOutputIds(WireWriter& out, const absl::InlinedVector<OutputId, 8>& ids) {
  out.U64(ids.size());
  for (const OutputId& id : ids) {
    out.I64(id.node);
    out.I32(id.index);
  }
}

void GetOutputIds(Decoder& in, absl::InlinedVector<OutputId, 8>& ids) {
  ids.resize(GetCount(in, 12));
  for (OutputId& id : ids) {
    id.node = in.I64();
    id.index = in.I32();
  }
}

}  // namespace

void EncodeStatus(const absl::Status& status, WireMessage& to) {
  WireWriter out(&to.fields);
  PutStatus(out, status);
}

absl::Status DecodeStatus(std::string_view fields) {
  WireReader in(fields);
  absl::Status status = GetStatus(in);
  return in.Complete() ? status : InvalidArgument("a status that is cut off or too long");
}

void EncodeDevices(const std::vector<DeviceInfo>& devices, WireMessage& to) {
  WireWriter out(&to.fields);
  out.U64(devices.size());
  for (const DeviceInfo& device : devices) {
    PutText(out, device.name);
    PutText(out, device.type);
    out.I32(device.cores);
    out.I64(device.memory_bytes);
    out.U8(device.limited ? 1 : 0);
    out.U64(device.incarnation);
  }
}

absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(std::string_view fields) {
  Decoder in(fields, {});
  std::vector<DeviceInfo> devices(GetCount(in, 37));
  for (DeviceInfo& device : devices) {
    device.name = GetText(in);
    device.type = GetText(in);
    device.cores = in.I32();
    device.memory_bytes = in.I64();
    device.limited = in.U8() != 0;
    device.incarnation = in.U64();
  }
  return IfComplete(in, std::move(devices), "list of devices");
}

void EncodeRun(const RunRequest& request, WireMessage& to) {
  WireWriter out(&to.fields);
  out.U64(request.id.session);
  out.I64(request.id.step);
  out.U64(request.handle);
  out.I64(request.random_step);
  out.U8(request.trace ? 1 : 0);
  PutTensors(request.feeds, to);
}

absl::StatusOr<RunRequest> DecodeRun(std::string_view fields, ReceivedTensors tensors) {
  Decoder in(fields, tensors);
  RunRequest request;
  request.id.session = in.U64();
  request.id.step = in.I64();
  request.handle = in.U64();
  request.random_step = in.I64();
  request.trace = in.U8() != 0;
  TUTTI_RETURN_IF_ERROR(GetTensors(in, request.feeds));
  return IfComplete(in, std::move(request), "run request");
}

void EncodeMasterRun(const MasterRunRequest& request, WireMessage& to) {
  WireWriter out(&to.fields);
  out.I64(request.step);
  PutOutputIds(out, request.feeds);
  PutOutputIds(out, request.fetches);
  out.U64(request.targets.size());
  for (const int64_t target : request.targets) out.I64(target);
  out.I64(request.timeout_nanos);
  out.U8(request.trace ? 1 : 0);
  PutTensors(request.feed_values, to);
}

absl::StatusOr<MasterRunRequest> DecodeMasterRun(std::string_view fields, ReceivedTensors tensors) {
  Decoder in(fields, tensors);
  MasterRunRequest request;
  request.step = in.I64();
  GetOutputIds(in, request.feeds);
  GetOutputIds(in, request.fetches);
  request.targets.resize(GetCount(in, 8));
  for (int64_t& target : request.targets) target = in.I64();
  request.timeout_nanos = in.I64();
  request.trace = in.U8() != 0;
  TUTTI_RETURN_IF_ERROR(GetTensors(in, request.feed_values));
  if (request.timeout_nanos < 0) {
    return InvalidArgument("a timeout of {} ns", request.timeout_nanos);
  }
  return IfComplete(in, std::move(request), "run request");
}

void EncodeResponse(const RunResponse& response, WireMessage& to) {
  WireWriter out(&to.fields);
  PutStatus(out, response.status);
  PutText(out, response.unfinished);
  out.U8(response.trace != nullptr ? 1 : 0);
  if (response.trace != nullptr) PutTrace(out, *response.trace);
  PutTensors(response.results, to);
}

absl::StatusOr<RunResponse> DecodeResponse(std::string_view fields, ReceivedTensors tensors) {
  Decoder in(fields, tensors);
  RunResponse response;
  response.status = GetStatus(in);
  response.unfinished = GetText(in);
  if (in.U8() != 0) response.trace = GetTrace(in);
  TUTTI_RETURN_IF_ERROR(GetTensors(in, response.results));
  return IfComplete(in, std::move(response), "run response");
}

void EncodeValue(const StepId& id, std::string_view key, const Tensor& value, WireMessage& to) {
  WireWriter out(&to.fields);
  out.U64(id.session);
  out.I64(id.step);
  PutText(out, key);
  PutTensor(value, to);
}

size_t BytesInFields(const Tensor& value) {
  constexpr size_t kRest = 64 + 8 * kMaxRank;
  return kRest + (value.valid() && value.bytes() < kLargeTensor ? value.bytes() : 0);
}

absl::StatusOr<SentValue> DecodeValue(
    std::string_view fields, ReceivedTensors tensors,
    const std::function<MemoryPool&(std::string_view key)>& pool_of) {
  Decoder in(fields, tensors);
  SentValue value;
  value.id.session = in.U64();
  value.id.step = in.I64();
  value.key = GetText(in);
  TUTTI_RETURN_IF_ERROR(GetTensor(in, value.value, [&](DType dtype, const Shape& shape) {
    return pool_of(value.key).Allocate(dtype, shape);
  }));
  return IfComplete(in, std::move(value), "sent value");
}

}  // namespace tutti
