// Registered steps as bytes: programs with their graphs and memory tables.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "tutti/graph/serialize.h"
#include "tutti/net/wire.h"
#include "tutti/runtime/messages/codec_fields.h"
#include "tutti/runtime/messages/message_codec.h"

namespace tutti {
namespace {

using codec::Decoder;
using codec::GetCount;
using codec::GetText;
using codec::IfComplete;
using codec::PutText;
using net::WireReader;
using net::WireWriter;

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

absl::Status PutProgram(const Program& program, WireMessage& to) {
  // The graph counts its large constants from 0, whatever other programs have put beside theirs.
  std::vector<Tensor> constants;
  TUTTI_ASSIGN_OR_RETURN(const std::string graph, SerializeNodes(*program.graph, 0, constants));
  WireWriter out(&to.fields);
  PutText(out, graph);
  out.U64(constants.size());
  std::move(constants.begin(), constants.end(), std::back_inserter(to.tensors));
  PutOutputs(out, program.feeds);
  PutOutputs(out, program.fetches);
  out.U64(program.targets.size());
  for (const Node* target : program.targets) out.I64(target->id());
  PutMemory(out, program.memory);
  return absl::OkStatus();
}

absl::StatusOr<Program> GetProgram(Decoder& in) {
  Program program;
  const std::string_view graph = GetText(in);
  const uint64_t constants = in.U64();
  TUTTI_RETURN_IF_ERROR(
      ParseSerializedNodes(graph, in.NextTensors(size_t(std::min<uint64_t>(constants, SIZE_MAX))),
                           0, program.graph.get()));
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

}  // namespace

absl::Status EncodeRegister(const RegisterRequest& request, WireMessage& to) {
  WireWriter out(&to.fields);
  out.U64(request.session);
  out.U8(request.options.optimize ? 1 : 0);
  out.U64(request.parts.size());
  for (const Partition& part : request.parts) {
    PutText(out, part.device);
    PutIndices(out, part.feed_index);
    PutIndices(out, part.fetch_index);
    TUTTI_RETURN_IF_ERROR(PutProgram(part.program, to));
  }
  return absl::OkStatus();
}

absl::StatusOr<RegisterRequest> DecodeRegister(std::string_view fields, ReceivedTensors tensors) {
  Decoder in(fields, tensors);
  RegisterRequest request;
  request.session = in.U64();
  request.options.optimize = in.U8() != 0;
  request.parts.resize(GetCount(in, 64));
  for (Partition& part : request.parts) {
    part.device = GetText(in);
    part.feed_index = GetIndices(in);
    part.fetch_index = GetIndices(in);
    TUTTI_ASSIGN_OR_RETURN(part.program, GetProgram(in));
  }
  return IfComplete(in, std::move(request), "register request");
}

}  // namespace tutti
