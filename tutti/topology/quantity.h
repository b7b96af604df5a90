#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

// Quantities as people write them, on the command line and in files: a number, and behind it, with
// or without a space, a unit. K (or k), M, G, T and P are powers of 1000; Ki, Mi, Gi, Ti and Pi of
// 1024. Anything else is an INVALID_ARGUMENT that shows what stands there and what was expected.
namespace tutti::topology {

// "175G", "1000": a whole number, 0 or more.
absl::StatusOr<int64_t> ParseCount(std::string_view text);

// "4", "64K", "1.2G", "1.2 GB", "16MiB": whole bytes, 0 or more.
absl::StatusOr<int64_t> ParseBytes(std::string_view text);

// "25Gbit/s", "400GB/s": bytes a second, more than 0. The unit is needed.
absl::StatusOr<double> ParseRate(std::string_view text);

// "5us", "1.5 ms", "2s", "100ns": seconds, 0 or more. The unit is needed.
absl::StatusOr<double> ParseSeconds(std::string_view text);

// The other way, with up to four digits: "175 G", "2.16 GB", "25 GB/s", "200 Gbit/s", "10.8 s". The
// largest decimal unit that keeps the number at 1 or more is taken; zero is "0 B" and "0 s".
std::string FormatCount(double count);
std::string FormatBytes(double bytes);
std::string FormatRate(double bytes_per_second);
std::string FormatBitRate(double bytes_per_second);
std::string FormatSeconds(double seconds);

}  // namespace tutti::topology
