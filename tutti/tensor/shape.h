#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>

namespace tutti {

// The most dimensions that a tensor has.
inline constexpr int kMaxRank = 8;

// A dimension that is not known yet.
inline constexpr int64_t kUnknownDim = -1;

// The dimensions of a tensor. In a graph, single dimensions (kUnknownDim) or the rank itself may be
// unknown; a Tensor's shape is always fully known. A plain value without heap memory.
class Shape {
 public:
  Shape() = default;  // rank 0: a scalar
  // Throws Error when there are more than kMaxRank dimensions, one is below -1, or the product of
  // the known ones passes 2^63. Make() does the same without throwing.
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);

  // nullopt, and a text in *why unless it is null, where the constructor would throw.
  static std::optional<Shape> Make(std::span<const int64_t> dims, std::string* why = nullptr);

  static Shape UnknownRank();
  static Shape UnknownOfRank(int rank);  // every dimension unknown

  bool has_rank() const { return rank_ >= 0; }
  int rank() const { return rank_; }  // -1 when unknown
  // Dimension i, negative from the end. Throws Error when there is none, as of an unknown rank.
  int64_t dim(int i) const {
    if (i < -rank_ || i >= rank_) ThrowNoDim(i);
    return dims_[i < 0 ? i + rank_ : i];
  }
  int64_t operator[](int i) const { return dim(i); }
  std::span<const int64_t> dims() const { return {dims_.data(), rank_ < 0 ? 0 : size_t(rank_)}; }
  bool IsFullyKnown() const;

  // The number of elements; -1 when not fully known.
  int64_t elements() const;

  // This shape with dimension i (negative from the end) set, removed, or with one inserted before
  // i.
  Shape WithDim(int i, int64_t size) const;
  Shape WithoutDim(int i) const;
  Shape WithInserted(int i, int64_t size) const;

  // Could both describe one tensor? Unknown dimensions agree with anything.
  bool CompatibleWith(const Shape& other) const;

  // What is known of a tensor that both describe; nullopt when they contradict each other.
  std::optional<Shape> MergedWith(const Shape& other) const;

  // "[128, 784]", "[?, 10]", "[]" for a scalar, "[...]" for unknown rank.
  std::string ToString() const;

  friend bool operator==(const Shape& a, const Shape& b);

 private:
  [[noreturn]] void ThrowNoDim(int i) const;

  int rank_ = 0;
  std::array<int64_t, kMaxRank> dims_{};
};

// The shape of an element-wise operation on both by the rules of NumPy; nullopt when they do not
// fit. Unknown dimensions give unknown dimensions where the other side is 1 or unknown.
std::optional<Shape> BroadcastShapes(const Shape& a, const Shape& b);

}  // namespace tutti
