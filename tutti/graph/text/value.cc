#include "tutti/graph/text/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>

#include "tutti/base/checked.h"

namespace tutti {
namespace {

static_assert(std::endian::native == std::endian::little, "base64 holds little-endian bytes");

// Up to this many elements a tensor is written value by value.
constexpr int64_t kMostWritten = 64;
// From this many equal elements on it is written as {value, ...}.
constexpr int64_t kLeastRepeated = 9;

template <typename T>
inline constexpr bool kIs16Bit = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool kIsReal = std::is_floating_point_v<T> || kIs16Bit<T>;

template <typename T>
using BitsOf = std::conditional_t<sizeof(T) == 2, uint16_t,
                                  std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>;

// The NaN that "nan" means; others are written with their bits.
template <typename T>
T PlainNan() {
  if constexpr (kIs16Bit<T>) {
    return T(std::numeric_limits<float>::quiet_NaN());
  } else {
    return std::numeric_limits<T>::quiet_NaN();
  }
}

template <typename T>
auto Widened(T value) {
  if constexpr (kIs16Bit<T>) {
    return float(value);
  } else {
    return value;
  }
}

template <typename T>
void AppendElement(T value, std::string& text) {
  if constexpr (kIsReal<T>) {
    using Bits = BitsOf<T>;
    const auto wide = Widened(value);
    if (std::isnan(wide)) {
      const auto bits = std::bit_cast<Bits>(value);
      text += bits == std::bit_cast<Bits>(PlainNan<T>()) ? "nan" : fmt::format("nan:{:x}", bits);
    } else {
      fmt::format_to(std::back_inserter(text), "{}", wide);  // the shortest that reads back equal
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    text += value ? "true" : "false";
  } else if constexpr (std::is_signed_v<T>) {
    fmt::format_to(std::back_inserter(text), "{}", int64_t{value});
  } else {
    fmt::format_to(std::back_inserter(text), "{}", uint64_t{value});
  }
}

// A number attribute shows by a point, an exponent or its name that it is no integer.
void AppendReal(double value, std::string& text) {
  const size_t begin = text.size();
  AppendElement(value, text);
  if (text.find_first_not_of("-0123456789", begin) == std::string::npos) text += ".0";
}

constexpr std::string_view kBase64Digits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void AppendBase64(const uint8_t* bytes, size_t size, std::string& text) {
  for (size_t i = 0; i < size; i += 3) {
    const size_t left = std::min<size_t>(size - i, 3);
    uint32_t group = 0;
    for (size_t j = 0; j < left; ++j) group |= uint32_t{bytes[i + j]} << (16 - 8 * j);
    for (size_t j = 0; j < 4; ++j) {
      text += j <= left ? kBase64Digits[(group >> (18 - 6 * j)) & 63] : '=';
    }
  }
}

// Decodes exactly `size` bytes; false when the text is anything else.
bool DecodeBase64(std::string_view text, uint8_t* bytes, size_t size) {
  if (text.size() / 4 != (size + 2) / 3 || text.size() % 4 != 0) return false;
  static const auto values = [] {
    std::array<int8_t, 256> table;
    table.fill(-1);
    for (int i = 0; i < 64; ++i) table[uint8_t(kBase64Digits[i])] = int8_t(i);
    return table;
  }();
  for (size_t i = 0; i < size; i += 3) {
    const size_t left = std::min<size_t>(size - i, 3);
    uint32_t group = 0;
    for (size_t j = 0; j < 4; ++j) {
      const char c = text[i / 3 * 4 + j];
      const int value = j <= left ? values[uint8_t(c)] : (c == '=' ? 0 : -1);
      if (value < 0) return false;
      group |= uint32_t(value) << (18 - 6 * j);
    }
    for (size_t j = 0; j < left; ++j) bytes[i + j] = uint8_t(group >> (16 - 8 * j));
    if (left < 3 && (group & ((1u << (24 - 8 * left)) - 1)) != 0) return false;
  }
  return true;
}

bool AllElementsEqual(const Tensor& tensor) {
  const auto* bytes = static_cast<const uint8_t*>(tensor.raw());
  const size_t size = SizeOf(tensor.dtype());
  return std::memcmp(bytes, bytes + size, tensor.bytes() - size) == 0;
}

void AppendTensor(const Tensor& tensor, int64_t& repeated_bytes, std::string& text) {
  if (!tensor.valid()) {
    text += "none";
    return;
  }
  fmt::format_to(std::back_inserter(text), "{} {} ", NameOf(tensor.dtype()),
                 tensor.shape().ToString());
  const int64_t elements = tensor.elements();
  int64_t written = elements;
  if (elements >= kLeastRepeated && AllElementsEqual(tensor) &&
      int64_t(tensor.bytes()) <= kRepeatedBytes - repeated_bytes) {
    repeated_bytes += int64_t(tensor.bytes());
    written = 1;
  } else if (elements > kMostWritten) {
    text += "base64 \"";
    AppendBase64(static_cast<const uint8_t*>(tensor.raw()), tensor.bytes(), text);
    text += '"';
    return;
  }
  text += '{';
  VisitDType(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (int64_t i = 0; i < written; ++i) {
      if (i > 0) text += ", ";
      AppendElement(tensor.data<T>()[i], text);
    }
  });
  if (written < elements) text += ", ...";
  text += '}';
}

template <typename T, typename Append>
void AppendList(const std::vector<T>& values, const Append& append, std::string& text) {
  text += '[';
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += ", ";
    append(values[i], text);
  }
  text += ']';
}

// One number of type T. The word is taken as a whole, so "1x" is an error at its first character.
template <typename T>
absl::StatusOr<T> ParseElement(TextScanner& scanner) {
  const auto at = scanner.position();
  const std::string_view word = scanner.Word();
  const auto refuse = [&](std::string_view what) {
    return TextScanner::ErrorAt(at, fmt::format("expected {} ({}), found '{}'", what,
                                                NameOf(DTypeOf<T>()), word.substr(0, 32)));
  };
  if (word.empty()) return scanner.Expected(fmt::format("a value of {}", NameOf(DTypeOf<T>())));
  const char* const end = word.data() + word.size();
  if constexpr (std::is_same_v<T, bool>) {
    if (word == "true") return true;
    if (word == "false") return false;
    return refuse("true or false");
  } else if constexpr (kIsReal<T>) {
    if (word == "nan" && scanner.Consume(':')) {
      using Bits = BitsOf<T>;
      const std::string_view digits = scanner.Word();
      Bits bits = 0;
      const char* const last = digits.data() + digits.size();
      const auto [stop, error] = std::from_chars(digits.data(), last, bits, 16);
      const T value = std::bit_cast<T>(bits);
      if (digits.empty() || error != std::errc() || stop != last || !std::isnan(Widened(value))) {
        return refuse("the hexadecimal bits of a NaN after \"nan:\"");
      }
      return value;
    }
    if (word == "nan") return PlainNan<T>();
    using Wide = std::conditional_t<kIs16Bit<T>, float, T>;
    Wide wide = 0;
    const auto [stop, error] = std::from_chars(word.data(), end, wide);
    if (error == std::errc::result_out_of_range) return refuse("a number within its type's range");
    if (error != std::errc() || stop != end) return refuse("a number");
    return T(wide);
  } else {
    T value = 0;
    const auto [stop, error] = std::from_chars(word.data(), end, value);
    if (error == std::errc::result_out_of_range)
      return refuse("an integer within its type's range");
    if (error != std::errc() || stop != end) return refuse("an integer");
    return value;
  }
}

// Elements between { and }, into `tensor`, or by {value, ...}. The shape comes from the text too,
// so memory is taken as the values come and no sooner.
template <typename T>
absl::StatusOr<Tensor> ParseElements(TextScanner& scanner, const Shape& shape,
                                     int64_t& repeated_bytes) {
  const auto at = scanner.position();
  std::vector<std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>> values;
  bool repeated = false;
  while (!scanner.Consume('}')) {
    if (!values.empty()) TUTTI_RETURN_IF_ERROR(scanner.Expect(',', "or '}' after an element"));
    if (values.size() == 1 && scanner.Consume("...")) {
      repeated = true;
      TUTTI_RETURN_IF_ERROR(scanner.Expect('}', "after '...'"));
      break;
    }
    TUTTI_ASSIGN_OR_RETURN(const T value, ParseElement<T>(scanner));
    values.push_back(value);
  }
  const int64_t elements = shape.elements();
  if (repeated) {
    const auto bytes = CheckedMul(elements, sizeof(T));
    if (!bytes || *bytes > kRepeatedBytes - repeated_bytes) {
      return TextScanner::ErrorAt(
          at, fmt::format("the repeated elements of the text need more than {} MB",
                          kRepeatedBytes >> 20));
    }
    repeated_bytes += *bytes;
  } else if (int64_t(values.size()) != elements) {
    return TextScanner::ErrorAt(at, fmt::format("{} elements given; shape {} has {}", values.size(),
                                                shape.ToString(), elements));
  }
  Tensor tensor(DTypeOf<T>(), shape);
  for (int64_t i = 0; i < elements; ++i) {
    tensor.data<T>()[i] = T(values[repeated ? 0 : size_t(i)]);
  }
  return tensor;
}

absl::StatusOr<Tensor> ParseTensor(TextScanner& scanner, DType dtype, int64_t& repeated_bytes) {
  const auto at = scanner.position();
  TUTTI_ASSIGN_OR_RETURN(const Shape shape, ParseShape(scanner));
  if (!shape.IsFullyKnown()) {
    return TextScanner::ErrorAt(
        at, fmt::format("the shape of a tensor must be known, found {}", shape.ToString()));
  }
  if (scanner.Consume('{')) {
    return VisitDType(dtype, [&](auto tag) {
      return ParseElements<typename decltype(tag)::type>(scanner, shape, repeated_bytes);
    });
  }
  if (!scanner.Consume("base64")) {
    return scanner.Expected("'{' or base64 after the tensor's shape");
  }
  const auto data_at = scanner.position();
  TUTTI_ASSIGN_OR_RETURN(const std::string encoded, scanner.Quoted());
  const auto bytes = CheckedMul(shape.elements(), int64_t(SizeOf(dtype)));
  if (!bytes || *bytes / 3 > int64_t(encoded.size()) / 4) {
    return TextScanner::ErrorAt(
        data_at, fmt::format("the data are too short for {} {}", NameOf(dtype), shape.ToString()));
  }
  Tensor tensor(dtype, shape);
  auto* const to = static_cast<uint8_t*>(tensor.raw());
  if (!DecodeBase64(encoded, to, tensor.bytes())) {
    return TextScanner::ErrorAt(data_at, fmt::format("expected base64 of {} bytes for {} {}",
                                                     *bytes, NameOf(dtype), shape.ToString()));
  }
  if (dtype == kBool) {
    for (size_t i = 0; i < tensor.bytes(); ++i) {
      if (to[i] > 1) return TextScanner::ErrorAt(data_at, "a bool must be 0 or 1");
    }
  }
  return tensor;
}

template <typename T, typename Parse>
absl::StatusOr<AttrValue> ParseList(TextScanner& scanner, const Parse& parse) {
  TUTTI_RETURN_IF_ERROR(scanner.Expect('[', "before a list"));
  std::vector<T> values;
  while (!scanner.Consume(']')) {
    if (!values.empty()) TUTTI_RETURN_IF_ERROR(scanner.Expect(',', "or ']' in a list"));
    TUTTI_ASSIGN_OR_RETURN(T value, parse(scanner));
    values.push_back(std::move(value));
  }
  return AttrValue(std::move(values));
}

absl::StatusOr<AttrValue> ParseDTypeOrTensor(TextScanner& scanner, AttrType type,
                                             int64_t& repeated_bytes) {
  const auto at = scanner.position();
  const std::string_view word = scanner.Word();
  if (word == "none" && type == AttrType::kTensor) return AttrValue(Tensor());
  if (word == "invalid" && type == AttrType::kDType) return AttrValue(DType::kInvalid);
  const auto dtype = DTypeFromName(word);
  if (!dtype) {
    return TextScanner::ErrorAt(
        at, fmt::format("expected a dtype such as float32, found '{}'", word.substr(0, 32)));
  }
  if (type == AttrType::kDType) return AttrValue(*dtype);
  TUTTI_ASSIGN_OR_RETURN(Tensor tensor, ParseTensor(scanner, *dtype, repeated_bytes));
  return AttrValue(std::move(tensor));
}

// The type that an undeclared value shows, with the type word in front already taken if there was
// one.
absl::StatusOr<AttrType> ShownType(TextScanner& scanner) {
  if (scanner.Peek() == '"') return AttrType::kString;
  TextScanner ahead = scanner;
  const std::string_view word = ahead.Word();
  for (const AttrType type : {AttrType::kShape, AttrType::kInts, AttrType::kFloats,
                              AttrType::kStrings, AttrType::kFloat}) {
    if (word == NameOf(type)) {
      scanner = ahead;
      return type;
    }
  }
  if (word == "true" || word == "false") return AttrType::kBool;
  if (!word.empty() && word.find_first_not_of("-0123456789") == std::string_view::npos) {
    return AttrType::kInt;
  }
  if (word == "none") return AttrType::kTensor;
  if (word == "invalid" || DTypeFromName(word)) {
    return ahead.Peek() == '[' ? AttrType::kTensor : AttrType::kDType;
  }
  return scanner.Expected(
      "a value: true, false, an integer, a string, a dtype, a tensor, or one after shape, ints, "
      "floats, strings or float");
}

template <typename T>
absl::StatusOr<AttrValue> Wrap(absl::StatusOr<T> value) {
  if (!value.ok()) return value.status();
  return AttrValue(*std::move(value));
}

}  // namespace

