#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/graph/attr.h"
#include "tutti/graph/text/scanner.h"

// Attribute values as text, all but subgraphs.
//
//   bool true | int -3 | float 0.5, inf, nan, nan:7ff8000000000001 (another NaN's bits)
//   string "a\n" | dtype float32 | shape [?, 3], [], [...] | ints [1, 2] | floats [0.5] | strings
//   ["a"] tensor float32 [2] {1, 2} | float32 [64] {0, ...} (all equal) | float32 [99] base64 "..."
//   | none
//
// The type comes from the op's definition. The notes of compiler passes ("_name") are declared
// nowhere: those whose type the value does not show have the type in front ("_dims=ints [1]").
namespace tutti {

// "{0, ...}" lets a short text ask for much memory. All those of one text together may have as many
// bytes; what is beyond is written in full.
inline constexpr int64_t kRepeatedBytes = int64_t{256} << 20;

// `declared`: the op declares the attribute, so that its type goes without saying.
// `repeated_bytes` counts towards kRepeatedBytes. REQUIRES: no subgraph.
void AppendValue(const AttrValue& value, bool declared, int64_t& repeated_bytes, std::string& text);

// A value of the declared type, or of the type it shows.
absl::StatusOr<AttrValue> ParseValue(TextScanner& scanner, std::optional<AttrType> declared,
                                     int64_t& repeated_bytes);

absl::StatusOr<Shape> ParseShape(TextScanner& scanner);
absl::StatusOr<int64_t> ParseInt(TextScanner& scanner);

}  // namespace tutti
