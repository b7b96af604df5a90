#include "tutti/runtime/message_codec.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>

#include "tutti/device/memory_limit.h"
#include "tutti/graph/serialize.h"
#include "tutti/net/wire.h"

namespace tutti {
namespace {

using net::WireReader;
using net::WireWriter;

void PutText(WireWriter& out, std::string_view text) {
  out.U64(text.size());
  out.Raw(text);
}

std::string_view GetText(WireReader& in) {
  const uint64_t length = in.U64();
  // A length past the end makes the reader fail, whatever it is.
  return in.Raw(size_t(std::min<uint64_t>(length, std::numeric_limits<size_t>::max())));
}

// The length of a list whose elements take at least `least` bytes each: never more than the rest
// of the message can hold, so that nobody reserves memory for a lie. 0 after an error.
size_t GetCount(WireReader& in, size_t least) {
  const uint64_t count = in.U64();
  if (count > in.remaining() / least) {
    in.Raw(in.remaining() + 1);  // an element that is not there
    return 0;
  }
  return size_t(count);
}

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

void PutTensor(WireWriter& out, const Tensor& tensor) {
  out.U8(uint8_t(tensor.dtype()));
  if (!tensor.valid()) return;
  out.U8(uint8_t(tensor.shape().rank()));
  for (const int64_t dim : tensor.shape().dims()) out.I64(dim);
  out.Raw({static_cast<const char*>(tensor.raw()), tensor.bytes()});
}

absl::Status GetTensor(WireReader& in, Tensor& tensor) {
  const uint8_t type = in.U8();
  if (type > uint8_t(DType::kBool)) return InvalidArgument("a tensor of unknown dtype {}", type);
  const auto dtype = DType(type);
  if (dtype == DType::kInvalid) return absl::OkStatus();
  const int rank = in.U8();
  if (rank > kMaxRank) return InvalidArgument("a tensor of rank {}", rank);
  std::vector<int64_t> dims(static_cast<size_t>(rank));
  size_t bytes = SizeOf(dtype);
  bool empty = false;
  for (int64_t& dim : dims) {
    dim = in.I64();
    if (dim < 0) return InvalidArgument("a tensor with a dimension of {}", dim);
    empty = empty || dim == 0;
  }
  for (const int64_t dim : dims) {
    if (empty) break;
    if (size_t(dim) > kMostBytes / bytes) return InvalidArgument("a tensor that is too large");
    bytes *= size_t(dim);
  }
  if (empty) bytes = 0;
  if (bytes > in.remaining()) return InvalidArgument("a tensor that is cut off");
  const std::string_view data = in.Raw(bytes);
  tensor = Tensor(dtype, Shape(dims));
  if (bytes > 0) std::memcpy(tensor.raw(), data.data(), bytes);
  return absl::OkStatus();
}

void PutTensors(WireWriter& out, const TensorList& tensors) {
  out.U64(tensors.size());
  for (const Tensor& tensor : tensors) PutTensor(out, tensor);
}

absl::Status GetTensors(WireReader& in, TensorList& tensors) {
  const size_t count = GetCount(in, 1);
  tensors.resize(count);
  for (Tensor& tensor : tensors) TUTTI_RETURN_IF_ERROR(GetTensor(in, tensor));
  return absl::OkStatus();
}

void PutIndices(WireWriter& out, const std::vector<int>& indices) {
  out.U64(indices.size());
  for (const int index : indices) out.I32(index);
}

std::vector<int> GetIndices(WireReader& in) {
  std::vector<int> indices(GetCount(in, 4));
  for (int& index : indices) index = in.I32();
  return indices;
}

void PutOutputs(WireWriter& out, const std::vector<Output>& outputs) {
  out.U64(outputs.size());
  for (const Output& output : outputs) {
    out.I64(output.node->id());
    out.I32(output.index);
  }
}

absl::StatusOr<const Node*> GetNode(WireReader& in, const Graph& graph) {
  const int64_t id = in.I64();
  if (id >= 0 && id < graph.size()) return graph.nodes()[size_t(id)].get();
  return InvalidArgument("a program names node {}; it has {}", id, graph.size());
}

absl::Status GetOutputs(WireReader& in, const Graph& graph, std::vector<Output>& outputs) {
  const size_t count = GetCount(in, 12);
  for (size_t i = 0; i < count; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const Node* node, GetNode(in, graph));
    const int index = in.I32();
    if (index < 0 || index >= node->num_outputs()) {
      return InvalidArgument("a program names output {} of {}, which has {}", index,
                             node->Describe(), node->num_outputs());
    }
    outputs.push_back(node->output(index));
  }
  return absl::OkStatus();
}

void PutMemory(WireWriter& out, const MemoryTable& memory) {
  const auto put_value = [&](const ValueId& value) {
    out.I64(value.node);
    out.I32(value.output);
  };
  out.U64(memory.layouts.size());
  for (const auto& [value, layout] : memory.layouts) {
    put_value(value);
    PutText(out, layout.tag());
  }
  out.U64(memory.arenas.size());
  for (const PinnedArena& arena : memory.arenas) {
    PutText(out, arena.name);
    PutText(out, arena.kind);
  }
  out.U64(memory.pins.size());
  for (const auto& [value, pin] : memory.pins) {
    put_value(value);
    out.I32(pin.arena);
    out.U64(pin.offset);
  }
  out.U64(memory.joined_buckets.size());
  for (const int64_t bucket : memory.joined_buckets) out.I64(bucket);
}

absl::Status GetMemory(WireReader& in, const Graph& graph, MemoryTable& memory) {
  const auto get_value = [&]() -> absl::StatusOr<ValueId> {
    TUTTI_ASSIGN_OR_RETURN(const Node* node, GetNode(in, graph));
    const int output = in.I32();
    if (output >= 0 && output < node->num_outputs()) return ValueId{node->id(), output};
    return InvalidArgument("a memory table names output {} of {}, which has {}", output,
                           node->Describe(), node->num_outputs());
  };
  const size_t layouts = GetCount(in, 20);
  for (size_t i = 0; i < layouts; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const ValueId value, get_value());
    memory.layouts[value] = Layout(std::string(GetText(in)));
  }
  memory.arenas.resize(GetCount(in, 16));
  for (PinnedArena& arena : memory.arenas) {
    arena.name = GetText(in);
    arena.kind = GetText(in);
  }
  const size_t pins = GetCount(in, 24);
  for (size_t i = 0; i < pins; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const ValueId value, get_value());
    const int arena = in.I32();
    if (arena < 0 || size_t(arena) >= memory.arenas.size()) {
      return InvalidArgument("a memory table pins a value into arena {}; it has {}", arena,
                             memory.arenas.size());
    }
    memory.pins[value] = {.arena = arena, .offset = size_t(in.U64())};
  }
  const size_t buckets = GetCount(in, 8);
  for (size_t i = 0; i < buckets; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const Node* bucket, GetNode(in, graph));
    memory.joined_buckets.insert(bucket->id());
  }
  return absl::OkStatus();
}

