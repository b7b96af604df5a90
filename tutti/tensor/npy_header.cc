// The header is a Python dictionary with exactly three keys:
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
// Its reader takes the literals that can occur in it (strings, True, False, tuples of integers) and
// nothing else.
#include "tutti/tensor/npy_header.h"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <vector>

#include "tutti/base/checked.h"

namespace tutti {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";

struct TypeCode {
  DType dtype;
  std::string_view code;
};
constexpr TypeCode kCodes[] = {{kFloat16, "f2"}, {kFloat32, "f4"}, {kFloat64, "f8"}, {kInt8, "i1"},
                               {kInt16, "i2"},   {kInt32, "i4"},   {kInt64, "i8"},   {kUInt8, "u1"},
                               {kUInt16, "u2"},  {kUInt32, "u4"},  {kUInt64, "u8"},  {kBool, "b1"}};

class DictionaryReader {
 public:
  explicit DictionaryReader(std::string_view text) : text_(text) {}

  absl::StatusOr<NpyHeader> Read() {
    NpyHeader header;
    bool has_descr = false, has_order = false, has_shape = false;
    TUTTI_RETURN_IF_ERROR(Expect('{'));
    while (!Consume('}')) {
      TUTTI_ASSIGN_OR_RETURN(const std::string_view key, String());
      TUTTI_RETURN_IF_ERROR(Expect(':'));
      bool* has = key == "descr"           ? &has_descr
                  : key == "fortran_order" ? &has_order
                  : key == "shape"         ? &has_shape
                                           : nullptr;
      if (has == nullptr || *has) {
        return InvalidArgument("the header has {} \"{}\"; expected descr, fortran_order and shape",
                               has == nullptr ? "an unknown key" : "a second key", key);
      }
      *has = true;
      if (has == &has_descr) {
        TUTTI_RETURN_IF_ERROR(ReadDescr(header));
      } else if (has == &has_order) {
        TUTTI_ASSIGN_OR_RETURN(header.fortran_order, Boolean());
      } else {
        TUTTI_ASSIGN_OR_RETURN(header.shape, Tuple());
      }
      if (!Consume(',') && Peek() != '}') return Expected("',' or '}'");
    }
    if (Peek() != '\0') return Expected("nothing after '}'");
    if (!has_descr || !has_order || !has_shape) {
      return InvalidArgument("the header has no \"{}\"", !has_descr   ? "descr"
                                                         : !has_order ? "fortran_order"
                                                                      : "shape");
    }
    return header;
  }

 private:
  char Peek() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  bool Consume(char c) {
    if (Peek() != c || at_ >= text_.size()) return false;
    ++at_;
    return true;
  }
  absl::Status Expected(std::string_view what) {
    const char c = Peek();
    return InvalidArgument("the header is malformed at its byte {}: expected {}, found {}", at_,
                           what,
                           c == '\0'               ? std::string("its end")
                           : c >= 0x20 && c < 0x7f ? fmt::format("'{}'", c)
                                                   : fmt::format("byte {}", uint8_t(c)));
  }
  absl::Status Expect(char c) {
    return Consume(c) ? absl::OkStatus() : Expected(fmt::format("'{}'", c));
  }

  absl::StatusOr<std::string_view> String() {
    const char quote = Peek();
    if (quote != '\'' && quote != '"') return Expected("a string");
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return Expected("a string with its end");
    const std::string_view value = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    return value;
  }

  absl::StatusOr<bool> Boolean() {
    Peek();
    for (const std::string_view word : {"True", "False"}) {
      if (text_.substr(at_).starts_with(word)) {
        at_ += word.size();
        return word == "True";
      }
    }
    return Expected("True or False");
  }

  absl::StatusOr<Shape> Tuple() {
    TUTTI_RETURN_IF_ERROR(Expect('('));
    std::vector<int64_t> dims;
    while (!Consume(')')) {
      Peek();
      int64_t dim = 0;
      const char* const begin = text_.data() + at_;
      const auto [stop, error] = std::from_chars(begin, text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0) return Expected("a dimension, 0 to 2^63-1,");
      at_ += size_t(stop - begin);
      Consume('L');  // as Python 2 wrote it
      dims.push_back(dim);
      if (!Consume(',') && Peek() != ')') return Expected("',' or ')'");
    }
    std::string why;
    const auto shape = Shape::Make(dims, &why);
    if (!shape) return InvalidArgument("{}", why);
    return *shape;
  }

  absl::Status ReadDescr(NpyHeader& header) {
    if (Peek() == '[') {
      return InvalidArgument("the file holds records with named fields; expected plain numbers");
    }
    TUTTI_ASSIGN_OR_RETURN(const std::string_view descr, String());
    const char order = descr.empty() ? '\0' : descr[0];
    if (order == '<' || order == '>' || order == '|' || order == '=') {
      for (const TypeCode& type : kCodes) {
        if (descr.substr(1) == type.code) {
          header.dtype = type.dtype;
          header.big_endian = order == '>';
          return absl::OkStatus();
        }
      }
    }
    return InvalidArgument(
        "the elements have NumPy's type '{}', which Tutti has not; convert the array to a "
        "floating-point, integer or bool type{}",
        descr.substr(0, 32), descr.ends_with("V2") ? " (a bfloat16 array to float32)" : "");
  }

  std::string_view text_;
  size_t at_ = 0;
};

uint32_t LittleEndian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = bytes.size(); i > 0; --i) value = value << 8 | uint8_t(bytes[i - 1]);
  return value;
}

}  // namespace

absl::StatusOr<NpyHeader> ParseNpyHeader(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return InvalidArgument("it is no .npy file: it does not start with \"\\x93NUMPY\"");
  }
  if (bytes.size() < kNpyPrefix) return InvalidArgument("the header is truncated");
  const int major = uint8_t(bytes[6]);
  const int minor = uint8_t(bytes[7]);
  if (major < 1 || major > 3 || minor != 0) {
    return InvalidArgument("it has .npy version {}.{}; expected 1.0, 2.0 or 3.0", major, minor);
  }
  const size_t length_size = major == 1 ? 2 : 4;
  const size_t length = LittleEndian(bytes.substr(8, length_size));
  const size_t begin = 8 + length_size;
  if (length > kMostNpyHeader - begin) {
    return InvalidArgument("the header has {} bytes; at most {} are read", length,
                           kMostNpyHeader - begin);
  }
  if (bytes.size() < begin + length) return InvalidArgument("the header is truncated");
  TUTTI_ASSIGN_OR_RETURN(NpyHeader header, DictionaryReader(bytes.substr(begin, length)).Read());
  header.data_offset = begin + length;
  return header;
}

std::string MakeNpyHeader(DType dtype, const Shape& shape) {
  std::string_view code;
  for (const TypeCode& type : kCodes) {
    if (type.dtype == dtype) code = type.code;
  }
  // A tuple of one has a comma behind it.
  const std::string dims =
      fmt::format("{}{}", fmt::join(shape.dims(), ", "), shape.rank() == 1 ? "," : "");
  std::string text = fmt::format("{{'descr': '{}{}', 'fortran_order': False, 'shape': ({}), }}",
                                 SizeOf(dtype) == 1 ? '|' : '<', code, dims);
  const size_t unpadded = 10 + text.size() + 1;
  text.append(size_t(RoundUp(int64_t(unpadded), 64)) - unpadded, ' ');
  text += '\n';
  std::string header(kMagic);
  header += '\x01';
  header += '\0';
  header += char(text.size() & 0xff);
  header += char(text.size() >> 8);
  return header + text;
}

}  // namespace tutti
