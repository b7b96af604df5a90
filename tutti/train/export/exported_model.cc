#include "tutti/train/export/exported_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "tutti/base/crc32c.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/client/session.h"
#include "tutti/graph/io.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/variables.h"
#include "tutti/train/export/export_format.h"
#include "tutti/train/export/prediction.h"

namespace tutti {
namespace {

constexpr int64_t kMostModelBytes = int64_t{16} << 20;
constexpr int64_t kMostGraphBytes = int64_t{2} << 30;

// A graph from outside may compute, and nothing else: no files, no queues, no other workers.
void RequirePure(const Graph& graph, const std::string& path) {
  std::vector<const Graph*> open = {&graph};
  while (!open.empty()) {
    const Graph& here = *open.back();
    open.pop_back();
    for (const auto& node : here.nodes()) {
      if (node->op() != "Variable" && (!node->def().only_computes() || node->def().collective)) {
        ThrowInvalidArgument(fmt::format("{}: {} does more than compute; an exported model may not",
                                         path, node->Describe()));
      }
      for (const auto& [name, value] : node->attrs()) {
        if (const auto* body = std::get_if<std::shared_ptr<const Subgraph>>(&value)) {
          if (*body != nullptr && (*body)->graph != nullptr) open.push_back((*body)->graph.get());
        }
      }
    }
  }
}

std::string Text(const ValueType& type) {
  return fmt::format("{} {}", NameOf(type.dtype), type.shape.ToString());
}

// The outputs of the graph that the signature names.
std::map<std::string, Output> Resolve(const std::map<std::string, ModelValue>& values,
                                      const Graph& graph, const std::string& path) {
  std::map<std::string, Output> found;
  for (const auto& [name, value] : values) {
    const Output output = graph.FindOutput(value.node);
    if (!output) {
      ThrowInvalidArgument(fmt::format("{}: \"{}\" is the node \"{}\", which {} does not have",
                                       path, name, value.node, kGraphFile));
    }
    if (output.dtype() != value.dtype || !output.shape().CompatibleWith(value.shape)) {
      ThrowInvalidArgument(fmt::format("{}: \"{}\" is {}, but the graph has {}", path, name,
                                       Text({value.dtype, value.shape}),
                                       Text({output.dtype(), output.shape()})));
    }
    found[name] = output;
  }
  return found;
}

void RequireCrc(const std::string& what, uint32_t found, uint32_t expected) {
  if (found == expected) return;
  throw Error(Code::kDataLoss, fmt::format("{} is damaged: its CRC32C is {:08x}, expected {:08x}; "
                                           "export the model again",
                                           what, found, expected));
}

std::vector<Tensor> ReadWeights(checkpoint::FileSystem& files, const std::string& path,
                                const std::vector<Output>& variables,
                                const ModelChecksums* checksums) {
  const checkpoint::ShardFile file = ValueOrThrow(checkpoint::ShardFile::Open(files, path));
  if (checksums != nullptr) {
    RequireCrc(path + ": its header", Crc32c(std::as_bytes(std::span(file.header_text()))),
               checksums->header);
  }
  std::vector<Tensor> values;
  std::vector<checkpoint::ShardFile::Request> requests;
  for (const Output& variable : variables) {
    const auto& tensors = file.header().tensors;
    const auto entry = std::find_if(tensors.begin(), tensors.end(), [&](const auto& tensor) {
      return tensor.name == variable.node->name();
    });
    if (entry == tensors.end()) {
      ThrowInvalidArgument(fmt::format("{} has no tensor \"{}\", which the graph needs", path,
                                       variable.node->name()));
    }
    if (entry->dtype != variable.dtype() || entry->shape != variable.shape()) {
      ThrowInvalidArgument(fmt::format("{}: \"{}\" is {}, but the graph has {}", path, entry->name,
                                       Text({entry->dtype, entry->shape}),
                                       Text({variable.dtype(), variable.shape()})));
    }
    values.emplace_back(entry->dtype, entry->shape);
    Tensor& value = values.back();
    requests.push_back(
        {&*entry, std::span(static_cast<std::byte*>(value.raw()), value.bytes()), 0});
  }
  ThrowIfError(file.Read(requests));
  for (const auto& request : requests) {
    if (checksums == nullptr) break;
    const auto expected = checksums->tensors.find(request.entry->name);
    const std::string what = fmt::format("{}: tensor \"{}\"", path, request.entry->name);
    if (expected == checksums->tensors.end()) {
      throw Error(Code::kDataLoss, fmt::format("{} has no checksum in {}", what, kModelFile));
    }
    RequireCrc(what, request.crc, expected->second);
  }
  return values;
}

}  // namespace

struct ExportedModel::State {
  Graph graph;
  ModelSignature signature;
  std::map<std::string, Output> inputs, outputs;
  std::optional<Session> session;

