#include "tutti/topology/quantity.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include "tutti/base/status.h"

namespace tutti::topology {
namespace {

struct Number {
  double value;
  std::string_view unit;  // what stands behind it
};

// The number at the beginning of the text; none if there is none or it is not finite.
std::optional<Number> SplitNumber(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  if (unit.starts_with(' ')) unit.remove_prefix(1);
  return Number{value, unit};
}

// Takes a prefix such as G or Gi off the unit and returns the power it stands for.
double TakePrefix(std::string_view& unit) {
  constexpr std::string_view kPrefixes = "KMGTP";
  if (unit.empty()) return 1;
  const char letter = unit[0] == 'k' ? 'K' : unit[0];
  const size_t index = kPrefixes.find(letter);
  if (index == kPrefixes.npos) return 1;
  unit.remove_prefix(1);
  const bool binary = unit.starts_with('i');
  if (binary) unit.remove_prefix(1);
  return std::pow(binary ? 1024.0 : 1000.0, static_cast<double>(index + 1));
}

absl::StatusOr<int64_t> ParseWhole(std::string_view text, std::string_view unit,
                                   std::string_view expected) {
  const auto wrong = [&] { return InvalidArgument("\"{}\" is not {}", text, expected); };
  std::optional<Number> number = SplitNumber(text);
  if (!number || number->value < 0) return wrong();
  const double scale = TakePrefix(number->unit);
  if (!number->unit.empty() && number->unit != unit) return wrong();
  const double whole = std::round(number->value * scale);
  // 1.2G is whole although 1.2 is not a double; 1.5 is not.
  if (std::abs(whole - number->value * scale) > 1e-6 * std::max(1.0, std::abs(whole) * 1e-9)) {
    return InvalidArgument("\"{}\" is not a whole number; expected {}", text, expected);
  }
  if (whole >= static_cast<double>(std::numeric_limits<int64_t>::max())) {
    return InvalidArgument("\"{}\" is too large; at most 2^63 - 1 can be counted", text);
  }
  return static_cast<int64_t>(whole);
}

// `value` with four digits and the largest of the prefixes that keeps it at 1 or more.
std::string Scaled(double value, double first_scale, std::span<const std::string_view> units) {
  size_t index = 0;
  value /= first_scale;
  // 999.95 would be shown as 1000.
  while (index + 1 < units.size() && std::abs(value) >= 999.95) {
    value /= 1000;
    ++index;
  }
  return fmt::format("{:.4g}{}{}", value, units[index].empty() ? "" : " ", units[index]);
}

}  // namespace

absl::StatusOr<int64_t> ParseCount(std::string_view text) {
  return ParseWhole(text, "", "a count such as 1000 or 175G");
}

absl::StatusOr<int64_t> ParseBytes(std::string_view text) {
  return ParseWhole(text, "B", "a number of bytes such as 4, 64K, 1.2GB or 16MiB");
}

absl::StatusOr<double> ParseRate(std::string_view text) {
  std::optional<Number> number = SplitNumber(text);
  if (number && number->value > 0) {
    const double scale = TakePrefix(number->unit);
    const double rate = number->value * scale;
    if (number->unit == "B/s") return rate;
    if (number->unit == "bit/s") return rate / 8;
  }
  return InvalidArgument(
      "\"{}\" is not a rate above 0 such as 25Gbit/s (bits) or 400GB/s (bytes a second)", text);
}

absl::StatusOr<double> ParseSeconds(std::string_view text) {
  struct Unit {
    std::string_view name;
    double in_a_second;
  };
  constexpr Unit kUnits[] = {{"s", 1}, {"ms", 1e3}, {"us", 1e6}, {"ns", 1e9}};
  if (const std::optional<Number> number = SplitNumber(text); number && number->value >= 0) {
    for (const Unit& unit : kUnits) {
      if (number->unit == unit.name) return number->value / unit.in_a_second;
    }
  }
  return InvalidArgument("\"{}\" is not a time such as 100ns, 5us, 1.5ms or 2s", text);
}

std::string FormatCount(double count) {
  constexpr std::string_view kUnits[] = {"", "K", "M", "G", "T", "P", "E"};
  return Scaled(count, 1, kUnits);
}

std::string FormatBytes(double bytes) {
  constexpr std::string_view kUnits[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
  return Scaled(bytes, 1, kUnits);
}

std::string FormatRate(double bytes_per_second) { return FormatBytes(bytes_per_second) + "/s"; }

std::string FormatBitRate(double bytes_per_second) {
  constexpr std::string_view kUnits[] = {"bit/s", "Kbit/s", "Mbit/s", "Gbit/s", "Tbit/s", "Pbit/s"};
  return Scaled(8 * bytes_per_second, 1, kUnits);
}

std::string FormatSeconds(double seconds) {
  constexpr std::string_view kUnits[] = {"ns", "us", "ms", "s"};
  if (seconds == 0) return "0 s";
  if (seconds >= 999.95) return fmt::format("{:.0f} s", seconds);
  return Scaled(seconds, 1e-9, kUnits);
}

}  // namespace tutti::topology
