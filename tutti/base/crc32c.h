#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti {

// CRC32C (Castagnoli) of the bytes; `so_far` is that of the bytes before them.
uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t so_far = 0);

// The CRC32C of A followed by B, from the CRC32C of each and the length of B. So parts of one file
// can be summed by several threads.
uint32_t CombineCrc32c(uint32_t a, uint32_t b, uint64_t b_bytes);

}  // namespace tutti
