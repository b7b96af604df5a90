#pragma once

#include <bit>
#include <cstdint>

// The two 16-bit floating-point types. They are storage: arithmetic happens in float, to and from
// which they convert with rounding to nearest even.
namespace tutti {

uint16_t Float16BitsFromFloat(float value);
float FloatFromFloat16Bits(uint16_t bits);

// IEEE 754 binary16.
struct Float16 {
  uint16_t bits = 0;
  Float16() = default;
  explicit Float16(float value) : bits(Float16BitsFromFloat(value)) {}
  explicit operator float() const { return FloatFromFloat16Bits(bits); }
  friend bool operator==(Float16 a, Float16 b) { return float(a) == float(b); }
};

// The upper half of a binary32.
struct BFloat16 {
  uint16_t bits = 0;
  BFloat16() = default;
  explicit BFloat16(float value) {
    const uint32_t wide = std::bit_cast<uint32_t>(value);
    if ((wide & 0x7fffffffu) > 0x7f800000u) {
      bits = static_cast<uint16_t>((wide >> 16) | 0x40u);  // a NaN must not round to infinity
    } else {
      bits = static_cast<uint16_t>((wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
    }
  }
  explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
  friend bool operator==(BFloat16 a, BFloat16 b) { return float(a) == float(b); }
};

}  // namespace tutti
