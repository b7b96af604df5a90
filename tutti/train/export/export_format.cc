#include "tutti/train/export/export_format.h"

#include <fmt/format.h>

#include <charconv>
#include <nlohmann/json.hpp>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/checkpoint/sealed_lines.h"

namespace tutti {
namespace {

using nlohmann::json;

constexpr const char* kFormat = "tutti exported model";
constexpr const char* kSealed = "\"lines_crc32c\"";

json ToJson(const std::map<std::string, ModelValue>& values) {
  json object = json::object();
  for (const auto& [name, value] : values) {
    json shape = json::array();
    for (int i = 0; i < value.shape.rank(); ++i) shape.push_back(value.shape[i]);
    object[name] = {{"node", value.node}, {"dtype", std::string(NameOf(value.dtype))}};
    if (value.shape.has_rank()) object[name]["shape"] = std::move(shape);
  }
  return object;
}

[[noreturn]] void Refuse(const std::string& path, const std::string& what) {
  ThrowInvalidArgument(fmt::format("{}: {}", path, what));
}

std::string Digits(uint32_t crc) { return fmt::format("{:08x}", crc); }

uint32_t CrcOf(const json& value, const std::string& path) {
  const std::string text = value.is_string() ? value.get<std::string>() : "";
  uint32_t crc = 0;
  const char* const end = text.data() + text.size();
  if (text.size() != 8 || std::from_chars(text.data(), end, crc, 16).ptr != end) {
    Refuse(path, fmt::format("a checksum is {}; expected 8 hexadecimal digits", value.dump()));
  }
  return crc;
}

const json& Member(const json& object, const char* name, const std::string& path) {
  const auto member = object.find(name);
  if (member == object.end()) Refuse(path, fmt::format("\"{}\" is missing", name));
  return *member;
}

Shape ShapeOf(const json& value, const std::string& name, const std::string& path) {
  const auto shape = value.find("shape");
  if (shape == value.end()) return Shape::UnknownRank();
  if (!shape->is_array() || shape->empty() || shape->size() > 32) {
    Refuse(path, fmt::format("the shape of \"{}\" is {}; expected a list of 1 to 32 dimensions",
                             name, shape->dump()));
  }
  std::vector<int64_t> dims;
  for (const json& dim : *shape) {
    if (!dim.is_number_integer() || dim.get<int64_t>() < -1) {
      Refuse(path, fmt::format("the shape of \"{}\" is {}; expected whole numbers from 0 on, or -1",
                               name, shape->dump()));
    }
    dims.push_back(dim.get<int64_t>());
  }
  std::string why;
  const auto made = Shape::Make(dims, &why);
  if (!made) Refuse(path, fmt::format("the shape of \"{}\": {}", name, why));
  return *made;
}

std::map<std::string, ModelValue> ValuesOf(const json& object, const std::string& path) {
  if (!object.is_object()) Refuse(path, "inputs and outputs must be objects");
  std::map<std::string, ModelValue> values;
  for (const auto& [name, value] : object.items()) {
    if (!value.is_object()) Refuse(path, fmt::format("\"{}\" is no object", name));
    const json& node = Member(value, "node", path);
    const json& dtype = Member(value, "dtype", path);
    const auto parsed = dtype.is_string() ? DTypeFromName(dtype.get<std::string>()) : std::nullopt;
    if (!node.is_string() || !parsed) {
      Refuse(path, fmt::format("\"{}\" has node {} and dtype {}; expected a name, and a type such "
                               "as \"float32\"",
                               name, node.dump(), dtype.dump()));
    }
    values[name] = {node.get<std::string>(), *parsed, ShapeOf(value, name, path)};
  }
  return values;
}

}  // namespace

std::string FormatSignature(const ModelSignature& signature) {
  json object = {{"format", kFormat},
                 {"version", signature.checksums ? kExportVersion : 1},
                 {"step", signature.step},
                 {"inputs", ToJson(signature.inputs)},
                 {"outputs", ToJson(signature.outputs)}};
  if (!signature.checksums) return object.dump(2) + "\n";
  json tensors = json::object();
  for (const auto& [name, crc] : signature.checksums->tensors) tensors[name] = Digits(crc);
  object["crc32c"] = {{"graph", Digits(signature.checksums->graph)},
                      {"header", Digits(signature.checksums->header)},
                      {"tensors", std::move(tensors)}};
  std::string text = object.dump(2);
  // The brace that closes it comes behind the checksums.
  text.replace(text.rfind('\n'), std::string::npos, ",\n");
  return checkpoint::SealLines(text);
}

ModelSignature ParseSignature(const std::string& text, const std::string& path) {
  // Before anything else, so that what is damaged is not taken for something else.
  if (text.find(kSealed) != std::string::npos) {
    ThrowIfError(WithPrefix(checkpoint::CheckSeal(text), path + ": "));
  }
  const json object = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) Refuse(path, "it is no JSON object");
  const json& format = Member(object, "format", path);
  if (format != kFormat) {
    Refuse(path, fmt::format("\"format\" is {}; expected \"{}\"", format.dump(), kFormat));
  }
  const json& version = Member(object, "version", path);
  if (!version.is_number_integer() || version.get<int64_t>() < 1) {
    Refuse(path,
           fmt::format("\"version\" is {}; expected a whole number from 1 on", version.dump()));
  }
  if (version.get<int64_t>() > kExportVersion) {
    throw Error(Code::kUnimplemented,
                fmt::format("{}: the model has format version {}, which a newer Tutti has written; "
                            "this one reads up to {}",
                            path, version.get<int64_t>(), kExportVersion));
  }
  const json& step = Member(object, "step", path);
  if (!step.is_number_integer()) Refuse(path, "\"step\" is no whole number");
  ModelSignature signature{.inputs = ValuesOf(Member(object, "inputs", path), path),
                           .outputs = ValuesOf(Member(object, "outputs", path), path),
                           .step = step.get<int64_t>()};
  if (signature.outputs.empty()) Refuse(path, "it has no outputs");
  if (version.get<int64_t>() > 1) {
    ThrowIfError(WithPrefix(checkpoint::CheckSeal(text), path + ": "));
    const json& sums = Member(object, "crc32c", path);
    ModelChecksums& checksums = signature.checksums.emplace();
    checksums.graph = CrcOf(Member(sums, "graph", path), path);
    checksums.header = CrcOf(Member(sums, "header", path), path);
    for (const auto& [name, crc] : Member(sums, "tensors", path).items()) {
      checksums.tensors[name] = CrcOf(crc, path);
    }
  }
  return signature;
}

}  // namespace tutti
