// The bytes of the tensors are cut into pieces, which a few threads take one after the other.
// Within a piece the checksum of a block is taken just before the block is copied into the page
// cache (or just after it came out), while it lies in the core's cache, so that it costs no pass
// over memory. After each piece the kernel is asked to begin to write it, so that the disk works
// while the next ones are copied and the sync at the end finds little left.
#include "tutti/checkpoint/shard_file.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <thread>

#include "tutti/base/crc32c.h"
#include "tutti/base/thread.h"

namespace tutti::checkpoint {
namespace {

constexpr size_t kPieceBytes = 8 << 20;
constexpr size_t kBlockBytes = 512 << 10;

// Some bytes of one tensor.
struct Piece {
  size_t tensor = 0;
  size_t begin = 0;  // in the tensor
  size_t size = 0;
  uint32_t crc = 0;
};

std::vector<Piece> CutIntoPieces(size_t tensor, size_t bytes) {
  std::vector<Piece> pieces;
  for (size_t begin = 0; begin < bytes; begin += kPieceBytes) {
    pieces.push_back({tensor, begin, std::min(kPieceBytes, bytes - begin)});
  }
  return pieces;
}

// Calls transfer(piece) for each piece, on several threads; gives back the first error.
absl::Status ForEachPiece(std::vector<Piece>& pieces, const TransferOptions& options,
                          const std::function<absl::Status(Piece&)>& transfer) {
  std::atomic<size_t> next{0};
  std::mutex mutex;
  absl::Status first;
  const auto work = [&] {
    for (size_t i = next++; i < pieces.size(); i = next++) {
      absl::Status status = options.check ? options.check() : absl::OkStatus();
      if (status.ok()) status = transfer(pieces[i]);
      if (status.ok()) continue;
      std::lock_guard lock(mutex);
      if (first.ok()) first = status;
      next = pieces.size();
    }
  };
  std::vector<std::thread> threads;
  const size_t wanted = std::min(size_t(std::max(options.threads, 1)), pieces.size());
  while (threads.size() + 1 < wanted) {
    // Where no thread can be had, this one does all the work.
    auto thread = StartThread("a thread that transfers a checkpoint", work);
    if (!thread.ok()) break;
    threads.push_back(*std::move(thread));
  }
  work();
  for (std::thread& thread : threads) thread.join();
  return first;
}

// The checksum of each of `count` tensors from those of its pieces.
std::vector<uint32_t> Combined(size_t count, std::span<const Piece> pieces) {
  std::vector<uint32_t> crcs(count, 0);
  for (const Piece& piece : pieces) {
    crcs[piece.tensor] = CombineCrc32c(crcs[piece.tensor], piece.crc, piece.size);
  }
  return crcs;
}

std::span<const std::byte> BytesOf(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.raw()), tensor.bytes()};
}

}  // namespace

std::map<std::string, std::string> ShardMetadata(int64_t step) {
  return {{kStepKey, std::to_string(step)}};
}

absl::StatusOr<StoredShard> WriteShard(FileSystem& files, const std::string& path,
                                       std::vector<NamedTensor> tensors,
                                       const std::map<std::string, std::string>& metadata,
                                       const TransferOptions& options) {
  Header header;
  header.metadata = metadata;
  for (const NamedTensor& tensor : tensors) {
    header.tensors.push_back({tensor.name, tensor.value.dtype(), tensor.value.shape()});
  }
  std::vector<Piece> pieces;
  std::vector<std::atomic<size_t>> left(tensors.size());  // pieces of each
  for (size_t i = tensors.size(); i-- > 0;) {
    const std::vector<Piece> own = CutIntoPieces(i, tensors[i].value.bytes());
    pieces.insert(pieces.end(), own.begin(), own.end());
    left[i] = own.size();
  }
  const std::string text = FormatHeader(header);
  if (tensors.size() > kMaxTensors || int64_t(text.size()) - kLengthBytes > kMaxHeaderBytes) {
    return InvalidArgument("{}: {} tensors with a header of {} bytes; expected at most {} and {}",
                           path, tensors.size(), text.size(), kMaxTensors, kMaxHeaderBytes);
  }
  const auto data_begin = int64_t(text.size());
  StoredShard stored;
  stored.bytes = data_begin + (tensors.empty() ? 0 : header.tensors.back().end);
  stored.header_crc = Crc32c(std::as_bytes(std::span(text)));

  TUTTI_ASSIGN_OR_RETURN(File file, File::Create(files, path));
  TUTTI_RETURN_IF_ERROR(file.Allocate(stored.bytes));
  TUTTI_RETURN_IF_ERROR(file.WriteAt(std::as_bytes(std::span(text)), 0));
  TUTTI_RETURN_IF_ERROR(ForEachPiece(pieces, options, [&](Piece& piece) -> absl::Status {
    const auto bytes = BytesOf(tensors[piece.tensor].value).subspan(piece.begin, piece.size);
    const int64_t at = data_begin + header.tensors[piece.tensor].begin + int64_t(piece.begin);
    for (size_t done = 0; done < bytes.size(); done += kBlockBytes) {
      const auto block = bytes.subspan(done, std::min(kBlockBytes, bytes.size() - done));
      piece.crc = Crc32c(block, piece.crc);
      TUTTI_RETURN_IF_ERROR(file.WriteAt(block, at + int64_t(done)));
    }
    file.StartWriteback(at, int64_t(piece.size));
    if (left[piece.tensor].fetch_sub(1, std::memory_order_acq_rel) == 1) {
      tensors[piece.tensor].value = Tensor();
    }
    return absl::OkStatus();
  }));
  TUTTI_RETURN_IF_ERROR(file.Sync());
  TUTTI_RETURN_IF_ERROR(file.Close());
  const std::vector<uint32_t> crcs = Combined(tensors.size(), pieces);
  for (size_t i = 0; i < tensors.size(); ++i) {
    stored.tensors.push_back({std::move(header.tensors[i]), crcs[i]});
  }
  return stored;
}

