#include "tools/tutti/checkpoint_command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "tutti/base/console.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/topology/quantity.h"

namespace tutti::tools {
namespace {

// A text from a file as a terminal may show it: control characters are escaped.
std::string Shown(const std::string& text) {
  std::string shown;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  return shown;
}

using checkpoint::FileSystem;
using checkpoint::Manifest;
using checkpoint::NamedTensor;
using checkpoint::SavedCheckpoint;
using checkpoint::SavedTensor;
using checkpoint::ShardFile;
using Json = nlohmann::ordered_json;

FileSystem& Files() { return FileSystem::System(); }

bool IsFile(const std::string& path) {
  FileSystem::Identity identity;
  return Files().Identify(path, &identity) == 0 && !identity.directory;
}

// A row of the listing, of a checkpoint's tensor or a file's.
struct Row {
  std::string name;
  DType dtype;
  Shape shape;
  std::string where;
  std::string slot_of = {};
};

int64_t BytesOf(const Row& row) { return row.shape.elements() * int64_t(SizeOf(row.dtype)); }

std::string Listing(const std::vector<Row>& rows) {
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, Shown(row.name).size());
  std::string text = fmt::format("{:<{}}  {:<8}  {:<16}  {:>9}  {}\n", "name", width, "dtype",
                                 "shape", "bytes", "in");
  int64_t bytes = 0;
  for (const Row& row : rows) {
    bytes += BytesOf(row);
    text +=
        fmt::format("{:<{}}  {:<8}  {:<16}  {:>9}  {}\n", Shown(row.name), width, NameOf(row.dtype),
                    row.shape.ToString(), topology::FormatBytes(double(BytesOf(row))), row.where);
  }
  return text + fmt::format("{} tensors, {}\n", rows.size(), topology::FormatBytes(double(bytes)));
}

Json ListingAsJson(const std::vector<Row>& rows) {
  Json list = Json::array();
  for (const Row& row : rows) {
    Json entry = {{"name", row.name},
                  {"dtype", NameOf(row.dtype)},
                  {"shape", std::vector<int64_t>(row.shape.dims().begin(), row.shape.dims().end())},
                  {"bytes", BytesOf(row)},
                  {"in", row.where}};
    if (!row.slot_of.empty()) entry["slot_of"] = row.slot_of;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::Status InspectFile(const InspectOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const ShardFile file, ShardFile::Open(Files(), options.path));
  std::vector<Row> rows;
  for (const checkpoint::TensorEntry& entry : file.header().tensors) {
    rows.push_back({entry.name, entry.dtype, entry.shape, fmt::format("byte {}", entry.begin)});
  }
  if (options.json) {
    WriteTo(stdout, Dump({{"path", options.path},
                          {"bytes", file.bytes()},
                          {"metadata", file.header().metadata},
                          {"tensors", ListingAsJson(rows)}}));
    return absl::OkStatus();
  }
  WriteTo(stdout, Listing(rows));
  for (const auto& [name, value] : file.header().metadata) {
    FormatTo(stdout, "{}: {}\n", Shown(name), Shown(value));
  }
  WriteTo(stdout, "the header is right; a safetensors file has no checksums\n");
  return absl::OkStatus();
}

std::string FactsAsText(const checkpoint::Facts& facts) {
  std::string text;
  for (const auto& [name, value] : facts) {
    text += fmt::format("{}{} {}", text.empty() ? "" : "; ", name, value);
  }
  return text;
}

absl::Status InspectCheckpoint(const InspectOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const SavedCheckpoint saved,
                         checkpoint::OpenCheckpoint(Files(), options.path));
  const Manifest& manifest = saved.manifest();
  std::vector<Row> rows;
  for (const SavedTensor& tensor : manifest.tensors) {
    std::string where = manifest.shards[size_t(tensor.shard)].file;
    if (tensor.whole != tensor.shape) {
      where += fmt::format(", rows {} to {} of {}", tensor.first_row,
                           tensor.first_row + tensor.rows(), tensor.whole[0]);
    }
    rows.push_back({tensor.name, tensor.dtype, tensor.shape, std::move(where), tensor.slot_of});
  }
  const absl::Status damage = options.verify ? saved.Verify() : absl::OkStatus();
  const std::string verdict = !options.verify ? "not verified"
                              : damage.ok()   ? "all checksums are right"
                                              : "damaged";
  if (options.json) {
    WriteTo(stdout, Dump({{"path", saved.path()},
                          {"format", manifest.format},
                          {"made_by", manifest.made_by},
                          {"step", manifest.step},
                          {"position", manifest.position},
                          {"seed", manifest.seed},
                          {"fingerprint", manifest.fingerprint},
                          {"data", manifest.data},
                          {"order_of_sums", manifest.order},
                          {"bytes", saved.bytes()},
                          {"tensors", ListingAsJson(rows)},
                          {"verdict", verdict}}));
    return damage;
  }
  FormatTo(stdout, "{}: step {}, {} samples taken, seed {}, made by {}\n", saved.path(),
           manifest.step, manifest.position, manifest.seed, manifest.made_by);
  FormatTo(stdout, "trained with {}\n", FactsAsText(manifest.order));
  FormatTo(stdout, "on {}\n", FactsAsText(manifest.data));
  WriteTo(stdout, Listing(rows));
  FormatTo(stdout, "{}\n", verdict);
  return damage;
}

// All tensors of a checkpoint, each whole.
absl::StatusOr<std::vector<NamedTensor>> ReadAll(const SavedCheckpoint& saved, bool weights) {
  std::vector<SavedCheckpoint::Request> requests;
  std::set<std::string> seen;
  for (const SavedTensor& tensor : saved.manifest().tensors) {
    if (weights && (!tensor.slot_of.empty() || tensor.name == "global_step")) continue;
    if (!seen.insert(tensor.name).second) continue;
    requests.push_back({tensor.name, 0, Tensor(tensor.dtype, tensor.whole)});
  }
  TUTTI_RETURN_IF_ERROR(saved.Read(requests));
  std::vector<NamedTensor> tensors;
  for (auto& request : requests) tensors.push_back({request.name, std::move(request.target)});
  return tensors;
}

absl::Status ToFile(const ConvertOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const SavedCheckpoint saved,
                         checkpoint::OpenCheckpoint(Files(), options.from));
  TUTTI_ASSIGN_OR_RETURN(std::vector<NamedTensor> tensors, ReadAll(saved, options.weights));
  auto metadata = checkpoint::ShardMetadata(saved.manifest().step);
  metadata["format"] = "pt";  // what readers of other frameworks look for: tensors are row-major
  TUTTI_ASSIGN_OR_RETURN(const checkpoint::StoredShard stored,
                         WriteShardDurably(Files(), options.to, std::move(tensors), metadata));
  FormatTo(stdout, "{}: {} tensors of step {}\n", options.to, stored.tensors.size(),
           saved.manifest().step);
  return absl::OkStatus();
}

