#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/tensor/dtype.h"
#include "tutti/tensor/shape.h"

// The header of a safetensors file: 8 bytes with the length of a JSON object, and the object, which
// says where in the data behind it each tensor lies. docs/formats/checkpoint.md has the grammar.
namespace tutti::checkpoint {

// A header comes from outside. What is longer or has more tensors is refused before it is read.
inline constexpr int64_t kLengthBytes = 8;
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;  // as the Python package has it
inline constexpr size_t kMaxTensors = 100'000;

struct TensorEntry {
  std::string name;
  DType dtype = DType::kInvalid;
  Shape shape;
  int64_t begin = 0;  // its bytes are [begin, end) of the data
  int64_t end = 0;

  bool operator==(const TensorEntry&) const = default;
};

struct Header {
  std::vector<TensorEntry> tensors = {};  // in the order of their data
  std::map<std::string, std::string> metadata = {};
};

// "F32"
std::string_view SafetensorsNameOf(DType dtype);

// The length and the object, with spaces behind it so that the data begins at a multiple of a page.
// Sets begin and end of every tensor, one behind the other.
std::string FormatHeader(Header& header);

// Parses the object of a file with so many bytes of data. Every tensor has a dtype that Tutti has,
// a shape of at most 8 dimensions and as many bytes as its shape needs; together they cover the
// data, each byte once. DATA_LOSS or INVALID_ARGUMENT with the tensor's name otherwise.
absl::StatusOr<Header> ParseHeader(std::string_view json, int64_t data_bytes);

// The length that the first 8 bytes tell. INVALID_ARGUMENT unless a file of `file_bytes` can have
// it.
absl::StatusOr<int64_t> ParseLength(std::string_view eight_bytes, int64_t file_bytes);

}  // namespace tutti::checkpoint
