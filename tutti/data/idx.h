#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "tutti/tensor/tensor.h"

// IDX, the format of the MNIST family: two zero bytes, a type code, the rank, the dimensions as
// big-endian 32-bit numbers, then the elements in row-major order, big-endian.
namespace tutti {

// The tensor of an IDX file, plain or compressed by gzip (told by its content, not its name).
// Throws Error naming the file, the offset in the uncompressed bytes, what was expected and what
// was found: for a missing, truncated, overlong or corrupt file, an unknown type or too many
// dimensions. Memory is taken only after the file was found to be able to hold what its header
// announces.
Tensor ReadIdx(const std::string& path);

// The same from bytes in memory, not compressed; `source` stands for the file in messages.
Tensor ParseIdx(std::span<const uint8_t> bytes, std::string_view source);

}  // namespace tutti
