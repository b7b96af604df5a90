#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tutti {

// The one of `names` that `word` is most likely a misspelling of: at most two letters were left
// out, added, changed or swapped with the next. Empty if there is none.
std::string LikelyMeant(std::string_view word, std::span<const std::string> names);

}  // namespace tutti
