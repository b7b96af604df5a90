#include "tutti/checkpoint/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "tutti/checkpoint/safetensors.h"
#include "tutti/checkpoint/sealed_lines.h"

namespace tutti::checkpoint {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 6;
constexpr size_t kMaxShards = 10'000;
constexpr size_t kMaxKeys = 1000;                // of one object
constexpr size_t kMaxValues = 40 * kMaxTensors;  // objects, lists, keys, numbers and texts
constexpr std::string_view kSuffix = ".safetensors";

std::string Quoted(const std::string& text) {
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string FormatFacts(const Facts& facts) {
  std::string text = "{";
  for (const auto& [name, value] : facts) {
    text += fmt::format("{}{}: {}", text.size() > 1 ? ", " : "", Quoted(name), Quoted(value));
  }
  return text + "}";
}

std::string FormatShape(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape.dims(), ", "));
}

std::string FormatTensor(const SavedTensor& tensor) {
  std::string text = fmt::format("{{\"name\": {}, \"dtype\": \"{}\", \"shape\": {}, \"shard\": {}",
                                 Quoted(tensor.name), NameOf(tensor.dtype),
                                 FormatShape(tensor.shape), tensor.shard);
  if (tensor.key != tensor.name) text += fmt::format(", \"key\": {}", Quoted(tensor.key));
  if (tensor.whole != tensor.shape) {
    text += fmt::format(", \"first_row\": {}, \"whole\": {}", tensor.first_row,
                        FormatShape(tensor.whole));
  }
  if (!tensor.slot_of.empty()) text += fmt::format(", \"slot_of\": {}", Quoted(tensor.slot_of));
  return text + fmt::format(", \"crc32c\": \"{:08x}\"}}", tensor.crc);
}

// Refuses what nests deeply or has too many values while it is parsed.
class Limits {
 public:
  // false: the value is not kept.
  bool Take(int depth, Json::parse_event_t event) {
    using Event = Json::parse_event_t;
    if (!status_.ok()) return false;
    if (depth > kMaxDepth) {
      status_ = InvalidArgument("it is nested deeper than {} levels", kMaxDepth);
    }
    if (event == Event::object_end || event == Event::array_end) {
      if (event == Event::object_end) keys_.pop_back();
      return true;
    }
    if (++values_ > kMaxValues) {
      status_ = InvalidArgument("it has more than {} values", kMaxValues);
    }
    if (event == Event::object_start) keys_.push_back(0);
    if (event == Event::key && ++keys_.back() > kMaxKeys) {
      status_ = InvalidArgument("an object in it has more than {} names", kMaxKeys);
    }
    return status_.ok();
  }
  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
  std::vector<size_t> keys_;  // so far, of each object that is open
  size_t values_ = 0;
};

absl::StatusOr<Json> ParseJson(std::string_view text) {
  Limits limits;
  const auto take = [&](int depth, Json::parse_event_t event, Json&) {
    return limits.Take(depth, event);
  };
  try {
    Json json = Json::parse(text, take);
    TUTTI_RETURN_IF_ERROR(limits.status());
    if (!json.is_object()) return InvalidArgument("it is no JSON object");
    return json;
  } catch (const Json::parse_error& error) {
    TUTTI_RETURN_IF_ERROR(limits.status());
    const std::string_view before = text.substr(0, error.byte);
    const auto line = 1 + std::count(before.begin(), before.end(), '\n');
    return DataLoss("it is not JSON at line {}", line);
  }
}

// Takes typed values out of an object; the first mistake stays in `status`.
class Fields {
 public:
  Fields(const Json& object, std::string where, absl::Status& status)
      : object_(object), where_(std::move(where)), status_(status) {
    if (!object_.is_object()) Fail("is no object");
  }

  int64_t Int(const char* name, int64_t least = 0) {
    const Json* const value = Find(name);
    if (value == nullptr) return least;
    if (!value->is_number_integer() ||
        (value->is_number_unsigned() && value->get<uint64_t>() > uint64_t(INT64_MAX)) ||
        value->get<int64_t>() < least) {
      Fail(fmt::format("has a wrong \"{}\": expected a whole number of at least {}", name, least));
      return least;
    }
    return value->get<int64_t>();
  }

  std::string Text(const char* name) {
    const Json* const value = Find(name);
    if (value == nullptr) return "";
    if (!value->is_string()) {
      Fail(fmt::format("has a wrong \"{}\": expected a text", name));
      return "";
    }
    return value->get<std::string>();
  }

