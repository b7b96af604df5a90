#include "tutti/graph/serialize.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/wire_format_lite.h>

#include <bit>
#include <climits>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "proto/graph.pb.h"
#include "tutti/base/checked.h"
#include "tutti/graph/build.h"
#include "tutti/graph/text/scanner.h"

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "tensors are stored little-endian");

constexpr int kFormat = 1;
constexpr int kMostNested = 64;
// Node, Attr, Subgraph, Graph for each level, and what lies in the innermost one.
constexpr int kMostNestedMessages = 4 * (kMostNested + 1) + 4;

// ---------------------------------------------------------------------------------- writing

// Where constants go that are not to lie in the graph; null: nowhere.
using Beside = std::vector<Tensor>*;

void Write(const Graph& graph, int64_t first, Beside beside, proto::Graph& to);

void Write(const Output& output, proto::Output& to) {
  to.set_node(output.node->id());
  to.set_index(output.index);
}

void Write(const Shape& shape, proto::Shape& to) {
  to.set_unknown_rank(!shape.has_rank());
  for (const int64_t dim : shape.dims()) to.add_dims(dim);
}

void Write(const Tensor& tensor, Beside beside, proto::Tensor& to) {
  to.set_dtype(int32_t(tensor.dtype()));
  if (!tensor.valid()) return;
  for (const int64_t dim : tensor.shape().dims()) to.add_dims(dim);
  if (beside != nullptr && tensor.bytes() >= kLargeConstant) {
    beside->push_back(tensor);
    to.set_beside(int64_t(beside->size()));
    return;
  }
  to.set_data(tensor.raw(), tensor.bytes());
}

void Write(const std::shared_ptr<const Subgraph>& subgraph, Beside beside, proto::Subgraph& to) {
  if (subgraph == nullptr || subgraph->graph == nullptr) return;
  Write(*subgraph->graph, 0, beside, *to.mutable_graph());
  for (const Output& arg : subgraph->args) Write(arg, *to.add_args());
  for (const Output& result : subgraph->results) Write(result, *to.add_results());
}

void Write(const Attr& attr, Beside beside, proto::Attr& to) {
  const AttrValue& value = attr.second;
  to.set_name(attr.first);
  switch (TypeOf(value)) {
    case AttrType::kBool:
      return to.set_boolean(std::get<bool>(value));
    case AttrType::kInt:
      return to.set_integer(std::get<int64_t>(value));
    case AttrType::kFloat:
      return to.set_real(std::get<double>(value));
    case AttrType::kString:
      return to.set_text(std::get<std::string>(value));
    case AttrType::kDType:
      return to.set_dtype(int32_t(std::get<DType>(value)));
    case AttrType::kShape:
      return Write(std::get<Shape>(value), *to.mutable_shape());
    case AttrType::kTensor:
      return Write(std::get<Tensor>(value), beside, *to.mutable_tensor());
    case AttrType::kInts: {
      const auto& values = std::get<std::vector<int64_t>>(value);
      to.mutable_integers()->mutable_values()->Assign(values.begin(), values.end());
      return;
    }
    case AttrType::kFloats: {
      const auto& values = std::get<std::vector<double>>(value);
      to.mutable_reals()->mutable_values()->Assign(values.begin(), values.end());
      return;
    }
    case AttrType::kStrings: {
      auto& texts = *to.mutable_texts();
      for (const std::string& item : std::get<std::vector<std::string>>(value)) {
        texts.add_values(item);
      }
      return;
    }
    case AttrType::kSubgraph:
      return Write(std::get<std::shared_ptr<const Subgraph>>(value), beside,
                   *to.mutable_subgraph());
  }
}

void Write(const Graph& graph, int64_t first, Beside beside, proto::Graph& to) {
  to.set_format(kFormat);
  to.mutable_nodes()->Reserve(int(graph.size() - first));
  for (const auto& node : std::span(graph.nodes()).subspan(size_t(first))) {
    proto::Node& made = *to.add_nodes();
    made.set_op(node->op());
    made.set_name(node->name());
    for (const Output& input : node->inputs()) Write(input, *made.add_inputs());
    for (const Node* control : node->control_inputs()) made.add_control_inputs(control->id());
    for (const Attr& attr : node->attrs()) Write(attr, beside, *made.add_attrs());
    made.set_device(node->device());
  }
}

