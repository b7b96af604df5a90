#include "tutti/train/settings_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/topology/nesting.h"

namespace tutti {
namespace {

std::string Where(const std::string& path, const toml::source_region& source) {
  return fmt::format("{}:{}", path, source.begin.line);
}

// Empty if it is none of the kinds that a setting may have.
std::string TextOf(const toml::node& node) {
  if (const auto* text = node.as_string()) return text->get();
  if (const auto* number = node.as_integer()) return fmt::format("{}", number->get());
  if (const auto* number = node.as_floating_point()) return fmt::format("{}", number->get());
  if (const auto* truth = node.as_boolean()) return truth->get() ? "true" : "false";
  return "";
}

std::string ValueOf(const std::string& path, std::string_view name, const toml::node& node) {
  if (const toml::array* list = node.as_array()) {
    std::string text;
    for (const toml::node& element : *list) {
      text += (text.empty() ? "" : ",") + ValueOf(path, name, element);
    }
    return text;
  }
  if (node.is_table() || node.is_date() || node.is_time() || node.is_date_time()) {
    ThrowInvalidArgument(
        fmt::format("{}: {} is a table or a date; expected a string, a number, "
                    "true or false, or a list of them",
                    Where(path, node.source()), name));
  }
  return TextOf(node);
}

void AddAll(const std::string& path, const toml::table& table, bool top,
            std::vector<FileSetting>& settings) {
  for (const auto& [key, node] : table) {
    if (top && node.is_table()) continue;
    std::string name(key.str());
    std::replace(name.begin(), name.end(), '_', '-');
    settings.push_back({name, ValueOf(path, name, node), Where(path, node.source())});
  }
}

}  // namespace

std::vector<FileSetting> ReadSettings(const std::string& path, std::string_view program) {
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    throw Error(Code::kNotFound, fmt::format("cannot open {}: {}", path, std::strerror(errno)));
  }
  std::ostringstream text;
  text << in.rdbuf();
  constexpr int kDeepest = 32;  // the parser recurses into what is nested
  if (const int line = topology::LineNestedDeeperThan(kDeepest, text.str()); line > 0) {
    ThrowInvalidArgument(fmt::format("{}:{}: nested deeper than {}", path, line, kDeepest));
  }
  std::vector<FileSetting> settings;
  try {
    const toml::table file = toml::parse(text.str(), path);
    AddAll(path, file, true, settings);
    if (const toml::table* own = file[program].as_table()) AddAll(path, *own, false, settings);
  } catch (const toml::parse_error& error) {
    ThrowInvalidArgument(
        fmt::format("{}: {}", Where(path, error.source()), std::string(error.description())));
  }
  return settings;
}

}  // namespace tutti