absl::Status PutProgram(WireWriter& out, const Program& program) {
  TUTTI_ASSIGN_OR_RETURN(const std::string graph, SerializeGraph(*program.graph));
  PutText(out, graph);
  PutOutputs(out, program.feeds);
  PutOutputs(out, program.fetches);
  out.U64(program.targets.size());
  for (const Node* target : program.targets) out.I64(target->id());
  PutMemory(out, program.memory);
  return absl::OkStatus();
}

absl::StatusOr<Program> GetProgram(WireReader& in) {
  Program program;
  TUTTI_RETURN_IF_ERROR(ParseSerializedGraph(GetText(in), program.graph.get()));
  TUTTI_RETURN_IF_ERROR(GetOutputs(in, *program.graph, program.feeds));
  TUTTI_RETURN_IF_ERROR(GetOutputs(in, *program.graph, program.fetches));
  const size_t targets = GetCount(in, 8);
  for (size_t i = 0; i < targets; ++i) {
    TUTTI_ASSIGN_OR_RETURN(const Node* target, GetNode(in, *program.graph));
    program.targets.push_back(target);
  }
  TUTTI_RETURN_IF_ERROR(GetMemory(in, *program.graph, program.memory));
  return program;
}

void PutTrace(WireWriter& out, const StepTrace& trace) {
  out.U64(trace.nodes.size());
  for (const NodeRecord& node : trace.nodes) {
    PutText(out, node.name);
    PutText(out, node.op);
    PutText(out, node.device);
    out.I64(node.start_nanos);
    out.I64(node.end_nanos);
    out.I64(node.bytes);
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
  trace->nodes.resize(GetCount(in, 48));
  for (NodeRecord& node : trace->nodes) {
    node.name = GetText(in);
    node.op = GetText(in);
    node.device = GetText(in);
    node.start_nanos = in.I64();
    node.end_nanos = in.I64();
    node.bytes = in.I64();
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

// What was decoded, if the message was whole.
template <typename T>
absl::StatusOr<T> IfComplete(const WireReader& in, T value, const char* what) {
  if (in.Complete()) return value;
  return InvalidArgument("a {} that is {}", what, in.ok() ? "too long" : "cut off");
}

}  // namespace

std::string EncodeStatus(const absl::Status& status) {
  std::string bytes;
  WireWriter out(&bytes);
  PutStatus(out, status);
  return bytes;
}

absl::Status DecodeStatus(std::string_view bytes) {
  WireReader in(bytes);
  absl::Status status = GetStatus(in);
  return in.Complete() ? status : InvalidArgument("a status that is cut off or too long");
}

std::string EncodeDevices(const std::vector<DeviceInfo>& devices) {
  std::string bytes;
  WireWriter out(&bytes);
  out.U64(devices.size());
  for (const DeviceInfo& device : devices) {
    PutText(out, device.name);
    PutText(out, device.type);
    out.I32(device.cores);
    out.I64(device.memory_bytes);
    out.U64(device.incarnation);
  }
  return bytes;
}

absl::StatusOr<std::vector<DeviceInfo>> DecodeDevices(std::string_view bytes) {
  WireReader in(bytes);
  std::vector<DeviceInfo> devices(GetCount(in, 36));
  for (DeviceInfo& device : devices) {
    device.name = GetText(in);
    device.type = GetText(in);
    device.cores = in.I32();
    device.memory_bytes = in.I64();
    device.incarnation = in.U64();
  }
  return IfComplete(in, std::move(devices), "list of devices");
}

absl::StatusOr<std::string> EncodeRegister(const RegisterRequest& request) {
  std::string bytes;
  WireWriter out(&bytes);
  out.U64(request.session);
  out.U8(request.options.optimize ? 1 : 0);
  out.U64(request.parts.size());
  for (const Partition& part : request.parts) {
    PutText(out, part.device);
    PutIndices(out, part.feed_index);
    PutIndices(out, part.fetch_index);
    TUTTI_RETURN_IF_ERROR(PutProgram(out, part.program));
  }
  return bytes;
}

absl::StatusOr<RegisterRequest> DecodeRegister(std::string_view bytes) {
  WireReader in(bytes);
  RegisterRequest request;
  request.session = in.U64();
  request.options.optimize = in.U8() != 0;
  request.parts.resize(GetCount(in, 56));
  for (Partition& part : request.parts) {
    part.device = GetText(in);
    part.feed_index = GetIndices(in);
    part.fetch_index = GetIndices(in);
    TUTTI_ASSIGN_OR_RETURN(part.program, GetProgram(in));
  }
  return IfComplete(in, std::move(request), "register request");
}

std::string EncodeRun(const RunRequest& request) {
  std::string bytes;
  WireWriter out(&bytes);
  out.U64(request.id.session);
  out.I64(request.id.step);
  out.U64(request.handle);
  out.I64(request.random_step);
  out.U8(request.trace ? 1 : 0);
  PutTensors(out, request.feeds);
  return bytes;
}

absl::StatusOr<RunRequest> DecodeRun(std::string_view bytes) {
  WireReader in(bytes);
  RunRequest request;
  request.id.session = in.U64();
  request.id.step = in.I64();
  request.handle = in.U64();
  request.random_step = in.I64();
  request.trace = in.U8() != 0;
  TUTTI_RETURN_IF_ERROR(GetTensors(in, request.feeds));
  return IfComplete(in, std::move(request), "run request");
}

std::string EncodeResponse(const RunResponse& response) {
  std::string bytes;
  WireWriter out(&bytes);
  PutStatus(out, response.status);
  PutText(out, response.unfinished);
  PutTensors(out, response.results);
  out.U8(response.trace != nullptr ? 1 : 0);
  if (response.trace != nullptr) PutTrace(out, *response.trace);
  return bytes;
}

absl::StatusOr<RunResponse> DecodeResponse(std::string_view bytes) {
  WireReader in(bytes);
  RunResponse response;
  response.status = GetStatus(in);
  response.unfinished = GetText(in);
  TUTTI_RETURN_IF_ERROR(GetTensors(in, response.results));
  if (in.U8() != 0) response.trace = GetTrace(in);
  return IfComplete(in, std::move(response), "run response");
}

}  // namespace tutti
