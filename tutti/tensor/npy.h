#pragma once

#include <string>
#include <string_view>

#include "tutti/tensor/tensor.h"

// NumPy's .npy files: what numpy.save writes and numpy.load reads.
//
// Read: format versions 1.0, 2.0 and 3.0, both byte orders, C and Fortran order (which is put into
// row-major order). Written: version 1.0, little-endian, C order. All dtypes of Tutti but bfloat16,
// which NumPy does not have: it is refused, Cast to float32 keeps every value.
namespace tutti {

// Each throws Error: NOT_FOUND or UNAVAILABLE when the file cannot be opened, read or written,
// INVALID_ARGUMENT when it is malformed, truncated or holds what Tutti has no type for. A file from
// anywhere is safe to read; memory is taken only for data that are there.
Tensor ReadNpy(const std::string& path);
void WriteNpy(const std::string& path, const Tensor& tensor);

// The same from and to the bytes of a file.
Tensor ParseNpy(std::string_view bytes);
std::string NpyBytes(const Tensor& tensor);

}  // namespace tutti
