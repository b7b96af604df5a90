#include "tutti/base/progress_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace tutti {
namespace {

constexpr int kMostBarColumns = 40;
constexpr int kLeastBarColumns = 10;
constexpr char kSeparator = '\t';  // of the parts in the text

std::string Bar(double share, int columns, const ProgressStyle& style) {
  const int full = int(std::clamp(share, 0.0, 1.0) * columns);
  std::string done;
  std::string rest;
  for (int i = 0; i < full; ++i) done += style.unicode ? "━" : "=";
  for (int i = full; i < columns; ++i) {
    rest += style.unicode ? (style.color ? "━" : " ") : i == full && full > 0 ? ">" : " ";
  }
  if (style.color) return fmt::format("\033[32m{}\033[90m{}\033[0m", done, rest);
  return fmt::format("[{}{}]", done, rest);
}

std::string Joined(const std::vector<std::string>& facts, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += "  " + facts[i];
  return text;
}

}  // namespace

std::string Fit(const ProgressText& text, const ProgressStyle& style) {
  size_t count = text.facts.size();
  std::string back = Joined(text.facts, count);
  if (style.width <= 0) return text.front + back;
  // The last column stays free: some terminals wrap when it is written.
  const int columns = style.width - 1;
  const int room = columns - int(text.front.size() + back.size()) - 3;
  if (text.share >= 0 && room >= kLeastBarColumns) {
    return text.front + " " + Bar(text.share, std::min(room, kMostBarColumns), style) + back;
  }
  while (count > 0 && int(text.front.size() + back.size()) > columns) {
    back = Joined(text.facts, --count);
  }
  return (text.front + back).substr(0, size_t(std::max(columns, 0)));
}

std::string Pack(const ProgressText& text) {
  std::string packed = fmt::format("{:.4f}{}{}", text.share, kSeparator, text.front);
  for (const std::string& fact : text.facts) packed += kSeparator + fact;
  return packed;
}

std::optional<ProgressText> UnpackProgress(std::string_view packed) {
  ProgressText text;
  const char* const last = packed.data() + packed.size();
  const auto [end, error] = std::from_chars(packed.data(), last, text.share);
  if (error != std::errc() || end == last || *end != kSeparator) return std::nullopt;
  packed.remove_prefix(size_t(end - packed.data()) + 1);
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= packed.size();) {
    const size_t stop = std::min(packed.find(kSeparator, begin), packed.size());
    parts.emplace_back(packed.substr(begin, stop - begin));
    begin = stop + 1;
  }
  text.front = parts.front();
  text.facts.assign(parts.begin() + 1, parts.end());
  return text;
}

int LauncherPipe() {
  const char* const text = std::getenv("TUTTI_PROGRESS_FD");
  int pipe = -1;
  if (text != nullptr) std::from_chars(text, text + std::strlen(text), pipe);
  return pipe;
}

bool TellLauncher(int pipe, std::string_view line) {
  const std::string text = fmt::format("{}\n", line);
  return ::write(pipe, text.data(), text.size()) == ssize_t(text.size());
}

}  // namespace tutti
