#pragma once

#include <fmt/core.h>

#include <string_view>
#include <utility>

// One line a message on stderr: time, level, text. The level is info;
// TUTTI_LOG=debug|info|warn|error|off changes it. Thread-safe.
namespace tutti {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

bool LogEnabled(LogLevel level);
void LogLine(LogLevel level, std::string_view line);

template <typename... Args>
void Log(LogLevel level, fmt::format_string<Args...> format, Args&&... args) {
  if (LogEnabled(level)) LogLine(level, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace tutti
