#include "tutti/checkpoint/sealed_lines.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "tutti/base/crc32c.h"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view kBegin = "\"lines_crc32c\": [\n";

std::vector<std::string_view> LinesOf(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

// What a line is about: the name of a tensor or shard, or the first key.
std::string SubjectOf(std::string_view line) {
  for (const std::string_view key : {"\"name\": \"", "\"file\": \"", "\""}) {
    const size_t begin = line.find(key);
    if (begin == std::string_view::npos) continue;
    const std::string_view rest = line.substr(begin + key.size());
    return fmt::format(" (\"{}\")", rest.substr(0, rest.find('"')));
  }
  return "";
}

std::string Seal(std::string_view body) {
  std::string text(kBegin);
  const std::vector<std::string_view> lines = LinesOf(body);
  for (size_t i = 0; i < lines.size(); ++i) {
    text += fmt::format("\"{:08x}\"{}\n", Crc32c(std::as_bytes(std::span(lines[i]))),
                        i + 1 < lines.size() ? "," : "");
  }
  return text + "]\n}\n";
}

}  // namespace

std::string SealLines(std::string_view body) { return std::string(body) + Seal(body); }

absl::Status CheckSeal(std::string_view text) {
  const size_t begin = text.rfind(kBegin);
  if (begin == std::string_view::npos) {
    return DataLoss("the checksums of its lines (\"lines_crc32c\") are missing or damaged");
  }
  const std::string_view body = text.substr(0, begin);
  const std::string expected = Seal(body);
  const std::string_view found = text.substr(begin);
  if (found == expected) return absl::OkStatus();
  const std::vector<std::string_view> lines = LinesOf(body);
  const std::vector<std::string_view> right = LinesOf(expected), there = LinesOf(found);
  for (size_t i = 1; i < right.size() && i <= lines.size(); ++i) {
    if (i < there.size() && there[i] == right[i]) continue;
    return DataLoss("line {}{} is damaged, or its checksum is: {}, expected {}", i,
                    SubjectOf(lines[i - 1]), right[i], i < there.size() ? there[i] : "one");
  }
  return DataLoss("the end of the checksums of its lines (\"lines_crc32c\") is damaged");
}

}  // namespace tutti::checkpoint
