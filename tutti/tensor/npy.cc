#include "tutti/tensor/npy.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "tutti/base/checked.h"
#include "tutti/base/status.h"
#include "tutti/tensor/npy_header.h"

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "data are taken as they lie in memory");

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using File = std::unique_ptr<std::FILE, CloseFile>;

void SwapBytes(Tensor& tensor) {
  const size_t size = SizeOf(tensor.dtype());
  auto* bytes = static_cast<std::byte*>(tensor.raw());
  for (size_t i = 0; i < tensor.bytes(); i += size) std::reverse(bytes + i, bytes + i + size);
}

// The elements of `fortran` lie with the first dimension running fastest.
Tensor FromFortranOrder(const Tensor& fortran) {
  const Shape& shape = fortran.shape();
  if (shape.rank() < 2 || fortran.elements() == 0) return fortran;
  Tensor result(fortran.dtype(), shape);
  const size_t size = SizeOf(fortran.dtype());
  std::array<int64_t, kMaxRank> strides{};
  int64_t stride = 1;
  for (int i = 0; i < shape.rank(); ++i) {
    strides[i] = stride;
    stride *= shape.dim(i);
  }
  const auto* from = static_cast<const std::byte*>(fortran.raw());
  auto* to = static_cast<std::byte*>(result.raw());
  std::array<int64_t, kMaxRank> index{};
  int64_t offset = 0;
  for (int64_t i = 0; i < result.elements(); ++i) {
    std::memcpy(to + size_t(i) * size, from + size_t(offset) * size, size);
    for (int d = shape.rank() - 1; d >= 0; --d) {
      offset += strides[d];
      if (++index[d] < shape.dim(d)) break;
      offset -= strides[d] * shape.dim(d);
      index[d] = 0;
    }
  }
  return result;
}

// How many bytes the data have; an error unless that is what there is.
absl::Status CheckSize(const NpyHeader& header, int64_t available) {
  const auto bytes = CheckedMul(header.shape.elements(), int64_t(SizeOf(header.dtype)));
  if (bytes && *bytes == available) return absl::OkStatus();
  return InvalidArgument("{} {} needs {} bytes of data; the file has {}{}", NameOf(header.dtype),
                         header.shape.ToString(), bytes ? std::to_string(*bytes) : "more than 2^63",
                         available, bytes && *bytes < available ? ", too many" : ": truncated?");
}

absl::Status CheckBools(const Tensor& tensor) {
  if (tensor.dtype() != kBool) return absl::OkStatus();
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  for (size_t i = 0; i < tensor.bytes(); ++i) {
    if (bytes[i] > 1) {
      return InvalidArgument("element {} of the bool data is {}; expected 0 or 1", i, bytes[i]);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> Arrange(const NpyHeader& header, Tensor tensor) {
  TUTTI_RETURN_IF_ERROR(CheckBools(tensor));
  if (header.big_endian) SwapBytes(tensor);
  return header.fortran_order ? FromFortranOrder(tensor) : tensor;
}

absl::StatusOr<Tensor> Parse(std::string_view bytes) {
  TUTTI_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(bytes));
  bytes.remove_prefix(header.data_offset);
  TUTTI_RETURN_IF_ERROR(CheckSize(header, int64_t(bytes.size())));
  Tensor tensor(header.dtype, header.shape);
  if (!bytes.empty()) std::memcpy(tensor.raw(), bytes.data(), bytes.size());
  return Arrange(header, std::move(tensor));
}

absl::StatusOr<Tensor> Read(const std::string& path) {
  const File file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    const auto code =
        errno == ENOENT ? absl::StatusCode::kNotFound : absl::StatusCode::kUnavailable;
    return MakeStatus(code, "{}", std::strerror(errno));
  }
  struct stat status;
  if (fstat(fileno(file.get()), &status) != 0 || !S_ISREG(status.st_mode)) {
    return Unavailable("it is no regular file");
  }
  std::string head(std::min(kMostNpyHeader, size_t(status.st_size)), '\0');
  if (std::fread(head.data(), 1, head.size(), file.get()) != head.size()) {
    return Unavailable("cannot read it: {}", std::strerror(errno));
  }
  TUTTI_ASSIGN_OR_RETURN(const NpyHeader header, ParseNpyHeader(head));
  const int64_t available = int64_t(status.st_size) - int64_t(header.data_offset);
  TUTTI_RETURN_IF_ERROR(CheckSize(header, available));
  Tensor tensor(header.dtype, header.shape);
  if (std::fseek(file.get(), long(header.data_offset), SEEK_SET) != 0 ||
      std::fread(tensor.raw(), 1, size_t(available), file.get()) != size_t(available)) {
    return Unavailable("cannot read its {} bytes of data: {}", available, std::strerror(errno));
  }
  return Arrange(header, std::move(tensor));
}

absl::Status CheckWritable(const Tensor& tensor) {
  if (!tensor.valid()) return InvalidArgument("an invalid tensor cannot be written as .npy");
  if (tensor.dtype() == kBFloat16) {
    return InvalidArgument(
        "a bfloat16 tensor cannot be written as .npy: NumPy has no such type. Cast it to float32, "
        "which keeps every value");
  }
  return absl::OkStatus();
}

absl::Status Write(const std::string& path, const Tensor& tensor) {
  TUTTI_RETURN_IF_ERROR(CheckWritable(tensor));
  File file(std::fopen(path.c_str(), "wb"));
  if (!file) return Unavailable("{}", std::strerror(errno));
  const std::string header = MakeNpyHeader(tensor.dtype(), tensor.shape());
  bool written = std::fwrite(header.data(), 1, header.size(), file.get()) == header.size() &&
                 std::fwrite(tensor.raw(), 1, tensor.bytes(), file.get()) == tensor.bytes();
  written = std::fclose(file.release()) == 0 && written;
  if (written) return absl::OkStatus();
  const int error = errno;
  std::remove(path.c_str());
  return Unavailable("{}", std::strerror(error));
}

}  // namespace

Tensor ParseNpy(std::string_view bytes) {
  auto tensor = Parse(bytes);
  ThrowIfError(WithPrefix(tensor.status(), "reading .npy bytes: "));
  return *std::move(tensor);
}

std::string NpyBytes(const Tensor& tensor) {
  ThrowIfError(CheckWritable(tensor));
  std::string bytes = MakeNpyHeader(tensor.dtype(), tensor.shape());
  bytes.append(static_cast<const char*>(tensor.raw()), tensor.bytes());
  return bytes;
}

Tensor ReadNpy(const std::string& path) {
  auto tensor = Read(path);
  ThrowIfError(WithPrefix(tensor.status(), fmt::format("reading \"{}\": ", path)));
  return *std::move(tensor);
}

void WriteNpy(const std::string& path, const Tensor& tensor) {
  ThrowIfError(WithPrefix(Write(path, tensor), fmt::format("writing \"{}\": ", path)));
}

}  // namespace tutti
