// Any bytes give a header or a Status; a header that was read says what lies within its data.
#include <cstdint>
#include <string_view>

#include "tutti/base/check.h"
#include "tutti/checkpoint/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::checkpoint;
  const std::string_view file(reinterpret_cast<const char*>(data), size);
  const auto length = ParseLength(file.substr(0, size_t(kLengthBytes)), int64_t(size));
  if (!length.ok()) return 0;
  const int64_t data_bytes = int64_t(size) - kLengthBytes - *length;
  const auto header = ParseHeader(file.substr(size_t(kLengthBytes), size_t(*length)), data_bytes);
  if (!header.ok()) return 0;
  int64_t end = 0;
  for (const TensorEntry& entry : header->tensors) {
    TUTTI_CHECK(entry.begin == end && entry.end >= end && entry.end <= data_bytes);
    end = entry.end;
  }
  Header copy = *header;
  const std::string text = FormatHeader(copy);
  const auto again = ParseHeader(std::string_view(text).substr(size_t(kLengthBytes)), data_bytes);
  TUTTI_CHECK(again.ok() && again->tensors == header->tensors);
  return 0;
}