absl::Status ToCheckpoint(const ConvertOptions& options) {
  TUTTI_ASSIGN_OR_RETURN(const ShardFile file, ShardFile::Open(Files(), options.from));
  std::vector<NamedTensor> tensors;
  std::vector<ShardFile::Request> requests;
  for (const checkpoint::TensorEntry& entry : file.header().tensors) {
    Tensor& value = tensors.emplace_back(entry.name, Tensor(entry.dtype, entry.shape)).value;
    requests.push_back({&entry, {static_cast<std::byte*>(value.raw()), value.bytes()}});
  }
  TUTTI_RETURN_IF_ERROR(file.Read(requests));
  TUTTI_ASSIGN_OR_RETURN(
      checkpoint::ModelDirectory directory,
      checkpoint::ModelDirectory::Open(Files(), options.to,
                                       fmt::format("tutti convert, process {}", ::getpid())));
  TUTTI_ASSIGN_OR_RETURN(const std::string folder, directory.Begin(options.step));
  const std::string shard = "shard-00000.safetensors";
  TUTTI_ASSIGN_OR_RETURN(const checkpoint::StoredShard stored,
                         WriteShard(Files(), folder + "/" + shard, std::move(tensors),
                                    checkpoint::ShardMetadata(options.step)));
  Manifest manifest = {.made_by = "tutti convert", .step = options.step};
  manifest.shards = {{shard, stored.bytes, stored.header_crc}};
  for (const checkpoint::StoredTensor& tensor : stored.tensors) {
    manifest.tensors.push_back({.name = tensor.entry.name,
                                .key = tensor.entry.name,
                                .dtype = tensor.entry.dtype,
                                .shape = tensor.entry.shape,
                                .whole = tensor.entry.shape,
                                .crc = tensor.crc});
  }
  TUTTI_RETURN_IF_ERROR(checkpoint::WriteAndSync(
      Files(), fmt::format("{}/{}", folder, checkpoint::kManifestName), FormatManifest(manifest)));
  TUTTI_RETURN_IF_ERROR(directory.Publish(options.step));
  FormatTo(stdout, "{}/{}: {} tensors\n", options.to, checkpoint::CheckpointName(options.step),
           stored.tensors.size());
  return absl::OkStatus();
}

}  // namespace

absl::Status Inspect(const InspectOptions& options) {
  return IsFile(options.path) ? InspectFile(options) : InspectCheckpoint(options);
}

absl::Status Convert(const ConvertOptions& options) {
  if (IsFile(options.from)) return ToCheckpoint(options);
  if (!options.to.ends_with(".safetensors")) {
    return InvalidArgument(
        "convert: {} becomes one file, but \"{}\" does not end with .safetensors", options.from,
        options.to);
  }
  return ToFile(options);
}

}  // namespace tutti::tools
