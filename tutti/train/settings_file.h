#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// A setting from a file: the name of a flag and its value as text.
struct FileSetting {
  std::string name;
  std::string value;
  std::string where;  // "tutti.toml:3"
};

// The settings that a TOML file has for `program`: those at its top, which are for every program,
// then those of the table [program]; other tables are for others. Names may have _ for -; values
// are strings, numbers, truth values, or lists of them, which become a text with commas.
//
//   model-dir = "run1"
//   [fashion_mnist]
//   batch-size = 128
//
// Throws Error: NOT_FOUND when there is no such file, INVALID_ARGUMENT, with file and line, when it
// is malformed.
std::vector<FileSetting> ReadSettings(const std::string& path, std::string_view program);

}  // namespace tutti
