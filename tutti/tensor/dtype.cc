#include "tutti/tensor/dtype.h"

namespace tutti {
namespace {

struct Row {
  std::string_view name;
  uint8_t size;
  bool floating;
  bool integer;
  bool is_signed;
};

constexpr Row kRows[] = {
    {"invalid", 0, false, false, false}, {"float16", 2, true, false, true},
    {"float32", 4, true, false, true},   {"float64", 8, true, false, true},
    {"bfloat16", 2, true, false, true},  {"int8", 1, false, true, true},
    {"int16", 2, false, true, true},     {"int32", 4, false, true, true},
    {"int64", 8, false, true, true},     {"uint8", 1, false, true, false},
    {"uint16", 2, false, true, false},   {"uint32", 4, false, true, false},
    {"uint64", 8, false, true, false},   {"bool", 1, false, false, false},
};

const Row& RowOf(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  return kRows[index < std::size(kRows) ? index : 0];
}

}  // namespace

size_t SizeOf(DType dtype) { return RowOf(dtype).size; }
std::string_view NameOf(DType dtype) { return RowOf(dtype).name; }
bool IsFloating(DType dtype) { return RowOf(dtype).floating; }
bool IsInteger(DType dtype) { return RowOf(dtype).integer; }
bool IsSigned(DType dtype) { return RowOf(dtype).is_signed; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (DType dtype : kAllDTypes) {
    if (NameOf(dtype) == name) return dtype;
  }
  return std::nullopt;
}

}  // namespace tutti
