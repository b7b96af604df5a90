#include "tutti/data/idx.h"

#include <sys/stat.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>

#include "tutti/base/checked.h"
#include "tutti/base/status.h"

namespace tutti {
namespace {

// Deflate packs at most 1032 bytes into one, so a file of n bytes cannot hold more than this.
constexpr int64_t kMostBytesPerByte = 1032;

// Bytes from somewhere, read front to back.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Reads up to `count` bytes; fewer only at the end.
  virtual absl::StatusOr<int64_t> Read(void* to, int64_t count) = 0;
  // No more bytes than this can follow the start.
  virtual int64_t most_bytes() const = 0;
};

class MemorySource : public ByteSource {
 public:
  explicit MemorySource(std::span<const uint8_t> bytes) : bytes_(bytes), size_(bytes.size()) {}
  absl::StatusOr<int64_t> Read(void* to, int64_t count) override {
    const size_t taken = std::min(size_t(count), bytes_.size());
    if (taken > 0) std::memcpy(to, bytes_.data(), taken);
    bytes_ = bytes_.subspan(taken);
    return int64_t(taken);
  }
  int64_t most_bytes() const override { return size_; }

 private:
  std::span<const uint8_t> bytes_;
  int64_t size_;
};

// A file through zlib, which passes what is not gzip through unchanged.
class FileSource : public ByteSource {
 public:
  static absl::StatusOr<std::unique_ptr<FileSource>> Open(const std::string& path) {
    struct stat info;
    if (::stat(path.c_str(), &info) != 0) {
      return NotFound("{}: cannot be opened: {}", path, std::strerror(errno));
    }
    if (!S_ISREG(info.st_mode)) return InvalidArgument("{}: is not a file", path);
    auto source = std::unique_ptr<FileSource>(new FileSource);
    source->file_.reset(gzopen(path.c_str(), "rb"));
    if (source->file_ == nullptr) {
      return NotFound("{}: cannot be opened: {}", path, std::strerror(errno));
    }
    gzbuffer(source->file_.get(), 1 << 17);
    const bool plain = gzdirect(source->file_.get()) != 0;
    source->most_bytes_ =
        plain ? info.st_size
              : CheckedMul(info.st_size, kMostBytesPerByte).value_or(int64_t{1} << 62);
    source->path_ = path;
    return source;
  }

  absl::StatusOr<int64_t> Read(void* to, int64_t count) override {
    int64_t done = 0;
    while (done < count) {
      const unsigned piece = unsigned(std::min<int64_t>(count - done, 1 << 24));
      const int got = gzread(file_.get(), static_cast<char*>(to) + done, piece);
      int code = Z_OK;
      const char* text = gzerror(file_.get(), &code);
      if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
        return Failure(code, text, offset_ + done + std::max(got, 0));
      }
      if (got == 0) break;
      done += got;
    }
    offset_ += done;
    return done;
  }
  int64_t most_bytes() const override { return most_bytes_; }

 private:
  struct Close {
    void operator()(gzFile file) const { gzclose(file); }
  };
  FileSource() = default;

  absl::Status Failure(int code, const char* text, int64_t offset) const {
    if (code == Z_MEM_ERROR) {
      return ResourceExhausted("{}: there is not enough memory to read it", path_);
    }
    if (code == Z_ERRNO) {
      return DataLoss("{}: cannot be read at offset {}: {}", path_, offset, text);
    }
    return DataLoss("{}: the gzip data is truncated or corrupt near offset {}: {}", path_, offset,
                    text);
  }

  std::unique_ptr<gzFile_s, Close> file_;
  std::string path_;
  int64_t offset_ = 0;
  int64_t most_bytes_ = 0;
};

DType TypeFromCode(uint8_t code) {
  switch (code) {
    case 0x08:
      return kUInt8;
    case 0x09:
      return kInt8;
    case 0x0B:
      return kInt16;
    case 0x0C:
      return kInt32;
    case 0x0D:
      return kFloat32;
    case 0x0E:
      return kFloat64;
    default:
      return DType::kInvalid;
  }
}

