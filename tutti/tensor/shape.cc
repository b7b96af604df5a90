#include "tutti/tensor/shape.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/checked.h"
#include "tutti/base/status.h"
#include "tutti/tensor/product.h"

namespace tutti {

Shape::Shape(std::span<const int64_t> dims) {
  std::string why;
  const auto made = Make(dims, &why);
  if (!made) ThrowInvalidArgument(why);
  *this = *made;
}

std::optional<Shape> Shape::Make(std::span<const int64_t> dims, std::string* why) {
  const auto refuse = [&](std::string text) -> std::optional<Shape> {
    if (why != nullptr) *why = std::move(text);
    return std::nullopt;
  };
  if (dims.size() > size_t{kMaxRank}) {
    return refuse(
        fmt::format("a shape has {} dimensions; at most {} are allowed", dims.size(), kMaxRank));
  }
  Shape shape;
  shape.rank_ = static_cast<int>(dims.size());
  bool has_zero = false;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < kUnknownDim) {
      return refuse(
          fmt::format("dimension {} of shape [{}] is {}; expected 0 or more, or -1 for unknown", i,
                      fmt::join(dims, ", "), dims[i]));
    }
    has_zero = has_zero || dims[i] == 0;
    shape.dims_[i] = dims[i];
  }
  int64_t product = 1;
  for (const int64_t dim : dims) {
    if (dim == kUnknownDim || has_zero) continue;
    const auto next = CheckedMul(product, dim);
    if (!next) {
      return refuse(fmt::format("the product of the dimensions of shape [{}] passes 2^63",
                                fmt::join(dims, ", ")));
    }
    product = *next;
  }
  return shape;
}

Shape Shape::UnknownRank() {
  Shape shape;
  shape.rank_ = -1;
  return shape;
}

Shape Shape::UnknownOfRank(int rank) {
  Shape shape;
  shape.rank_ = std::clamp(rank, 0, kMaxRank);
  std::fill_n(shape.dims_.begin(), shape.rank_, kUnknownDim);
  return shape;
}

bool Shape::IsFullyKnown() const {
  if (rank_ < 0) return false;
  for (int i = 0; i < rank_; ++i) {
    if (dims_[i] == kUnknownDim) return false;
  }
  return true;
}

int64_t Shape::elements() const { return IsFullyKnown() ? ProductOf(dims()) : -1; }

namespace {

[[noreturn]] void ThrowNoPlace(const Shape& shape, const char* what, int i) {
  ThrowInvalidArgument(
      fmt::format("Shape::{}: there is no dimension {} in {}", what, i, shape.ToString()));
}

// i, or counted from the end, as one of `count` places.
int RequirePlace(const Shape& shape, const char* what, int i, int count) {
  const int place = i < 0 ? i + count : i;
  if (place < 0 || place >= count) ThrowNoPlace(shape, what, i);
  return place;
}

}  // namespace

void Shape::ThrowNoDim(int i) const { ThrowNoPlace(*this, "dim", i); }

Shape Shape::WithDim(int i, int64_t size) const {
  if (!has_rank()) return *this;
  i = RequirePlace(*this, "WithDim", i, rank_);
  if (size < kUnknownDim) {
    ThrowInvalidArgument(
        fmt::format("Shape::WithDim: dimension {} of {} would be {}; expected 0 or more, or -1 for "
                    "unknown",
                    i, ToString(), size));
  }
  Shape result = *this;
  result.dims_[i] = size;
  return result;
}

Shape Shape::WithoutDim(int i) const {
  if (!has_rank()) return *this;
  i = RequirePlace(*this, "WithoutDim", i, rank_);
  Shape result = *this;
  std::copy(dims_.begin() + i + 1, dims_.begin() + rank_, result.dims_.begin() + i);
  result.dims_[--result.rank_] = 0;
  return result;
}

Shape Shape::WithInserted(int i, int64_t size) const {
  if (!has_rank()) return *this;
  i = RequirePlace(*this, "WithInserted", i, rank_ + 1);
  std::array<int64_t, kMaxRank + 1> dims{};
  std::copy_n(dims_.begin(), i, dims.begin());
  dims[i] = size;
  std::copy(dims_.begin() + i, dims_.begin() + rank_, dims.begin() + i + 1);
  return Shape(std::span<const int64_t>(dims.data(), size_t(rank_) + 1));
}

bool Shape::CompatibleWith(const Shape& other) const { return MergedWith(other).has_value(); }

std::optional<Shape> Shape::MergedWith(const Shape& other) const {
  if (rank_ < 0) return other;
  if (other.rank_ < 0) return *this;
  if (rank_ != other.rank_) return std::nullopt;
  Shape result = *this;
  for (int i = 0; i < rank_; ++i) {
    if (dims_[i] == kUnknownDim) {
      result.dims_[i] = other.dims_[i];
    } else if (other.dims_[i] != kUnknownDim && other.dims_[i] != dims_[i]) {
      return std::nullopt;
    }
  }
  return result;
}

std::string Shape::ToString() const {
  if (rank_ < 0) return "[...]";
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += dims_[i] == kUnknownDim ? "?" : std::to_string(dims_[i]);
  }
  return text + "]";
}

bool operator==(const Shape& a, const Shape& b) {
  return a.rank_ == b.rank_ && std::equal(a.dims().begin(), a.dims().end(), b.dims().begin());
}

std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  if (!a.has_rank() || !b.has_rank()) return Shape::UnknownRank();
  const int rank = std::max(a.rank(), b.rank());
  std::array<int64_t, kMaxRank> dims{};
  for (int i = 1; i <= rank; ++i) {
    const int64_t x = i <= a.rank() ? a.dim(-i) : 1;
    const int64_t y = i <= b.rank() ? b.dim(-i) : 1;
    int64_t& out = dims[rank - i];
    if (x == y) {
      out = x;
    } else if (x == 1 || y == 1) {
      out = x == 1 ? y : x;
    } else if (x == kUnknownDim || y == kUnknownDim) {
      out = std::max(x, y);  // the known one is above 1, so the unknown one must be 1 or equal
    } else {
      return std::nullopt;
    }
  }
  return Shape::Make(std::span<const int64_t>(dims.data(), rank));
}

}  // namespace tutti
