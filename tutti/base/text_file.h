#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tutti {

// Writes `text` to `path`, replacing a file that is there. The error says what failed and why (a
// full disk, no such folder); a file that could not be written whole is removed. `path` may be a
// device or a pipe.
absl::Status WriteTextFile(const std::string& path, std::string_view text);

// Whether `path` can be written to, as far as can be told before: to be asked before work is spent
// on what should go there. Leaves an empty file if there was none.
absl::Status CheckWritable(const std::string& path);

}  // namespace tutti
