#include "tutti/checkpoint/saved_checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>

#include "tutti/base/crc32c.h"
#include "tutti/checkpoint/model_directory.h"

namespace tutti::checkpoint {
namespace {

// The header that a shard should have.
Header ExpectedHeader(int64_t step, std::span<const SavedTensor* const> tensors) {
  Header header;
  header.metadata = ShardMetadata(step);
  for (const SavedTensor* tensor : tensors) {
    header.tensors.push_back({tensor->key, tensor->dtype, tensor->shape});
  }
  return header;
}

// Where in the header a file differs from what it should be.
std::string DescribeHeaderDamage(FileSystem& files, const std::string& path, Header expected) {
  const std::string text = FormatHeader(expected);
  std::string found(text.size(), '\0');
  const auto file = File::OpenToRead(files, path);
  if (!file.ok() || !file->ReadAt(std::as_writable_bytes(std::span(found)), 0).ok()) {
    return "its header cannot be read";
  }
  const auto different = std::mismatch(text.begin(), text.end(), found.begin());
  if (different.first == text.end()) return "its header does not fit the manifest";
  const auto at = int64_t(different.first - text.begin());
  if (at < kLengthBytes) return "the length of its header is damaged";
  const std::string* inside = nullptr;
  size_t begin = 0;
  for (const TensorEntry& entry : expected.tensors) {
    const size_t next = text.find("\"" + entry.name + "\":{", begin);
    if (next == std::string::npos || int64_t(next) > at) break;
    inside = &entry.name;
    begin = next;
  }
  return fmt::format("its header is damaged at byte {}{}", at,
                     inside == nullptr ? "" : fmt::format(", at tensor \"{}\"", *inside));
}

std::string Damaged(const SavedTensor& tensor, uint32_t found) {
  const std::string rows =
      tensor.whole == tensor.shape
          ? ""
          : fmt::format(" (rows {} to {})", tensor.first_row, tensor.first_row + tensor.rows());
  return fmt::format("tensor \"{}\"{} is damaged: its CRC32C is {:08x}, expected {:08x}",
                     tensor.name, rows, found, tensor.crc);
}

}  // namespace

absl::StatusOr<SavedCheckpoint> SavedCheckpoint::Open(FileSystem& files, const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(File directory, File::OpenDirectory(files, path));
  FileSystem::Identity before, after;
  const int known = files.Identify(path, &before);
  TUTTI_ASSIGN_OR_RETURN(const bool locked, directory.TryLock(/*exclusive=*/false));
  // Whoever removes a checkpoint locks it and gives it another name.
  if (known < 0 || !locked || files.Identify(path, &after) < 0 || before != after) {
    return NotFound("{} is just being removed", path);
  }
  SavedCheckpoint checkpoint(files, path, std::move(directory));
  const std::string manifest_path = fmt::format("{}/{}", path, kManifestName);
  TUTTI_ASSIGN_OR_RETURN(const std::string text,
                         ReadWhole(files, manifest_path, kMaxManifestBytes));
  auto manifest = ParseManifest(text);
  if (!manifest.ok()) return WithPrefix(manifest.status(), manifest_path + ": ");
  checkpoint.manifest_ = *std::move(manifest);
  checkpoint.Index();
  return checkpoint;
}

// The tensors stay where they are in memory when the checkpoint is moved.
void SavedCheckpoint::Index() {
  by_shard_.resize(manifest_.shards.size());
  for (const SavedTensor& tensor : manifest_.tensors) {
    by_name_.try_emplace(tensor.name, &tensor);
    by_shard_[size_t(tensor.shard)].push_back(&tensor);
  }
}

const SavedTensor* SavedCheckpoint::Find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

int64_t SavedCheckpoint::bytes() const {
  int64_t bytes = 0;
  for (const SavedTensor& tensor : manifest_.tensors) {
    bytes += tensor.shape.elements() * int64_t(SizeOf(tensor.dtype));
  }
  return bytes;
}

absl::StatusOr<ShardFile> SavedCheckpoint::OpenShard(size_t shard) const {
  const SavedShard& saved = manifest_.shards[shard];
  const std::string path = path_ + "/" + saved.file;
  const Header expected = ExpectedHeader(manifest_.step, by_shard_[shard]);
  auto file = ShardFile::Open(*files_, path);
  if (absl::IsUnavailable(file.status()) || absl::IsNotFound(file.status()) ||
      absl::IsPermissionDenied(file.status())) {
    return file.status();
  }
  if (file.ok() && file->bytes() != saved.bytes) {
    return DataLoss("{} has {} bytes; expected {}", path, file->bytes(), saved.bytes);
  }
  if (file.ok() && file->header().metadata != expected.metadata) {
    const auto step = file->header().metadata.find(kStepKey);
    return DataLoss("{} is of step {}, but the manifest is of step {}", path,
                    step == file->header().metadata.end() ? "?" : step->second, manifest_.step);
  }
  if (!file.ok() || Crc32c(std::as_bytes(std::span(file->header_text()))) != saved.header_crc) {
    return DataLoss("{}: {}{}", path, DescribeHeaderDamage(*files_, path, expected),
                    file.ok() ? "" : fmt::format(" ({})", MessageOf(file.status())));
  }
  const auto& found = file->header().tensors;
  for (size_t i = 0; i < std::max(found.size(), expected.tensors.size()); ++i) {
    if (i < found.size() && i < expected.tensors.size() &&
        found[i].name == expected.tensors[i].name && found[i].dtype == expected.tensors[i].dtype &&
        found[i].shape == expected.tensors[i].shape) {
      continue;
    }
    return DataLoss("{}: its tensors are not those of the manifest: {} is \"{}\", expected \"{}\"",
                    path, i, i < found.size() ? found[i].name : "",
                    i < expected.tensors.size() ? expected.tensors[i].name : "");
  }
  return file;
}

absl::Status SavedCheckpoint::CheckRequest(const Request& request) const {
  const SavedTensor* const saved = Find(request.name);
  if (saved == nullptr) return NotFound("{} has no tensor \"{}\"", path_, request.name);
  const Tensor& target = request.target;
  const Shape& shape = target.shape();
  const bool fits = shape.rank() == saved->whole.rank() && target.dtype() == saved->dtype &&
                    (shape.rank() == 0 ||
                     (shape.WithDim(0, saved->whole[0]) == saved->whole && request.first_row >= 0 &&
                      request.first_row <= saved->whole[0] - shape[0]));
  if (fits) return absl::OkStatus();
  return InvalidArgument("tensor \"{}\" is {} {} in {}, but {} {} is wanted from row {} on",
                         request.name, NameOf(saved->dtype), saved->whole.ToString(), path_,
                         NameOf(target.dtype()), shape.ToString(), request.first_row);
}

absl::Status SavedCheckpoint::Read(std::span<Request> requests,
                                   const TransferOptions& options) const {
  std::map<std::string_view, std::vector<Request*>> wanted;
  for (Request& request : requests) {
    TUTTI_RETURN_IF_ERROR(CheckRequest(request));
    wanted[request.name].push_back(&request);
  }
  // A part that is not wanted as a whole is read whole all the same: its checksum is of all of it.
  struct Part {
    const SavedTensor* saved = nullptr;
    Request* request = nullptr;
    std::vector<std::byte> aside = {};  // empty: read into the target itself
  };
  for (size_t shard = 0; shard < manifest_.shards.size(); ++shard) {
    std::vector<Part> parts;
    for (const SavedTensor* saved : by_shard_[shard]) {
      const auto found = wanted.find(saved->name);
      if (found == wanted.end()) continue;
      for (Request* request : found->second) {
        const Shape& shape = request->target.shape();
        const int64_t rows = shape.rank() == 0 ? 1 : shape[0];
        const int64_t begin = std::max(saved->first_row, request->first_row);
        const int64_t end = std::min(saved->first_row + saved->rows(), request->first_row + rows);
        if (begin < end) parts.push_back({saved, request});
      }
    }
    if (parts.empty()) continue;
    TUTTI_ASSIGN_OR_RETURN(const ShardFile file, OpenShard(shard));
    std::map<std::string_view, const TensorEntry*> entries;
    for (const TensorEntry& entry : file.header().tensors) entries[entry.name] = &entry;
    std::vector<ShardFile::Request> reads;
    for (Part& part : parts) {
      const TensorEntry* const entry = entries.at(part.saved->key);
      const auto bytes = size_t(entry->end - entry->begin);
      const int64_t row_bytes = int64_t(bytes) / std::max<int64_t>(part.saved->rows(), 1);
      const int64_t offset = (part.saved->first_row - part.request->first_row) * row_bytes;
      Tensor& target = part.request->target;
      if (offset >= 0 && offset + int64_t(bytes) <= int64_t(target.bytes())) {
        reads.push_back({entry, {static_cast<std::byte*>(target.raw()) + offset, bytes}});
      } else {
        part.aside.resize(bytes);
        reads.push_back({entry, part.aside});
      }
    }
    TUTTI_RETURN_IF_ERROR(file.Read(reads, options));
    for (size_t i = 0; i < parts.size(); ++i) {
      Part& part = parts[i];
      if (reads[i].crc != part.saved->crc) {
        return DataLoss("{}/{}: {}", path_, manifest_.shards[shard].file,
                        Damaged(*part.saved, reads[i].crc));
      }
      if (part.aside.empty()) continue;
      Tensor& target = part.request->target;
      const int64_t row_bytes = int64_t(part.aside.size()) / part.saved->rows();
      const int64_t rows = target.shape()[0];
      const int64_t begin = std::max(part.saved->first_row, part.request->first_row);
      const int64_t end =
          std::min(part.saved->first_row + part.saved->rows(), part.request->first_row + rows);
      std::memcpy(
          static_cast<std::byte*>(target.raw()) + (begin - part.request->first_row) * row_bytes,
          part.aside.data() + (begin - part.saved->first_row) * row_bytes,
          size_t((end - begin) * row_bytes));
    }
  }
  return absl::OkStatus();
}

absl::Status SavedCheckpoint::Verify(const TransferOptions& options) const {
  for (size_t shard = 0; shard < manifest_.shards.size(); ++shard) {
    TUTTI_ASSIGN_OR_RETURN(const ShardFile file, OpenShard(shard));
    TUTTI_ASSIGN_OR_RETURN(const std::vector<uint32_t> crcs, file.Checksums(options));
    std::map<std::string_view, uint32_t> by_key;
    for (size_t i = 0; i < crcs.size(); ++i) by_key[file.header().tensors[i].name] = crcs[i];
    for (const SavedTensor* saved : by_shard_[shard]) {
      const uint32_t found = by_key.at(saved->key);
      if (found == saved->crc) continue;
      return DataLoss("{}/{}: {}", path_, manifest_.shards[shard].file, Damaged(*saved, found));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<SavedCheckpoint> OpenCheckpoint(FileSystem& files, const std::string& path) {
  FileSystem::Identity identity;
  if (files.Identify(fmt::format("{}/{}", path, kManifestName), &identity) == 0) {
    return SavedCheckpoint::Open(files, path);
  }
  TUTTI_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListCheckpoints(files, path));
  if (steps.empty()) {
    return NotFound("{} is no checkpoint and holds none: expected {} or directories such as {}",
                    path, kManifestName, CheckpointName(100));
  }
  return SavedCheckpoint::Open(files, path + "/" + CheckpointName(steps[0]));
}

}  // namespace tutti::checkpoint