  uint32_t Crc(const char* name) {
    const std::string text = Text(name);
    uint32_t crc = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), crc, 16);
    if (text.size() != 8 || error != std::errc() || end != text.data() + text.size()) {
      Fail(fmt::format("has a wrong \"{}\": expected 8 hexadecimal digits", name));
    }
    return crc;
  }

  Shape Dims(const char* name) {
    const Json* const value = Find(name);
    std::vector<int64_t> dims;
    bool right = value != nullptr && value->is_array() && value->size() <= size_t(kMaxRank);
    for (size_t i = 0; right && i < value->size(); ++i) {
      const Json& dim = (*value)[i];
      right = dim.is_number_unsigned() && dim.get<uint64_t>() <= uint64_t(INT64_MAX);
      if (right) dims.push_back(dim.get<int64_t>());
    }
    const auto shape = Shape::Make(dims);
    if (!right || !shape) Fail(fmt::format("has a wrong \"{}\": expected a shape", name));
    return shape.value_or(Shape());
  }

  Facts Map(const char* name) {
    const Json* const value = Find(name);
    Facts facts;
    if (value == nullptr) return facts;
    if (!value->is_object()) Fail(fmt::format("has a wrong \"{}\": expected texts by name", name));
    if (!status_.ok()) return facts;
    for (const auto& [key, text] : value->items()) {
      if (!text.is_string()) Fail(fmt::format("has a wrong \"{}\" in \"{}\"", key, name));
      if (text.is_string()) facts[key] = text.get<std::string>();
    }
    return facts;
  }

  const Json& List(const char* name) {
    static const Json kNone = Json::array();
    const Json* const value = Find(name);
    if (value != nullptr && value->is_array()) return *value;
    Fail(fmt::format("has a wrong \"{}\": expected a list", name));
    return kNone;
  }

  bool Has(const char* name) const { return object_.is_object() && object_.contains(name); }
  void Fail(const std::string& what) {
    if (status_.ok()) status_ = InvalidArgument("{} {}", where_, what);
  }

 private:
  const Json* Find(const char* name) {
    if (!status_.ok()) return nullptr;
    const auto found = object_.find(name);
    if (found != object_.end()) return &*found;
    Fail(fmt::format("has no \"{}\"", name));
    return nullptr;
  }

  const Json& object_;
  const std::string where_;
  absl::Status& status_;
};

// A name that leads nowhere but into the checkpoint's directory.
bool IsShardName(std::string_view name) {
  const auto plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == '.';
  };
  return name.size() > kSuffix.size() && name.size() < 200 && name.ends_with(kSuffix) &&
         !name.starts_with('.') && std::all_of(name.begin(), name.end(), plain);
}

SavedShard ShardFrom(const Json& json, size_t index, absl::Status& status) {
  Fields fields(json, fmt::format("shard {}", index), status);
  SavedShard shard = {fields.Text("file"), fields.Int("bytes"), fields.Crc("header_crc32c")};
  if (!IsShardName(shard.file)) {
    fields.Fail(fmt::format("has the file {}: expected a plain name that ends with {}",
                            Quoted(shard.file), kSuffix));
  }
  return shard;
}

SavedTensor TensorFrom(const Json& json, size_t index, size_t shards, absl::Status& status) {
  Fields fields(json, fmt::format("tensor {}", index), status);
  SavedTensor tensor;
  tensor.name = fields.Text("name");
  tensor.key = fields.Has("key") ? fields.Text("key") : tensor.name;
  const auto dtype = DTypeFromName(fields.Text("dtype"));
  if (!dtype || *dtype == DType::kInvalid) {
    fields.Fail(fmt::format("({}) has a wrong \"dtype\"", Quoted(tensor.name)));
  }
  tensor.dtype = dtype.value_or(DType::kInvalid);
  tensor.shape = fields.Dims("shape");
  tensor.whole = fields.Has("whole") ? fields.Dims("whole") : tensor.shape;
  if (fields.Has("first_row")) tensor.first_row = fields.Int("first_row");
  if (fields.Has("slot_of")) tensor.slot_of = fields.Text("slot_of");
  tensor.shard = fields.Int("shard");
  tensor.crc = fields.Crc("crc32c");
  if (size_t(tensor.shard) >= shards) {
    fields.Fail(
        fmt::format("({}) is in shard {} of {}", Quoted(tensor.name), tensor.shard, shards));
  }
  const Shape& whole = tensor.whole;
  const bool split = whole != tensor.shape;
  if (split && (whole.rank() == 0 || tensor.shape.rank() != whole.rank() ||
                tensor.shape.WithDim(0, whole[0]) != whole ||
                tensor.first_row > whole[0] - tensor.shape[0])) {
    fields.Fail(fmt::format("({}) has {} from row {} on, which are no rows of {}",
                            Quoted(tensor.name), tensor.shape.ToString(), tensor.first_row,
                            whole.ToString()));
  }
  if (!split && tensor.first_row != 0) fields.Fail("has a wrong \"first_row\": expected 0");
  return tensor;
}