void AppendValue(const AttrValue& value, bool declared, int64_t& repeated_bytes,
                 std::string& text) {
  const AttrType type = TypeOf(value);
  if (!declared &&
      (type == AttrType::kShape || type == AttrType::kInts || type == AttrType::kFloats ||
       type == AttrType::kStrings || type == AttrType::kFloat)) {
    text += NameOf(type);
    text += ' ';
  }
  const auto append_real = [](double real, std::string& to) { AppendReal(real, to); };
  const auto append_int = [](int64_t number, std::string& to) { to += std::to_string(number); };
  switch (type) {
    case AttrType::kBool:
      text += std::get<bool>(value) ? "true" : "false";
      break;
    case AttrType::kInt:
      text += std::to_string(std::get<int64_t>(value));
      break;
    case AttrType::kFloat:
      AppendReal(std::get<double>(value), text);
      break;
    case AttrType::kString:
      text += Quote(std::get<std::string>(value));
      break;
    case AttrType::kDType:
      text += NameOf(std::get<DType>(value));
      break;
    case AttrType::kShape:
      text += std::get<Shape>(value).ToString();
      break;
    case AttrType::kTensor:
      AppendTensor(std::get<Tensor>(value), repeated_bytes, text);
      break;
    case AttrType::kInts:
      AppendList(std::get<std::vector<int64_t>>(value), append_int, text);
      break;
    case AttrType::kFloats:
      AppendList(std::get<std::vector<double>>(value), append_real, text);
      break;
    case AttrType::kStrings:
      AppendList(
          std::get<std::vector<std::string>>(value),
          [](const std::string& item, std::string& to) { to += Quote(item); }, text);
      break;
    case AttrType::kSubgraph:
      break;
  }
}

