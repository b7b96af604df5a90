// A CRC is the remainder of a polynomial over GF(2). Appending n zero bytes multiplies it by
// x^(8n), so crc(A B) = crc(A) * x^(8 |B|) + crc(B), where the inversions at both ends cancel out.
// Polynomials are held with the coefficient of x^0 in the highest bit, as the checksum is.
#include "tutti/base/crc32c.h"

#include <isa-l/crc.h>

namespace tutti {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // Castagnoli, reflected
constexpr uint32_t kOne = 0x80000000;         // x^0

// a * b modulo the polynomial.
uint32_t Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = kOne; bit != 0; bit >>= 1) {
    if ((a & bit) != 0) product ^= b;
    b = (b & 1) != 0 ? (b >> 1) ^ kPolynomial : b >> 1;
  }
  return product;
}

// x^(8 * bytes) modulo the polynomial, by repeated squaring.
uint32_t PowerOfBytes(uint64_t bytes) {
  uint32_t power = kOne, square = kOne >> 8;  // x^8
  for (; bytes != 0; bytes >>= 1) {
    if ((bytes & 1) != 0) power = Multiply(power, square);
    square = Multiply(square, square);
  }
  return power;
}

}  // namespace

uint32_t Crc32c(std::span<const std::byte> bytes, uint32_t so_far) {
  auto* data = reinterpret_cast<unsigned char*>(const_cast<std::byte*>(bytes.data()));
  uint32_t crc = ~so_far;
  for (size_t left = bytes.size(); left > 0;) {
    const int piece = static_cast<int>(left < (size_t{1} << 30) ? left : size_t{1} << 30);
    crc = crc32_iscsi(data, piece, crc);
    data += piece;
    left -= static_cast<size_t>(piece);
  }
  return ~crc;
}

uint32_t CombineCrc32c(uint32_t a, uint32_t b, uint64_t b_bytes) {
  return Multiply(a, PowerOfBytes(b_bytes)) ^ b;
}

}  // namespace tutti