absl::StatusOr<StoredShard> WriteShardDurably(FileSystem& files, const std::string& path,
                                              std::vector<NamedTensor> tensors,
                                              const std::map<std::string, std::string>& metadata) {
  FileSystem::Identity there;
  if (files.Identify(path, &there) == 0) return SystemError("create", path, -EEXIST);
  const std::string beside = fmt::format("{}.tmp-{}", path, ::getpid());
  // No process that lives has our number: what is there is of one that was killed.
  if (const int removed = files.RemoveFile(beside); removed < 0 && removed != -ENOENT) {
    return SystemError("remove", beside, removed);
  }
  auto stored = WriteShard(files, beside, std::move(tensors), metadata);
  if (stored.ok()) {
    const int renamed = files.RenameNew(beside, path);
    if (renamed < 0) stored = SystemError("rename", fmt::format("{} to {}", beside, path), renamed);
  }
  if (!stored.ok()) {
    (void)files.RemoveFile(beside);
    return stored;
  }
  const std::string folder = std::filesystem::path(path).parent_path().string();
  TUTTI_RETURN_IF_ERROR(SyncDirectory(files, folder.empty() ? "." : folder));
  return stored;
}

absl::StatusOr<ShardFile> ShardFile::Open(FileSystem& files, const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(File file, File::OpenToRead(files, path));
  ShardFile shard(std::move(file));
  TUTTI_ASSIGN_OR_RETURN(shard.bytes_, shard.file_.Size());
  const auto in_file = [&](const absl::Status& status) { return WithPrefix(status, path + ": "); };
  std::string& text = shard.header_text_;
  text.resize(size_t(std::min(shard.bytes_, kLengthBytes)));
  TUTTI_RETURN_IF_ERROR(shard.file_.ReadAt(std::as_writable_bytes(std::span(text)), 0));
  const auto length = ParseLength(text, shard.bytes_);
  if (!length.ok()) return in_file(length.status());
  text.resize(size_t(kLengthBytes + *length));
  TUTTI_RETURN_IF_ERROR(shard.file_.ReadAt(
      std::as_writable_bytes(std::span(text)).subspan(size_t(kLengthBytes)), kLengthBytes));
  auto header = ParseHeader(std::string_view(text).substr(size_t(kLengthBytes)),
                            shard.bytes_ - shard.data_begin());
  if (!header.ok()) return in_file(header.status());
  shard.header_ = *std::move(header);
  return shard;
}

absl::Status ShardFile::Read(std::span<Request> requests, const TransferOptions& options) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<Piece> own = CutIntoPieces(i, requests[i].target.size());
    pieces.insert(pieces.end(), own.begin(), own.end());
  }
  TUTTI_RETURN_IF_ERROR(ForEachPiece(pieces, options, [&](Piece& piece) -> absl::Status {
    const Request& request = requests[piece.tensor];
    const auto target = request.target.subspan(piece.begin, piece.size);
    const int64_t at = data_begin() + request.entry->begin + int64_t(piece.begin);
    for (size_t done = 0; done < target.size(); done += kBlockBytes) {
      const auto block = target.subspan(done, std::min(kBlockBytes, target.size() - done));
      TUTTI_RETURN_IF_ERROR(file_.ReadAt(block, at + int64_t(done)));
      piece.crc = Crc32c(block, piece.crc);
    }
    return absl::OkStatus();
  }));
  const std::vector<uint32_t> crcs = Combined(requests.size(), pieces);
  for (size_t i = 0; i < requests.size(); ++i) requests[i].crc = crcs[i];
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ShardFile::Checksums(const TransferOptions& options) const {
  std::vector<Piece> pieces;
  for (size_t i = 0; i < header_.tensors.size(); ++i) {
    const TensorEntry& entry = header_.tensors[i];
    const std::vector<Piece> own = CutIntoPieces(i, size_t(entry.end - entry.begin));
    pieces.insert(pieces.end(), own.begin(), own.end());
  }
  TUTTI_RETURN_IF_ERROR(ForEachPiece(pieces, options, [&](Piece& piece) -> absl::Status {
    std::vector<std::byte> buffer(std::min(kBlockBytes, piece.size));
    const int64_t at = data_begin() + header_.tensors[piece.tensor].begin + int64_t(piece.begin);
    for (size_t done = 0; done < piece.size; done += kBlockBytes) {
      const auto block = std::span(buffer).first(std::min(kBlockBytes, piece.size - done));
      TUTTI_RETURN_IF_ERROR(file_.ReadAt(block, at + int64_t(done)));
      piece.crc = Crc32c(block, piece.crc);
    }
    return absl::OkStatus();
  }));
  return Combined(header_.tensors.size(), pieces);
}

}  // namespace tutti::checkpoint