  void Load(const std::string& directory) {
    checkpoint::FileSystem& files = checkpoint::FileSystem::System();
    const std::string model = directory + "/" + kModelFile;
    signature =
        ParseSignature(ValueOrThrow(checkpoint::ReadWhole(files, model, kMostModelBytes)), model);
    const std::string path = directory + "/" + kGraphFile;
    const std::string bytes = ValueOrThrow(checkpoint::ReadWhole(files, path, kMostGraphBytes));
    if (signature.checksums) {
      RequireCrc(path, Crc32c(std::as_bytes(std::span(bytes))), signature.checksums->graph);
    }
    try {
      ReadGraphBytes(bytes, graph);
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", path, error.what()));
    }
    RequirePure(graph, path);
    inputs = Resolve(signature.inputs, graph, model);
    outputs = Resolve(signature.outputs, graph, model);
    Restore(files, directory + "/" + kWeightsFile);
  }

  // Gives the variables their values through nodes of its own.
  void Restore(checkpoint::FileSystem& files, const std::string& path) {
    const std::vector<Output> variables = nn::Variables(graph);
    const std::vector<Tensor> values =
        ReadWeights(files, path, variables, signature.checksums ? &*signature.checksums : nullptr);
    std::vector<Feed> feeds;
    std::vector<const Node*> assigns;
    NameScope scope(graph, "restore");
    for (size_t i = 0; i < variables.size(); ++i) {
      const Output value = Placeholder(graph, values[i].dtype(), values[i].shape());
      feeds.emplace_back(value, values[i]);
      assigns.push_back(Assign(variables[i], value).node);
    }
    session.emplace(graph);
    if (!assigns.empty()) session->RunInto(feeds, {}, assigns, {});
  }
};

ExportedModel::ExportedModel(const std::string& directory) : state_(std::make_unique<State>()) {
  state_->Load(directory);
}
ExportedModel::~ExportedModel() = default;
ExportedModel::ExportedModel(ExportedModel&&) noexcept = default;

const std::map<std::string, ModelValue>& ExportedModel::inputs() const {
  return state_->signature.inputs;
}
const std::map<std::string, ModelValue>& ExportedModel::outputs() const {
  return state_->signature.outputs;
}
int64_t ExportedModel::step() const { return state_->signature.step; }

Columns ExportedModel::Predict(const Columns& columns) const {
  std::vector<Feed> feeds;
  for (const auto& [name, placeholder] : state_->inputs) {
    const auto column = columns.find(name);
    const ModelValue& expected = inputs().at(name);
    if (column == columns.end()) {
      ThrowInvalidArgument(fmt::format("the model needs an input \"{}\", {}", name,
                                       Text({expected.dtype, expected.shape})));
    }
    const Tensor& value = column->second;
    if (value.dtype() != expected.dtype || !value.shape().CompatibleWith(expected.shape)) {
      ThrowInvalidArgument(fmt::format("the input \"{}\" is {}; the model expects {}", name,
                                       Text({value.dtype(), value.shape()}),
                                       Text({expected.dtype, expected.shape})));
    }
    feeds.emplace_back(placeholder, value);
  }
  std::vector<Output> fetches;
  for (const auto& [name, output] : state_->outputs) fetches.push_back(output);
  const std::vector<Tensor> values = state_->session->Run(feeds, fetches);
  Columns results;
  size_t i = 0;
  for (const auto& [name, output] : state_->outputs) results[name] = values[i++];
  return results;
}

Columns ExportedModel::Predict(const Columns& columns, int64_t batch_size) const {
  if (batch_size < 1) {
    ThrowInvalidArgument(fmt::format("batch_size is {}; expected 1 on", batch_size));
  }
  int64_t rows = -1;
  for (const auto& [name, value] : inputs()) {
    const auto column = columns.find(name);
    if (column == columns.end() || column->second.shape().rank() == 0) return Predict(columns);
    const int64_t own = column->second.shape()[0];
    if (rows >= 0 && own != rows) {
      ThrowInvalidArgument(
          fmt::format("the input \"{}\" has {} samples, another one {}", name, own, rows));
    }
    rows = own;
  }
  if (rows <= batch_size) return Predict(columns);
  std::vector<Columns> batches;
  for (int64_t begin = 0; begin < rows; begin += batch_size) {
    Columns part;
    for (const auto& [name, value] : inputs()) {
      part[name] = columns.at(name).Rows(begin, std::min(begin + batch_size, rows));
    }
    batches.push_back(Predict(part));
  }
  return JoinRows(batches);
}

}  // namespace tutti