absl::StatusOr<AttrValue> ParseValue(TextScanner& scanner, std::optional<AttrType> declared,
                                     int64_t& repeated_bytes) {
  AttrType type;
  if (declared) {
    type = *declared;
  } else {
    TUTTI_ASSIGN_OR_RETURN(type, ShownType(scanner));
  }
  switch (type) {
    case AttrType::kBool:
      return Wrap(ParseElement<bool>(scanner));
    case AttrType::kInt:
      return Wrap(ParseInt(scanner));
    case AttrType::kFloat:
      return Wrap(ParseElement<double>(scanner));
    case AttrType::kString:
      return Wrap(scanner.Quoted());
    case AttrType::kDType:
    case AttrType::kTensor:
      return ParseDTypeOrTensor(scanner, type, repeated_bytes);
    case AttrType::kShape:
      return Wrap(ParseShape(scanner));
    case AttrType::kInts:
      return ParseList<int64_t>(scanner, ParseInt);
    case AttrType::kFloats:
      return ParseList<double>(scanner, ParseElement<double>);
    case AttrType::kStrings:
      return ParseList<std::string>(scanner, [](TextScanner& s) { return s.Quoted(); });
    case AttrType::kSubgraph:
      break;
  }
  return scanner.Expected("a value");
}

absl::StatusOr<int64_t> ParseInt(TextScanner& scanner) { return ParseElement<int64_t>(scanner); }

absl::StatusOr<Shape> ParseShape(TextScanner& scanner) {
  const auto at = scanner.position();
  TUTTI_RETURN_IF_ERROR(scanner.Expect('[', "before a shape"));
  if (scanner.Consume("...")) {
    TUTTI_RETURN_IF_ERROR(scanner.Expect(']', "after '...'"));
    return Shape::UnknownRank();
  }
  std::vector<int64_t> dims;
  while (!scanner.Consume(']')) {
    if (!dims.empty()) TUTTI_RETURN_IF_ERROR(scanner.Expect(',', "or ']' in a shape"));
    if (scanner.Consume('?')) {
      dims.push_back(kUnknownDim);
      continue;
    }
    const auto dim_at = scanner.position();
    TUTTI_ASSIGN_OR_RETURN(const int64_t dim, ParseInt(scanner));
    if (dim < 0) {
      return TextScanner::ErrorAt(
          dim_at,
          fmt::format("dimension {} is negative; an unknown dimension is written '?'", dim));
    }
    dims.push_back(dim);
  }
  std::string why;
  const auto shape = Shape::Make(dims, &why);
  if (!shape) return TextScanner::ErrorAt(at, why);
  return *shape;
}

}  // namespace tutti
