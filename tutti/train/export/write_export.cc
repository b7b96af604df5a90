#include <fmt/format.h>

#include <span>
#include <unordered_map>

#include "tutti/base/crc32c.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/graph/io.h"
#include "tutti/graph/op_def.h"
#include "tutti/train/export/export_format.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;

// What `outputs` need of the graph, copied without devices: a model runs anywhere. `variables`
// receives the variables of the original graph.
void Prune(const std::map<std::string, Output>& outputs, Graph& pruned,
           std::vector<Output>& variables) {
  const Graph& graph = outputs.begin()->second.graph();
  std::vector<bool> needed(size_t(graph.size()), false);
  for (const auto& [name, output] : outputs) needed[size_t(output.node->id())] = true;
  for (int64_t id = graph.size() - 1; id >= 0; --id) {
    if (!needed[size_t(id)]) continue;
    const Node& node = *graph.nodes()[size_t(id)];
    for (const Output& input : node.inputs()) needed[size_t(input.node->id())] = true;
    for (const Node* input : node.control_inputs()) needed[size_t(input->id())] = true;
  }
  std::unordered_map<const Node*, const Node*> copies;
  for (const auto& node : graph.nodes()) {
    if (!needed[size_t(node->id())]) continue;
    if (node->op() != "Variable" && !node->def().only_computes()) {
      throw Error(Code::kUnimplemented,
                  fmt::format("Export: the predictions depend on {}, which does more than compute; "
                              "leave it out in Mode::kPredict",
                              node->Describe()));
    }
    NodeSpec spec = node->spec();
    spec.device.clear();
    for (Output& input : spec.inputs) input.node = copies.at(input.node);
    for (const Node*& input : spec.control_inputs) input = copies.at(input);
    copies[node.get()] = pruned.Add(std::move(spec));
    if (node->op() == "Variable") variables.push_back(node->output());
  }
}

std::map<std::string, ModelValue> Describe(const std::map<std::string, Output>& values) {
  std::map<std::string, ModelValue> described;
  for (const auto& [name, output] : values) {
    described[name] = {output.name(), output.dtype(), output.shape()};
  }
  return described;
}

void WriteFiles(FileSystem& files, const std::string& directory, ModelSignature signature,
                const Graph& graph, std::span<const checkpoint::NamedTensor> weights) {
  ThrowIfError(checkpoint::RemoveTree(files, directory));
  ThrowIfError(checkpoint::MakeDirectories(files, directory));
  const checkpoint::StoredShard stored = ValueOrThrow(checkpoint::WriteShard(
      files, directory + "/" + kWeightsFile, {weights.begin(), weights.end()}));
  const std::string bytes = GraphToBytes(graph);
  ThrowIfError(checkpoint::WriteAndSync(files, directory + "/" + kGraphFile, bytes));
  ModelChecksums& checksums = signature.checksums.emplace();
  checksums.graph = Crc32c(std::as_bytes(std::span(bytes)));
  checksums.header = stored.header_crc;
  for (const checkpoint::StoredTensor& tensor : stored.tensors) {
    checksums.tensors[tensor.entry.name] = tensor.crc;
  }
  ThrowIfError(
      checkpoint::WriteAndSync(files, directory + "/" + kModelFile, FormatSignature(signature)));
  ThrowIfError(checkpoint::SyncDirectory(files, directory));
}

void Rename(FileSystem& files, const std::string& from, const std::string& to) {
  if (const int result = files.Rename(from, to); result < 0) {
    ThrowIfError(checkpoint::SystemError("rename " + from + " to", to, result));
  }
}

// Puts `fresh` in the place of `directory`.
void Replace(FileSystem& files, const std::string& fresh, const std::string& directory) {
  std::vector<std::string> names;
  if (files.List(directory, &names) < 0 || names.empty()) {
    files.RemoveDirectory(directory);
    Rename(files, fresh, directory);
    return;
  }
  if (files.Exchange(fresh, directory) < 0) {
    // Where names cannot be exchanged there is a moment without either.
    const std::string old = directory + ".old";
    ThrowIfError(checkpoint::RemoveTree(files, old));
    Rename(files, directory, old);
    Rename(files, fresh, directory);
    ThrowIfError(checkpoint::RemoveTree(files, old));
    return;
  }
  ThrowIfError(checkpoint::RemoveTree(files, fresh));
}

void RequireFreeOrExported(FileSystem& files, const std::string& directory) {
  std::vector<std::string> names;
  if (files.List(directory, &names) < 0 || names.empty()) return;
  for (const std::string& name : names) {
    if (name == kModelFile) return;
  }
  throw Error(Code::kAlreadyExists,
              fmt::format("Export: {} has files that are no exported model ({}); give a directory "
                          "that is empty or not there",
                          directory, names[0]));
}

// Without slashes at its end.
std::string Trimmed(const std::string& directory) {
  if (directory.empty()) ThrowInvalidArgument("Export: the directory is empty");
  std::string path = directory;
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

}  // namespace

void CheckExportTarget(FileSystem& files, const std::string& directory) {
  const std::string path = Trimmed(directory);
  FileSystem::Identity there;
  if (files.Identify(path, &there) == 0 && !there.directory) {
    throw Error(
        Code::kAlreadyExists,
        fmt::format("Export: {} is a file; give a directory that is empty or not there", path));
  }
  RequireFreeOrExported(files, path);
  // What an export begins with.
  const std::string fresh = path + ".new";
  ThrowIfError(WithPrefix(checkpoint::MakeDirectories(files, fresh), "Export: "));
  ThrowIfError(WithPrefix(checkpoint::RemoveTree(files, fresh), "Export: "));
}

void WriteExport(FileSystem& files, const std::string& directory,
                 const std::map<std::string, Output>& inputs,
                 const std::map<std::string, Output>& outputs, Session& session, int64_t step) {
  const std::string path = Trimmed(directory);
  RequireFreeOrExported(files, path);
  Graph pruned;
  std::vector<Output> variables;
  Prune(outputs, pruned, variables);
  const std::vector<Tensor> values = session.Run(std::span<const Feed>(), variables);
  std::vector<checkpoint::NamedTensor> weights;
  for (size_t i = 0; i < variables.size(); ++i) {
    weights.push_back({variables[i].node->name(), values[i]});
  }
  const ModelSignature signature{
      .inputs = Describe(inputs), .outputs = Describe(outputs), .step = step};
  // Written beside and renamed, so that there is always a whole one.
  const std::string fresh = path + ".new";
  WriteFiles(files, fresh, signature, pruned, weights);
  Replace(files, fresh, path);
  const size_t slash = path.rfind('/');
  ThrowIfError(checkpoint::SyncDirectory(files, slash == std::string::npos ? "."
                                                : slash == 0               ? "/"
                                                             : path.substr(0, slash)));
}

}  // namespace tutti
