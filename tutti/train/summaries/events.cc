// Field numbers are those of tensorflow/core/util/event.proto, framework/summary.proto,
// framework/graph.proto, framework/tensor.proto and framework/attr_value.proto, which are stable.
#include "tutti/train/summaries/events.h"

#include "tutti/train/summaries/proto_writer.h"

namespace tutti {
namespace {

namespace event {
enum { kWallTime = 1, kStep = 2, kFileVersion = 3, kGraphDef = 4, kSummary = 5, kSessionLog = 7 };
}
namespace value {
enum { kTag = 1, kSimpleValue = 2, kHistogram = 5, kTensor = 8, kMetadata = 9 };
}
constexpr int kSessionStart = 1;  // SessionLog.START
constexpr int kStringType = 7;    // DT_STRING
constexpr int kProducer = 1395;   // of the graph's version: any that TensorBoard knows

ProtoWriter EventAt(double wall_time, int64_t step) {
  ProtoWriter writer;
  writer.Double(event::kWallTime, wall_time);
  writer.Integer(event::kStep, step);
  return writer;
}

ProtoWriter Encode(const Histogram& histogram) {
  ProtoWriter writer;
  writer.Double(1, histogram.min);
  writer.Double(2, histogram.max);
  writer.Double(3, histogram.count);
  writer.Double(4, histogram.sum);
  writer.Double(5, histogram.sum_squares);
  writer.Doubles(6, histogram.limits);
  writer.Doubles(7, histogram.counts);
  return writer;
}

// A text is a string tensor that says by its metadata that the text plugin shows it.
void AddText(const std::string& tag, const std::string& text, ProtoWriter& summary) {
  ProtoWriter plugin, metadata, tensor, shape, dim, one;
  plugin.Text(1, "text");
  metadata.Message(1, plugin);
  dim.Integer(1, 1);
  shape.Message(2, dim);
  tensor.Integer(1, kStringType);
  tensor.Message(2, shape);
  tensor.Text(8, text);
  one.Text(value::kTag, tag);
  one.Message(value::kTensor, tensor);
  one.Message(value::kMetadata, metadata);
  summary.Message(1, one);
}

ProtoWriter EncodeShape(const Shape& shape) {
  ProtoWriter writer;
  if (!shape.has_rank()) {
    writer.Integer(3, 1);  // unknown_rank
    return writer;
  }
  for (int i = 0; i < shape.rank(); ++i) {
    ProtoWriter dim;
    dim.Integer(1, shape[i]);
    writer.Message(2, dim);
  }
  return writer;
}

void AddAttr(const char* name, const ProtoWriter& attr, ProtoWriter& node) {
  ProtoWriter entry;
  entry.Text(1, name);
  entry.Message(2, attr);
  node.Message(5, entry);
}

ProtoWriter EncodeNode(const Node& node) {
  ProtoWriter writer;
  writer.Text(1, node.name());
  writer.Text(2, node.op());
  for (const Output& input : node.inputs()) writer.Text(3, input.name());
  for (const Node* input : node.control_inputs()) writer.Text(3, "^" + input->name());
  writer.Text(4, node.device());
  if (node.num_outputs() > 0) {
    ProtoWriter shapes, attr;
    for (int i = 0; i < node.num_outputs(); ++i) {
      shapes.Message(7, EncodeShape(node.type(i).shape));  // ListValue.shape
    }
    attr.Message(1, shapes);  // AttrValue.list
    AddAttr("_output_shapes", attr, writer);
  }
  return writer;
}

}  // namespace

std::string FileVersionEvent(double wall_time) {
  ProtoWriter writer;
  writer.Double(event::kWallTime, wall_time);
  writer.Text(event::kFileVersion, "brain.Event:2");
  return writer.bytes();
}

std::string SessionStartEvent(double wall_time, int64_t step) {
  ProtoWriter log;
  log.Integer(1, kSessionStart);
  ProtoWriter writer = EventAt(wall_time, step);
  writer.Message(event::kSessionLog, log);
  return writer.bytes();
}

std::string SummaryEvent(double wall_time, int64_t step, const SummaryValues& values) {
  ProtoWriter summary;
  for (const auto& [tag, number] : values.scalars) {
    ProtoWriter one;
    one.Text(value::kTag, tag);
    one.Float(value::kSimpleValue, float(number));
    summary.Message(1, one);
  }
  for (const auto& [tag, tensor] : values.histograms) {
    ProtoWriter one;
    one.Text(value::kTag, tag);
    one.Message(value::kHistogram, Encode(HistogramOf(tensor)));
    summary.Message(1, one);
  }
  for (const auto& [tag, text] : values.texts) AddText(tag, text, summary);
  ProtoWriter writer = EventAt(wall_time, step);
  writer.Message(event::kSummary, summary);
  return writer.bytes();
}

std::string GraphEvent(double wall_time, const Graph& graph, int64_t nodes) {
  ProtoWriter encoded, versions;
  for (int64_t id = 0; id < nodes; ++id) {
    encoded.Message(1, EncodeNode(*graph.nodes()[size_t(id)]));
  }
  versions.Integer(1, kProducer);
  encoded.Message(4, versions);
  ProtoWriter writer;
  writer.Double(event::kWallTime, wall_time);
  writer.Message(event::kGraphDef, encoded);
  return writer.bytes();
}

}  // namespace tutti
