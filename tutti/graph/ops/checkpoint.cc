#include "tutti/graph/ops/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

#include "tutti/base/status.h"
#include "tutti/graph/build.h"
#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

absl::Status InferNothing(InferContext&) { return absl::OkStatus(); }

absl::Status RequirePath(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(c.RequireDType(0, kUInt8));
  if (c.shape(0).CompatibleWith(Shape{kPathBytes})) return absl::OkStatus();
  return c.Error("{}; expected a path as a uint8 [{}], which PathTensor makes", c.DescribeInput(0),
                 kPathBytes);
}

absl::Status InferSaveShard(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequirePath(c));
  c.SetOutput(0, kUInt8, Shape{kUnknownDim});
  return absl::OkStatus();
}

absl::Status InferRestoreShard(InferContext& c) {
  TUTTI_RETURN_IF_ERROR(RequirePath(c));
  const auto variables = size_t(c.num_inputs() - 1);
  const size_t names = c.attr<std::vector<std::string>>("names").size();
  const size_t rows = c.attr<std::vector<int64_t>>("first_rows").size();
  if (names != variables || rows != variables) {
    return c.Error("{} variables have {} names and {} first rows; expected one of each for each",
                   variables, names, rows);
  }
  return absl::OkStatus();
}

[[noreturn]] void ThrowNoReport() {
  ThrowInvalidArgument("ParseSavedVariables: the tensor is not what SaveShard gave");
}

}  // namespace

void RegisterCheckpointOps(OpRegistry& registry) {
  registry.Add({.name = "TakeSnapshot",
                .inputs = {"&variable..."},
                .attrs = {{"snapshot", AttrType::kString}},
                .infer = InferNothing,
                .stateful = true});
  registry.Add({.name = "SaveShard",
                .inputs = {"path", "&variable..."},
                .attrs = {{"snapshot", AttrType::kString}},
                .infer = InferSaveShard,
                .stateful = true,
                .async = true,
                .provides_outputs = true});
  registry.Add({.name = "RestoreShard",
                .inputs = {"path", "&variable..."},
                .attrs = {{"names", AttrType::kStrings}, {"first_rows", AttrType::kInts}},
                .infer = InferRestoreShard,
                .stateful = true,
                .async = true});
}

Tensor PathTensor(std::string_view path) {
  if (path.size() >= size_t(kPathBytes) || path.find('\0') != std::string_view::npos) {
    ThrowInvalidArgument(fmt::format("the path {}... has {} bytes; expected fewer than {}",
                                     path.substr(0, 60), path.size(), kPathBytes));
  }
  Tensor value = Tensor::Zeros(kUInt8, Shape{kPathBytes});
  std::memcpy(value.raw(), path.data(), path.size());
  return value;
}

std::string PathOf(const Tensor& value) {
  if (value.dtype() != kUInt8 || value.shape() != Shape{kPathBytes}) return "";
  const auto* const text = static_cast<const char*>(value.raw());
  return std::string(text, ::strnlen(text, size_t(kPathBytes)));
}

const Node* TakeSnapshot(std::span<const Output> variables, std::string_view snapshot) {
  return OpBuilder("TakeSnapshot", "")
      .In(variables)
      .Attr("snapshot", std::string(snapshot))
      .BuildNode();
}

Output SaveShard(Output path, std::span<const Output> variables, std::string_view snapshot) {
  return OpBuilder("SaveShard", "")
      .In(path)
      .In(variables)
      .Attr("snapshot", std::string(snapshot))
      .Build();
}

const Node* RestoreShard(Output path, std::span<const Output> variables,
                         std::vector<std::string> names, std::vector<int64_t> first_rows) {
  return OpBuilder("RestoreShard", "")
      .In(path)
      .In(variables)
      .Attr("names", std::move(names))
      .Attr("first_rows", std::move(first_rows))
      .BuildNode();
}

// "SIZE HEADER_CRC", then a line "DTYPE CRC DIM DIM ..." for each variable.
Tensor FormatSavedVariables(const SavedVariables& saved) {
  std::string text = fmt::format("{} {}\n", saved.file_bytes, saved.header_crc);
  for (const SavedVariable& variable : saved.variables) {
    text += fmt::format("{} {}", int(variable.dtype), variable.crc);
    for (const int64_t dim : variable.shape.dims()) text += fmt::format(" {}", dim);
    text += '\n';
  }
  Tensor value(kUInt8, Shape{int64_t(text.size())});
  std::memcpy(value.raw(), text.data(), text.size());
  return value;
}

SavedVariables ParseSavedVariables(const Tensor& text) {
  if (text.dtype() != kUInt8 || text.shape().rank() != 1) ThrowNoReport();
  std::string_view rest(static_cast<const char*>(text.raw()), text.bytes());
  std::vector<std::vector<int64_t>> lines;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    std::vector<int64_t>& numbers = lines.emplace_back();
    while (!line.empty()) {
      const std::string_view word = line.substr(0, line.find(' '));
      line.remove_prefix(std::min(line.size(), word.size() + 1));
      int64_t number = 0;
      const char* const end = word.data() + word.size();
      if (std::from_chars(word.data(), end, number).ptr != end || number < 0) ThrowNoReport();
      numbers.push_back(number);
    }
    if (numbers.size() < 2 || numbers[1] > UINT32_MAX) ThrowNoReport();
  }
  if (lines.empty()) ThrowNoReport();
  SavedVariables saved = {lines[0][0], uint32_t(lines[0][1])};
  for (size_t i = 1; i < lines.size(); ++i) {
    const auto shape = Shape::Make(std::span(lines[i]).subspan(2));
    const auto dtype = static_cast<DType>(lines[i][0]);
    if (!shape || lines[i][0] < 1 || lines[i][0] > int64_t(kBool)) ThrowNoReport();
    saved.variables.push_back({dtype, *shape, uint32_t(lines[i][1])});
  }
  return saved;
}

}  // namespace tutti
