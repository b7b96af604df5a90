#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

// Fields of messages between processes: little-endian, without padding; text is preceded by its
// length.
namespace tutti::net {

static_assert(std::endian::native == std::endian::little,
              "fields are copied as they lie in memory");

// Appends fields to a string.
class WireWriter {
 public:
  explicit WireWriter(std::string* out) : out_(out) {}  // `out` outlives the writer

  void U8(uint8_t value) { Append(value); }
  void U16(uint16_t value) { Append(value); }
  void U32(uint32_t value) { Append(value); }
  void U64(uint64_t value) { Append(value); }
  void I32(int32_t value) { U32(static_cast<uint32_t>(value)); }
  void I64(int64_t value) { U64(static_cast<uint64_t>(value)); }
  void Raw(std::string_view bytes) { out_->append(bytes); }
  // REQUIRES: the text's length fits into the field that precedes it.
  void Text16(std::string_view text);
  void Text32(std::string_view text);

 private:
  template <typename T>
  void Append(T value) {
    char field[sizeof(T)];
    std::memcpy(field, &value, sizeof(T));
    out_->append(field, sizeof(T));
  }

  std::string* out_;
};

// Takes fields from bytes that somebody else wrote. A field that does not lie wholly inside them
// reads as zero (or empty) and so does every later one; ok() tells in the end. Nothing is
// allocated: texts point into the bytes.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : rest_(bytes) {}

  uint8_t U8() { return Take<uint8_t>(); }
  uint16_t U16() { return Take<uint16_t>(); }
  uint32_t U32() { return Take<uint32_t>(); }
  uint64_t U64() { return Take<uint64_t>(); }
  int32_t I32() { return static_cast<int32_t>(U32()); }
  int64_t I64() { return static_cast<int64_t>(U64()); }
  std::string_view Raw(size_t bytes);
  std::string_view Text16() { return Raw(U16()); }
  std::string_view Text32() { return Raw(U32()); }

  bool ok() const { return ok_; }
  size_t remaining() const { return rest_.size(); }
  // Every field was there, and nothing is left over.
  bool Complete() const { return ok_ && rest_.empty(); }

 private:
  template <typename T>
  T Take() {
    T value = 0;
    const std::string_view field = Raw(sizeof(T));
    if (!field.empty()) std::memcpy(&value, field.data(), sizeof(T));
    return value;
  }

  std::string_view rest_;
  bool ok_ = true;
};

inline std::string_view AsText(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// Text from outside for a log line or an error: at most `limit` bytes, and what is not printable
// ASCII as \xNN.
std::string Printable(std::string_view text, size_t limit = 256);

}  // namespace tutti::net
