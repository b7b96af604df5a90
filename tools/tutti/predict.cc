#include "tools/tutti/predict.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/kernels/register.h"
#include "tutti/tensor/npy.h"
#include "tutti/train/export/exported_model.h"

namespace tutti::tools {
namespace {

std::string NamesOf(const std::map<std::string, ModelValue>& values) {
  std::string names;
  for (const auto& [name, value] : values) names += (names.empty() ? "" : ", ") + name;
  return names;
}

// NAME and FILE of "NAME=FILE"; of "FILE" alone the only name that there is.
std::pair<std::string, std::string> Split(const char* flag, const std::string& text,
                                          const std::map<std::string, ModelValue>& known) {
  const size_t equals = text.find('=');
  std::string name = equals == std::string::npos ? "" : text.substr(0, equals);
  if (name.empty()) {
    if (known.size() != 1) {
      ThrowInvalidArgument(
          fmt::format("{} {}: the model has {}; give NAME=FILE", flag, text, NamesOf(known)));
    }
    name = known.begin()->first;
  }
  if (!known.contains(name)) {
    ThrowInvalidArgument(fmt::format("{} {}: there is no \"{}\"; the model has {}", flag, text,
                                     name, NamesOf(known)));
  }
  return {name, equals == std::string::npos ? text : text.substr(equals + 1)};
}

std::string Lines(const std::map<std::string, ModelValue>& values) {
  std::string text;
  for (const auto& [name, value] : values) {
    text += fmt::format("  {} {} {}\n", name, NameOf(value.dtype), value.shape.ToString());
  }
  return text;
}

std::string Show(const std::string& name, const Tensor& value, int64_t rows) {
  std::string text =
      fmt::format("{} {} {}\n", name, NameOf(value.dtype()), value.shape().ToString());
  const int64_t all = value.shape()[0], shown = std::min(all, rows);
  for (int64_t i = 0; i < shown; ++i) {
    const std::string row = value.Rows(i, i + 1).ToString();
    text += fmt::format("  {}: {}\n", i, row.substr(std::min(row.find('{'), row.size())));
  }
  if (shown < all) text += fmt::format("  ... {} more\n", all - shown);
  return text;
}

}  // namespace

std::string DescribeModel(const std::string& directory) {
  RegisterCpuKernels();
  const ExportedModel model(directory);
  return fmt::format("exported at step {}\ninputs\n{}outputs\n{}", model.step(),
                     Lines(model.inputs()), Lines(model.outputs()));
}

std::string Predict(const PredictOptions& options) {
  RegisterCpuKernels();
  const ExportedModel model(options.directory);
  Columns columns;
  for (const std::string& input : options.inputs) {
    const auto [name, path] = Split("--input", input, model.inputs());
    columns[name] = ReadNpy(path);
  }
  // Before the work is done.
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& output : options.outputs) {
    files.push_back(Split("--output", output, model.outputs()));
  }
  const Columns results = model.Predict(columns, options.batch_size);
  std::string text;
  for (const auto& [name, path] : files) {
    WriteNpy(path, results.at(name));
    text += fmt::format("wrote {}\n", path);
  }
  if (!files.empty()) return text;
  for (const auto& [name, value] : results) text += Show(name, value, options.rows);
  return text;
}

}  // namespace tutti::tools
