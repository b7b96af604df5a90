#include "tutti/kernels/shape/indices.h"

#include <fmt/format.h>

#include <array>

namespace tutti {
namespace {

// "[2, 0]", or "" for a scalar.
std::string PositionOf(int64_t flat, const Shape& shape) {
  std::string text;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    const int64_t at = flat % shape.dim(i);
    flat /= shape.dim(i);
    text = fmt::format("{}{}{}", at, text.empty() ? "" : ", ", text);
  }
  return text.empty() ? text : "[" + text + "]";
}

template <typename T>
int64_t FirstOutside(const T* values, int64_t count, int64_t limit) {
  // Branch-free over blocks, so that the check costs little where all is well.
  constexpr int64_t kBlock = 256;
  for (int64_t begin = 0; begin < count; begin += kBlock) {
    const int64_t end = begin + kBlock < count ? begin + kBlock : count;
    bool bad = false;
    for (int64_t i = begin; i < end; ++i) bad |= uint64_t(int64_t(values[i])) >= uint64_t(limit);
    if (!bad) continue;
    for (int64_t i = begin; i < end; ++i) {
      if (uint64_t(int64_t(values[i])) >= uint64_t(limit)) return i;
    }
  }
  return -1;
}

}  // namespace

absl::StatusOr<Shape> ShapeValue(const Tensor& dims, std::string_view name) {
  const int64_t rank = dims.elements();
  if (rank > kMaxRank) {
    return InvalidArgument("{} has {} values; a tensor has at most {} dimensions", name, rank,
                           kMaxRank);
  }
  std::array<int64_t, kMaxRank> values{};
  for (int64_t i = 0; i < rank; ++i) {
    values[i] = IndexAt(dims, i);
    if (values[i] < 0) {
      return InvalidArgument("{}[{}] is {}; expected 0 or more", name, i, values[i]);
    }
  }
  std::string why;
  const auto shape = Shape::Make(std::span<const int64_t>(values.data(), size_t(rank)), &why);
  if (!shape) return InvalidArgument("{}: {}", name, why);
  return *shape;
}

absl::Status BadIndex(const Tensor& indices, int64_t flat, int64_t limit, std::string_view name) {
  const std::string what =
      fmt::format("{}{} is {}", name, PositionOf(flat, indices.shape()), IndexAt(indices, flat));
  if (limit <= 0) return OutOfRange("{}, but there is nothing to index: the dimension is 0", what);
  return OutOfRange("{}; expected 0 to {}", what, limit - 1);
}

absl::Status CheckIndices(const Tensor& indices, int64_t limit, std::string_view name) {
  const int64_t bad = indices.dtype() == kInt32
                          ? FirstOutside(indices.data<int32_t>(), indices.elements(), limit)
                          : FirstOutside(indices.data<int64_t>(), indices.elements(), limit);
  return bad < 0 ? absl::OkStatus() : BadIndex(indices, bad, limit, name);
}

}  // namespace tutti
