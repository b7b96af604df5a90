#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/tensor/dtype.h"
#include "tutti/tensor/shape.h"

namespace tutti {

// What stands before the data of a .npy file.
struct NpyHeader {
  DType dtype = DType::kInvalid;
  Shape shape;
  bool fortran_order = false;
  bool big_endian = false;
  size_t data_offset = 0;
};

// The bytes that tell how long the header is, and the longest header that is read. (NumPy itself
// writes a few hundred bytes at most for arrays.)
inline constexpr size_t kNpyPrefix = 12;
inline constexpr size_t kMostNpyHeader = size_t{1} << 16;

// Reads the header at the start of `bytes`, which hold at least as much of the file as
// kMostNpyHeader, or all of it.
absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes);

// The header for a tensor, version 1.0, padded so that the data are 64-byte aligned.
// REQUIRES: dtype is one that NumPy has.
std::string MakeNpyHeader(DType dtype, const Shape& shape);

}  // namespace tutti