// ---------------------------------------------------------------------------------- reading

using Constants = std::span<const Tensor>;  // those that came beside the graph

absl::Status Read(const proto::Graph& from, Constants beside, Graph& graph, int depth);

absl::StatusOr<DType> ReadDType(int32_t number) {
  if (number < 0 || number > int32_t(DType::kBool)) {
    return InvalidArgument("{} is no dtype; expected 0 to {}", number, int32_t(DType::kBool));
  }
  return DType(number);
}

template <typename Dims>
absl::StatusOr<Shape> ReadDims(const Dims& dims) {
  std::string why;
  const auto shape = Shape::Make(std::span(dims.data(), size_t(dims.size())), &why);
  if (!shape) return InvalidArgument("{}", why);
  return *shape;
}

absl::Status CheckBools(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte != 0 && byte != 1) {
      return InvalidArgument("a bool tensor holds the byte {}; expected 0 or 1", uint8_t(byte));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ReadTensor(const proto::Tensor& from, Constants beside) {
  TUTTI_ASSIGN_OR_RETURN(const DType dtype, ReadDType(from.dtype()));
  if (dtype == DType::kInvalid) {
    if (from.dims_size() == 0 && from.data().empty()) return Tensor();
    return InvalidArgument("a tensor has a value but no dtype");
  }
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ReadDims(from.dims()));
  if (!shape.IsFullyKnown()) {
    return InvalidArgument("a tensor has the shape {}, which is not known", shape.ToString());
  }
  const auto bytes = CheckedMul(shape.elements(), int64_t(SizeOf(dtype)));
  if (from.beside() < 0 || from.beside() > int64_t(beside.size())) {
    return InvalidArgument("a tensor is number {} of those beside the graph; there are {}",
                           from.beside(), beside.size());
  }
  const Tensor* const apart = from.beside() > 0 ? &beside[size_t(from.beside() - 1)] : nullptr;
  const size_t given = apart != nullptr ? apart->bytes() : from.data().size();
  if (!bytes || *bytes != int64_t(given)) {
    return InvalidArgument("a tensor of {} {} holds {} bytes; expected {}", NameOf(dtype),
                           shape.ToString(), given,
                           bytes ? std::to_string(*bytes) : "more than 2^63");
  }
  if (apart != nullptr) {
    if (dtype == kBool) {
      TUTTI_RETURN_IF_ERROR(CheckBools({static_cast<const char*>(apart->raw()), given}));
    }
    const auto* const start = static_cast<const std::byte*>(apart->buffer()->data());
    const auto offset = size_t(static_cast<const std::byte*>(apart->raw()) - start);
    return Tensor(dtype, shape, apart->buffer(), offset);
  }
  if (dtype == kBool) TUTTI_RETURN_IF_ERROR(CheckBools(from.data()));
  Tensor tensor(dtype, shape);
  if (*bytes > 0) std::memcpy(tensor.raw(), from.data().data(), size_t(*bytes));
  return tensor;
}

absl::StatusOr<Output> ReadOutput(const proto::Output& from, const Graph& graph) {
  if (from.node() < 0 || from.node() >= graph.size()) {
    return InvalidArgument("refers to node {}; only the {} nodes before it can be used",
                           from.node(), graph.size());
  }
  const Node& node = *graph.nodes()[size_t(from.node())];
  if (from.index() < 0 || from.index() >= node.num_outputs()) {
    return InvalidArgument("refers to output {} of {}, which has {}", from.index(), node.Describe(),
                           node.num_outputs());
  }
  return node.output(from.index());
}

