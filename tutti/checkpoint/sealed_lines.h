#pragma once

#include <string>
#include <string_view>

#include "tutti/base/status.h"

namespace tutti::checkpoint {

// Appends a member "lines_crc32c" to a JSON object that is written line by line: the CRC32C of each
// line of `body`, which is the object without its closing brace, each line ended by a newline. So a
// damaged line can be named.
std::string SealLines(std::string_view body);

// Finds the first line whose checksum is wrong. OK, DATA_LOSS with its number and what it is about
// (`line 4 ("step")`), or DATA_LOSS when there are no checksums at all.
absl::Status CheckSeal(std::string_view text);

}  // namespace tutti::checkpoint