// The parts of each variable cover its rows, each once, and agree on what it is.
absl::Status CheckParts(const Manifest& manifest) {
  std::vector<const SavedTensor*> sorted;
  std::set<std::pair<int64_t, std::string_view>> keys;
  for (const SavedTensor& tensor : manifest.tensors) {
    sorted.push_back(&tensor);
    if (!keys.insert({tensor.shard, tensor.key}).second) {
      return InvalidArgument("\"{}\" of shard {} stands there twice", tensor.key, tensor.shard);
    }
  }
  std::sort(sorted.begin(), sorted.end(), [](const SavedTensor* a, const SavedTensor* b) {
    return std::tie(a->name, a->first_row) < std::tie(b->name, b->first_row);
  });
  for (size_t i = 0; i < sorted.size();) {
    const SavedTensor& first = *sorted[i];
    int64_t rows = 0;
    for (; i < sorted.size() && sorted[i]->name == first.name; ++i) {
      const SavedTensor& part = *sorted[i];
      if (part.first_row != rows || part.whole != first.whole || part.dtype != first.dtype) {
        return InvalidArgument("tensor \"{}\" has parts that do not fit together at row {}",
                               first.name, rows);
      }
      rows += part.rows();
    }
    const int64_t expected = first.whole.rank() == 0 ? 1 : first.whole[0];
    if (rows != expected) {
      return InvalidArgument("tensor \"{}\" has {} of its {} rows", first.name, rows, expected);
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string FormatManifest(const Manifest& manifest) {
  std::string text = "{\n";
  const auto field = [&text](std::string_view name, const std::string& value) {
    text += fmt::format("\"{}\": {},\n", name, value);
  };
  field("format", fmt::format("{}", manifest.format));
  field("made_by", Quoted(manifest.made_by));
  field("step", fmt::format("{}", manifest.step));
  field("position", fmt::format("{}", manifest.position));
  field("seed", fmt::format("{}", manifest.seed));
  field("fingerprint", Quoted(manifest.fingerprint));
  field("data", FormatFacts(manifest.data));
  field("order_of_sums", FormatFacts(manifest.order));
  text += "\"shards\": [\n";
  for (size_t i = 0; i < manifest.shards.size(); ++i) {
    const SavedShard& shard = manifest.shards[i];
    text += fmt::format("{{\"file\": {}, \"bytes\": {}, \"header_crc32c\": \"{:08x}\"}}{}\n",
                        Quoted(shard.file), shard.bytes, shard.header_crc,
                        i + 1 < manifest.shards.size() ? "," : "");
  }
  text += "],\n\"tensors\": [\n";
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    text += FormatTensor(manifest.tensors[i]);
    text += i + 1 < manifest.tensors.size() ? ",\n" : "\n";
  }
  text += "],\n";
  return SealLines(text);
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text) {
  const absl::Status seal = CheckSeal(text);
  const bool sealed = text.find("\"lines_crc32c\"") != std::string_view::npos;
  if (!seal.ok() && sealed) return seal;
  // A newer format may have another kind of checksum: its version is what counts.
  auto json = ParseJson(text);
  if (!json.ok()) return sealed ? json.status() : seal;
  absl::Status status;
  Fields fields(*json, "it", status);
  Manifest manifest;
  manifest.format = fields.Int("format", 1);
  TUTTI_RETURN_IF_ERROR(status);
  if (manifest.format > kFormat) {
    return Unimplemented(
        "it has format {}, and this version of Tutti reads formats up to {}; use a newer version",
        manifest.format, kFormat);
  }
  TUTTI_RETURN_IF_ERROR(seal);
  manifest.made_by = fields.Text("made_by");
  manifest.step = fields.Int("step");
  manifest.position = fields.Int("position");
  manifest.seed = fields.Int("seed", INT64_MIN);
  manifest.fingerprint = fields.Text("fingerprint");
  manifest.data = fields.Map("data");
  manifest.order = fields.Map("order_of_sums");
  const Json& shards = fields.List("shards");
  const Json& tensors = fields.List("tensors");
  if (shards.size() > kMaxShards || tensors.size() > kMaxTensors) {
    return InvalidArgument("it has {} shards and {} tensors; expected at most {} and {}",
                           shards.size(), tensors.size(), kMaxShards, kMaxTensors);
  }
  for (size_t i = 0; i < shards.size() && status.ok(); ++i) {
    manifest.shards.push_back(ShardFrom(shards[i], i, status));
  }
  for (size_t i = 0; i < tensors.size() && status.ok(); ++i) {
    manifest.tensors.push_back(TensorFrom(tensors[i], i, shards.size(), status));
  }
  TUTTI_RETURN_IF_ERROR(status);
  TUTTI_RETURN_IF_ERROR(CheckParts(manifest));
  return manifest;
}

}  // namespace tutti::checkpoint