absl::StatusOr<std::shared_ptr<const Subgraph>> ReadSubgraph(const proto::Subgraph& from,
                                                             Constants beside, Graph& parent,
                                                             int depth) {
  if (!from.has_graph()) return std::shared_ptr<const Subgraph>();
  if (depth == kMostNested) {
    return InvalidArgument("subgraphs are nested more than {} deep", kMostNested);
  }
  auto subgraph = std::make_shared<Subgraph>();
  subgraph->graph = std::make_unique<Graph>(&parent);
  TUTTI_RETURN_IF_ERROR(Read(from.graph(), beside, *subgraph->graph, depth + 1));
  for (const proto::Output& arg : from.args()) {
    TUTTI_ASSIGN_OR_RETURN(const Output output, ReadOutput(arg, *subgraph->graph));
    if (output.node->op() != "Arg") {
      return InvalidArgument("the args of a subgraph are Arg nodes, got {}",
                             output.node->Describe());
    }
    subgraph->args.push_back(output);
  }
  for (const proto::Output& result : from.results()) {
    TUTTI_ASSIGN_OR_RETURN(const Output output, ReadOutput(result, *subgraph->graph));
    subgraph->results.push_back(output);
  }
  return subgraph;
}

absl::StatusOr<AttrValue> ReadValue(const proto::Attr& from, Constants beside, Graph& graph,
                                    int depth) {
  switch (from.value_case()) {
    case proto::Attr::kBoolean:
      return AttrValue(from.boolean());
    case proto::Attr::kInteger:
      return AttrValue(int64_t{from.integer()});
    case proto::Attr::kReal:
      return AttrValue(from.real());
    case proto::Attr::kText:
      return AttrValue(from.text());
    case proto::Attr::kDtype: {
      TUTTI_ASSIGN_OR_RETURN(const DType dtype, ReadDType(from.dtype()));
      return AttrValue(dtype);
    }
    case proto::Attr::kShape: {
      if (from.shape().unknown_rank()) return AttrValue(Shape::UnknownRank());
      TUTTI_ASSIGN_OR_RETURN(const Shape shape, ReadDims(from.shape().dims()));
      return AttrValue(shape);
    }
    case proto::Attr::kTensor: {
      TUTTI_ASSIGN_OR_RETURN(Tensor tensor, ReadTensor(from.tensor(), beside));
      return AttrValue(std::move(tensor));
    }
    case proto::Attr::kIntegers:
      return AttrValue(
          std::vector<int64_t>(from.integers().values().begin(), from.integers().values().end()));
    case proto::Attr::kReals:
      return AttrValue(
          std::vector<double>(from.reals().values().begin(), from.reals().values().end()));
    case proto::Attr::kTexts:
      return AttrValue(
          std::vector<std::string>(from.texts().values().begin(), from.texts().values().end()));
    case proto::Attr::kSubgraph: {
      TUTTI_ASSIGN_OR_RETURN(auto subgraph, ReadSubgraph(from.subgraph(), beside, graph, depth));
      return AttrValue(std::move(subgraph));
    }
    case proto::Attr::VALUE_NOT_SET:
      break;
  }
  return InvalidArgument("it has no value of a known kind");
}

absl::Status ReadNode(const proto::Node& from, Constants beside, Graph& graph, int depth) {
  if (from.name().empty()) return InvalidArgument("it has no name");
  NodeSpec spec;
  spec.op = from.op();
  spec.name = from.name();
  spec.device = from.device();
  for (const proto::Output& input : from.inputs()) {
    TUTTI_ASSIGN_OR_RETURN(const Output output, ReadOutput(input, graph));
    spec.inputs.push_back(output);
  }
  for (const int64_t control : from.control_inputs()) {
    if (control < 0 || control >= graph.size()) {
      return InvalidArgument("runs after node {}; only the {} nodes before it can be used", control,
                             graph.size());
    }
    spec.control_inputs.push_back(graph.nodes()[size_t(control)].get());
  }
  for (const proto::Attr& attr : from.attrs()) {
    auto value = ReadValue(attr, beside, graph, depth);
    if (!value.ok()) {
      return WithPrefix(value.status(), fmt::format("attribute \"{}\": ", attr.name()));
    }
    if (!spec.attrs.empty() && spec.attrs.back().first >= attr.name()) {
      return InvalidArgument("attribute \"{}\" comes after \"{}\"; expected them sorted, each once",
                             attr.name(), spec.attrs.back().first);
    }
    spec.attrs.emplace_back(attr.name(), *std::move(value));
  }
  return AddNode(graph, std::move(spec)).status();
}

// Names from outside, fit for a message.
std::string Shown(std::string_view name) {
  const std::string quoted = Quote(name.substr(0, 256));
  return quoted.substr(1, quoted.size() - 2);
}

