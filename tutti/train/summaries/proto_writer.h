#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace tutti {

// Writes one protobuf message field by field, in the wire format: enough for TensorBoard's events,
// so that no generated code is needed for other people's messages. A plain value.
//
//   ProtoWriter value;
//   value.Text(1, "loss");
//   value.Float(2, 0.5f);
//   ProtoWriter summary;
//   summary.Message(1, value);
class ProtoWriter {
 public:
  void Integer(int field, int64_t value) {
    Tag(field, kVarint);
    Varint(uint64_t(value));
  }
  void Double(int field, double value) {
    Tag(field, kFixed64);
    Raw(&value, sizeof(value));
  }
  void Float(int field, float value) {
    Tag(field, kFixed32);
    Raw(&value, sizeof(value));
  }
  void Text(int field, std::string_view value) {
    Tag(field, kBytes);
    Varint(value.size());
    bytes_ += value;
  }
  void Message(int field, const ProtoWriter& message) { Text(field, message.bytes_); }
  void Doubles(int field, std::span<const double> values) {  // packed
    Tag(field, kBytes);
    Varint(values.size_bytes());
    Raw(values.data(), values.size_bytes());
  }

  const std::string& bytes() const { return bytes_; }

 private:
  enum WireType { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

  void Tag(int field, WireType type) { Varint(uint64_t(field) << 3 | type); }
  void Varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += char(value | 0x80);
    bytes_ += char(value);
  }
  // Fixed-size numbers are little-endian, as every machine that Tutti runs on.
  void Raw(const void* from, size_t size) { bytes_.append(static_cast<const char*>(from), size); }

  std::string bytes_;
};

}  // namespace tutti
