#include "tutti/kernels/shape/strided_copy.h"

namespace tutti {
namespace {

template <typename T>
void CopyElements(const StridedCopy& copy, const T* from, T* to) {
  std::array<int64_t, StridedCopy::kMost> at{};
  for (;;) {
    *to = *from;
    int i = copy.rank - 1;
    for (; i >= 0; --i) {
      from += copy.source[i];
      to += copy.target[i];
      if (++at[i] < copy.dims[i]) break;
      from -= copy.source[i] * copy.dims[i];
      to -= copy.target[i] * copy.dims[i];
      at[i] = 0;
    }
    if (i < 0) return;
  }
}

}  // namespace

void PlainStridedCopy(const Team&, const StridedCopy& copy, size_t size, const std::byte* from,
                      std::byte* to) {
  for (int i = 0; i < copy.rank; ++i) {
    if (copy.dims[i] == 0) return;
  }
  WithElementOfSize(size, [&]<typename T>(T) {
    CopyElements(copy, reinterpret_cast<const T*>(from), reinterpret_cast<T*>(to));
  });
}

std::array<int64_t, kMaxRank> RowMajorStrides(const Shape& shape) {
  std::array<int64_t, kMaxRank> strides{};
  // A zero dimension may stand before ones whose product passes 2^63; nothing is copied then.
  uint64_t stride = 1;
  for (int i = shape.rank() - 1; i >= 0; --i) {
    strides[i] = int64_t(stride);
    stride *= uint64_t(shape.dim(i));
  }
  return strides;
}

}  // namespace tutti