absl::Status Read(const proto::Graph& from, Constants beside, Graph& graph, int depth) {
  if (from.format() != kFormat) {
    return InvalidArgument(
        "the graph has format {}; this version reads format {}. It is damaged or was written by a "
        "later version",
        from.format(), kFormat);
  }
  for (int i = 0; i < from.nodes_size(); ++i) {
    const proto::Node& node = from.nodes(i);
    const absl::Status status = ReadNode(node, beside, graph, depth);
    if (!status.ok()) {
      return WithPrefix(
          status, fmt::format("node {} ({} \"{}\"): ", i, Shown(node.op()), Shown(node.name())));
    }
  }
  return absl::OkStatus();
}

// How many nodes the outermost graph has, without reading them: for each of some bytes on the wire
// protobuf makes hundreds in memory. What is damaged counts up to the damage.
int64_t CountNodes(std::string_view bytes) {
  using google::protobuf::internal::WireFormatLite;
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                int(bytes.size()));
  int64_t nodes = 0;
  while (const uint32_t tag = stream.ReadTag()) {
    if (WireFormatLite::GetTagFieldNumber(tag) == proto::Graph::kNodesFieldNumber) ++nodes;
    if (!WireFormatLite::SkipField(&stream, tag)) break;
  }
  return nodes;
}

absl::Status Parse(std::string_view bytes, Constants beside, int64_t most, Graph& graph) {
  if (bytes.size() > size_t{INT_MAX}) {
    return InvalidArgument("a serialized graph has at most 2 GB, got {} bytes", bytes.size());
  }
  if (most < INT64_MAX) {
    const int64_t nodes = CountNodes(bytes);
    if (graph.size() > most || nodes > most - graph.size()) {
      return ResourceExhausted("the graph has {} nodes; at most {} are taken", graph.size() + nodes,
                               most);
    }
  }
  google::protobuf::io::CodedInputStream stream(reinterpret_cast<const uint8_t*>(bytes.data()),
                                                int(bytes.size()));
  stream.SetRecursionLimit(kMostNestedMessages);
  proto::Graph from;
  if (!from.ParseFromCodedStream(&stream) || !stream.ConsumedEntireMessage()) {
    return InvalidArgument(
        "{} bytes are no serialized graph: they are truncated or damaged, or nested too deep",
        bytes.size());
  }
  return Read(from, beside, graph, 0);
}

// The bytes of the nodes from `first` on.
absl::StatusOr<std::string> Serialize(const Graph& graph, int64_t first, Beside beside) {
  proto::Graph to;
  Write(graph, first, beside, to);
  const size_t size = to.ByteSizeLong();
  if (size > size_t{INT_MAX}) {
    return ResourceExhausted(
        "the serialized graph has {} bytes; protobuf holds at most 2 GB. Feed large constants or "
        "keep them in variables",
        size);
  }
  std::string bytes;
  if (!to.SerializeToString(&bytes)) return Internal("protobuf failed to serialize the graph");
  return bytes;
}

}  // namespace

absl::StatusOr<std::string> SerializeGraph(const Graph& graph) {
  return Serialize(graph, 0, nullptr);
}

absl::StatusOr<std::string> SerializeNodes(const Graph& graph, int64_t first,
                                           std::vector<Tensor>& beside) {
  return Serialize(graph, first, &beside);
}

absl::Status ParseSerializedGraph(std::string_view bytes, Graph* graph) {
  return ParseSerializedNodes(bytes, {}, 0, graph);
}

absl::Status ParseSerializedNodes(std::string_view bytes, std::span<const Tensor> beside,
                                  int64_t first, Graph* graph, int64_t most) {
  if (graph->size() != first || !graph->name_scope().empty() || !graph->device_scope().empty() ||
      !graph->control_scope().empty()) {
    if (first == 0) {
      return FailedPrecondition(
          "a serialized graph is read into an empty graph without open scopes; this one has {} "
          "nodes",
          graph->size());
    }
    return FailedPrecondition("nodes from number {} on are to follow a graph that has {} nodes",
                              first, graph->size());
  }
  try {
    return Parse(bytes, beside, most, *graph);
  } catch (...) {
    return StatusFromCurrentException();  // out of memory
  }
}

}  // namespace tutti
