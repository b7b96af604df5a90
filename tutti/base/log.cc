#include "tutti/base/log.h"

#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>

#include <cstdlib>
#include <memory>
#include <string>

namespace tutti {
namespace {

spdlog::level::level_enum SpdlogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug:
      return spdlog::level::debug;
    case LogLevel::kInfo:
      return spdlog::level::info;
    case LogLevel::kWarning:
      return spdlog::level::warn;
    case LogLevel::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    const auto mode = std::getenv("NO_COLOR") != nullptr ? spdlog::color_mode::never
                                                         : spdlog::color_mode::automatic;
    auto made = std::make_shared<spdlog::logger>(
        "tutti", std::make_shared<spdlog::sinks::stderr_color_sink_mt>(mode));
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    const char* level = std::getenv("TUTTI_LOG");
    made->set_level(level != nullptr ? spdlog::level::from_str(level) : spdlog::level::info);
    return made;
  }();
  return *logger;
}

}  // namespace

bool LogEnabled(LogLevel level) { return Logger().should_log(SpdlogLevel(level)); }

void LogLine(LogLevel level, std::string_view line) {
  Logger().log(SpdlogLevel(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace tutti
