#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "tutti/net/wire.h"

// The keys of a job (membership.cc lists them) and what they hold.
namespace tutti::net {

inline constexpr const char* kLease = "lease";
inline constexpr const char* kCluster = "cluster";
inline constexpr std::string_view kMembers = "members";
inline constexpr std::string_view kQuestion = "question";
inline constexpr std::string_view kAnswered = "it lives";  // to a question
inline constexpr std::string_view kLeft = "left";
inline constexpr std::string_view kFailed = "failed";
inline constexpr std::string_view kStop = "stop";

inline std::string NameOf(std::string_view kind, std::string_view task) {
  return fmt::format("{}{}", kind, task);
}

// The value of a member's key.
struct Holder {
  uint64_t incarnation = 0;
  std::string place;
};

inline Holder ParseHolder(std::string_view value) {
  Holder holder;
  const auto [end, error] =
      std::from_chars(value.data(), value.data() + value.size(), holder.incarnation);
  if (error != std::errc()) return {0, Printable(value)};
  const size_t used = size_t(end - value.data());
  holder.place = Printable(value.substr(std::min(value.size(), used + 1)));
  return holder;
}

// The value of a request to stop: the number of a signal; 0 where it is none.
inline int ParseSignal(std::string_view value) {
  constexpr int kMost = 64;
  int signal = 0;
  const char* const last = value.data() + value.size();
  const auto [end, error] = std::from_chars(value.data(), last, signal);
  return error == std::errc() && end == last && signal > 0 && signal <= kMost ? signal : 0;
}

// The value of a failure; UNKNOWN where it has no code. A text may have several lines.
inline absl::Status ParseFailure(std::string_view value) {
  constexpr size_t kMostBytes = 16384;
  value = value.substr(0, kMostBytes);
  int code = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), code);
  const bool has_code = error == std::errc() && code >= int(absl::StatusCode::kCancelled) &&
                        code <= int(absl::StatusCode::kUnauthenticated);
  if (has_code) value.remove_prefix(std::min(value.size(), size_t(end - value.data()) + 1));
  std::string text;
  while (!value.empty()) {
    const std::string_view line = value.substr(0, value.find('\n'));
    text += Printable(line, kMostBytes);
    if (line.size() < value.size()) text += '\n';
    value.remove_prefix(std::min(value.size(), line.size() + 1));
  }
  return {has_code ? absl::StatusCode(code) : absl::StatusCode::kUnknown, text};
}

}  // namespace tutti::net