// Elements are big-endian in the file.
void ToHostOrder(Tensor& tensor) {
  const size_t size = SizeOf(tensor.dtype());
  if (size == 1 || std::endian::native == std::endian::big) return;
  auto* bytes = static_cast<uint8_t*>(tensor.raw());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    std::reverse(bytes + i * size, bytes + (i + 1) * size);
  }
}

absl::Status ReadHeaderBytes(ByteSource& source, std::string_view name, int64_t offset,
                             std::span<uint8_t> to) {
  TUTTI_ASSIGN_OR_RETURN(const int64_t got, source.Read(to.data(), int64_t(to.size())));
  if (got == int64_t(to.size())) return absl::OkStatus();
  return DataLoss("{}: ends at offset {} inside the header; expected {} bytes there, found {}",
                  name, offset + got, to.size(), got);
}

absl::StatusOr<Tensor> Parse(ByteSource& source, std::string_view name) {
  std::array<uint8_t, 4> magic;
  TUTTI_RETURN_IF_ERROR(ReadHeaderBytes(source, name, 0, magic));
  if (magic[0] != 0 || magic[1] != 0) {
    return InvalidArgument(
        "{}: is no IDX file: expected two zero bytes at offset 0, found 0x{:02x} 0x{:02x}", name,
        magic[0], magic[1]);
  }
  const DType dtype = TypeFromCode(magic[2]);
  if (dtype == DType::kInvalid) {
    return InvalidArgument(
        "{}: unknown element type 0x{:02x} at offset 2; expected 0x08 (uint8), 0x09 (int8), 0x0b "
        "(int16), 0x0c (int32), 0x0d (float32) or 0x0e (float64)",
        name, magic[2]);
  }
  const int rank = magic[3];
  if (rank > kMaxRank) {
    return InvalidArgument("{}: {} dimensions at offset 3; expected at most {}", name, rank,
                           kMaxRank);
  }
  std::array<int64_t, kMaxRank> dims{};
  int64_t offset = 4;
  for (int i = 0; i < rank; ++i, offset += 4) {
    std::array<uint8_t, 4> number;
    TUTTI_RETURN_IF_ERROR(ReadHeaderBytes(source, name, offset, number));
    for (const uint8_t byte : number) dims[i] = dims[i] << 8 | byte;
  }
  std::string why;
  const auto shape = Shape::Make(std::span(dims.data(), size_t(rank)), &why);
  if (!shape) return InvalidArgument("{}: the dimensions at offset 4: {}", name, why);
  const auto bytes = CheckedMul(shape->elements(), int64_t(SizeOf(dtype)));
  if (!bytes || *bytes > source.most_bytes()) {
    return DataLoss(
        "{}: the header announces {} {}, more than the file can hold ({} bytes at most); the file "
        "is truncated or its header corrupt",
        name, NameOf(dtype), shape->ToString(), source.most_bytes());
  }
  Tensor result(dtype, *shape);
  TUTTI_ASSIGN_OR_RETURN(const int64_t got, source.Read(result.raw(), *bytes));
  if (got != *bytes) {
    return DataLoss("{}: ends at offset {}; expected {} bytes of {} {} from offset {} on, found {}",
                    name, offset + got, *bytes, NameOf(dtype), shape->ToString(), offset, got);
  }
  uint8_t extra;
  TUTTI_ASSIGN_OR_RETURN(const int64_t more, source.Read(&extra, 1));
  if (more != 0) {
    return DataLoss("{}: bytes follow the last element; expected the end at offset {} after {} {}",
                    name, offset + got, NameOf(dtype), shape->ToString());
  }
  ToHostOrder(result);
  return result;
}

absl::StatusOr<Tensor> ReadFile(const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(const auto source, FileSource::Open(path));
  try {
    return Parse(*source, path);
  } catch (...) {  // no memory for the tensor
    return WithPrefix(StatusFromCurrentException(), path + ": ");
  }
}

}  // namespace

Tensor ReadIdx(const std::string& path) { return ValueOrThrow(ReadFile(path)); }

Tensor ParseIdx(std::span<const uint8_t> bytes, std::string_view source) {
  MemorySource memory(bytes);
  return ValueOrThrow(Parse(memory, source));
}

}  // namespace tutti
