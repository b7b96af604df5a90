#include "tutti/checkpoint/safetensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <unordered_set>
#include <utility>

#include "tutti/base/checked.h"

namespace tutti::checkpoint {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "lengths and tensors are copied as they lie in memory; the format is little-endian");

constexpr int64_t kPage = 4096;
constexpr std::string_view kMetadata = "__metadata__";

constexpr std::pair<DType, std::string_view> kNames[] = {
    {kFloat16, "F16"}, {kFloat32, "F32"}, {kFloat64, "F64"}, {kBFloat16, "BF16"}, {kInt8, "I8"},
    {kInt16, "I16"},   {kInt32, "I32"},   {kInt64, "I64"},   {kUInt8, "U8"},      {kUInt16, "U16"},
    {kUInt32, "U32"},  {kUInt64, "U64"},  {kBool, "BOOL"}};

std::optional<DType> FromSafetensorsName(std::string_view name) {
  for (const auto& [dtype, known] : kNames) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

// Takes the object piece by piece, so that one that is wrong or too large costs no memory.
class HeaderReader final : public nlohmann::json_sax<Json> {
 public:
  Header header;
  std::string error;

  bool null() override { return Unexpected("null"); }
  bool boolean(bool) override { return Unexpected("a boolean"); }
  bool number_integer(number_integer_t value) override {
    return Fail(fmt::format("{} has the number {}; expected 0 or more", Where(), value));
  }
  bool number_float(number_float_t, const string_t& text) override {
    return Unexpected("the number " + text);
  }
  bool binary(binary_t&) override { return Unexpected("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (level_ != kInList) return Unexpected(fmt::format("the number {}", value));
    if (value > number_unsigned_t(INT64_MAX)) {
      return Fail(fmt::format("{} has the number {}, which is past 2^63", Where(), value));
    }
    if (numbers_.size() >= kMaxRank) {
      return Fail(fmt::format("{} has more than {} numbers", Where(), kMaxRank));
    }
    numbers_.push_back(int64_t(value));
    return true;
  }

  bool string(string_t& text) override {
    if (level_ == kInMetadata) {
      header.metadata[field_] = text;
      return true;
    }
    if (level_ != kInTensor || field_ != "dtype") return Unexpected("a text");
    const auto dtype = FromSafetensorsName(text);
    if (!dtype) {
      return Fail(fmt::format("tensor \"{}\" has the dtype \"{}\", which Tutti does not have",
                              entry_.name, Json(text).dump()));
    }
    entry_.dtype = *dtype;
    return true;
  }

  bool start_object(std::size_t) override {
    if (level_ == kOutside) {
      level_ = kInHeader;
      return true;
    }
    if (level_ != kInHeader) return Unexpected("an object");
    level_ = entry_.name == kMetadata ? kInMetadata : kInTensor;
    fields_.clear();
    return true;
  }

  bool key(string_t& text) override {
    if (level_ == kInHeader) {
      if (!names_.insert(text).second) return Fail(fmt::format("\"{}\" stands there twice", text));
      if (text != kMetadata && header.tensors.size() == kMaxTensors) {
        return Fail(fmt::format("there are more than {} tensors", kMaxTensors));
      }
      entry_ = {.name = text};
      return true;
    }
    field_ = text;
    const bool twice = level_ == kInMetadata
                           ? header.metadata.contains(text)
                           : std::find(fields_.begin(), fields_.end(), text) != fields_.end();
    if (twice) return Fail(fmt::format("{} stands there twice", Where()));
    if (level_ == kInMetadata) {
      if (header.metadata.size() < kMaxTensors) return true;
      return Fail(fmt::format("there are more than {} entries in __metadata__", kMaxTensors));
    }
    fields_.push_back(text);
    if (text != "dtype" && text != "shape" && text != "data_offsets") {
      return Fail(fmt::format("{} is not known; expected dtype, shape or data_offsets", Where()));
    }
    return true;
  }

  bool end_object() override {
    if (level_ == kInHeader) {
      level_ = kDone;
      return true;
    }
    if (level_ == kInTensor) {
      if (fields_.size() != 3) {
        return Fail(
            fmt::format("tensor \"{}\" lacks one of dtype, shape and data_offsets", entry_.name));
      }
      header.tensors.push_back(entry_);
    }
    level_ = kInHeader;
    return true;
  }

  bool start_array(std::size_t) override {
    if (level_ != kInTensor || field_ == "dtype") return Unexpected("a list");
    level_ = kInList;
    numbers_.clear();
    return true;
  }

  bool end_array() override {
    level_ = kInTensor;
    if (field_ == "shape") {
      std::string why;
      const auto shape = Shape::Make(numbers_, &why);
      if (!shape) return Fail(fmt::format("{}: {}", Where(), why));
      entry_.shape = *shape;
      return true;
    }
    if (numbers_.size() != 2) return Fail(fmt::format("{} should be two numbers", Where()));
    entry_.begin = numbers_[0];
    entry_.end = numbers_[1];
    return true;
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    return Fail(fmt::format("it is not JSON at byte {}", position));
  }

 private:
  enum Level { kOutside, kInHeader, kInMetadata, kInTensor, kInList, kDone };

  bool Fail(std::string text) {
    if (error.empty()) error = std::move(text);
    return false;
  }
  std::string Where() const {
    if (level_ == kOutside || level_ == kDone) return "the header";
    if (level_ == kInHeader) return fmt::format("tensor \"{}\"", entry_.name);
    if (level_ == kInMetadata) return fmt::format("\"{}\" of __metadata__", field_);
    return fmt::format("\"{}\" of tensor \"{}\"", field_, entry_.name);
  }
  bool Unexpected(std::string_view what) { return Fail(fmt::format("{} is {}", Where(), what)); }

  Level level_ = kOutside;
  TensorEntry entry_;
  std::string field_;
  std::vector<std::string> fields_;  // of the tensor so far
  std::vector<int64_t> numbers_;
  std::unordered_set<std::string> names_;
};

absl::Status CheckPlace(const TensorEntry& entry, int64_t expected_begin, int64_t data_bytes) {
  const auto bytes = CheckedMul(entry.shape.elements(), int64_t(SizeOf(entry.dtype)));
  if (entry.end < entry.begin || entry.end > data_bytes) {
    return InvalidArgument(
        "the header puts tensor \"{}\" at bytes {} to {} of the data, which has {} bytes",
        entry.name, entry.begin, entry.end, data_bytes);
  }
  if (!bytes || *bytes != entry.end - entry.begin) {
    return InvalidArgument("the header gives tensor \"{}\", {} {}, {} bytes; expected {}",
                           entry.name, NameOf(entry.dtype), entry.shape.ToString(),
                           entry.end - entry.begin, bytes ? fmt::format("{}", *bytes) : "fewer");
  }
  if (entry.begin != expected_begin) {
    return InvalidArgument(
        "the header lets tensor \"{}\" begin at byte {} of the data; expected {}: tensors must "
        "neither overlap nor leave a gap",
        entry.name, entry.begin, expected_begin);
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view SafetensorsNameOf(DType dtype) {
  for (const auto& [known, name] : kNames) {
    if (known == dtype) return name;
  }
  return "";
}

std::string FormatHeader(Header& header) {
  std::string text = "{";
  const auto key = [&text](const std::string& name) {
    if (text.size() > 1) text += ',';
    text += Json(name).dump(-1, ' ', false, Json::error_handler_t::replace) + ":";
  };
  if (!header.metadata.empty()) {
    key(std::string(kMetadata));
    text += Json(header.metadata).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  int64_t end = 0;
  for (TensorEntry& entry : header.tensors) {
    entry.begin = end;
    end += entry.shape.elements() * int64_t(SizeOf(entry.dtype));
    entry.end = end;
    key(entry.name);
    text += fmt::format("{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                        SafetensorsNameOf(entry.dtype), fmt::join(entry.shape.dims(), ","),
                        entry.begin, entry.end);
  }
  text += '}';
  text.resize(size_t(RoundUp(int64_t(text.size()) + kLengthBytes, kPage) - kLengthBytes), ' ');
  const uint64_t length = text.size();
  std::string bytes(size_t(kLengthBytes), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  return bytes + text;
}

absl::StatusOr<int64_t> ParseLength(std::string_view eight_bytes, int64_t file_bytes) {
  uint64_t length = 0;
  if (eight_bytes.size() < sizeof(length)) {
    return DataLoss("the file has {} bytes; a safetensors file begins with 8 bytes of length",
                    eight_bytes.size());
  }
  std::memcpy(&length, eight_bytes.data(), sizeof(length));
  if (length > uint64_t(kMaxHeaderBytes)) {
    return InvalidArgument("the length of the header is {}; expected at most {}", length,
                           kMaxHeaderBytes);
  }
  if (int64_t(length) > file_bytes - kLengthBytes) {
    return DataLoss("the length of the header is {}, but the file has only {} bytes", length,
                    file_bytes);
  }
  return int64_t(length);
}

absl::StatusOr<Header> ParseHeader(std::string_view json, int64_t data_bytes) {
  HeaderReader reader;
  if (!Json::sax_parse(json, &reader)) {
    return InvalidArgument("the header is wrong: {}", reader.error);
  }
  Header header = std::move(reader.header);
  std::stable_sort(header.tensors.begin(), header.tensors.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  int64_t end = 0;
  for (const TensorEntry& entry : header.tensors) {
    TUTTI_RETURN_IF_ERROR(CheckPlace(entry, end, data_bytes));
    end = entry.end;
  }
  if (end != data_bytes) {
    return DataLoss("the tensors end at byte {} of the data, but there are {} bytes", end,
                    data_bytes);
  }
  return header;
}

}  // namespace tutti::checkpoint
