#pragma once

#include <string_view>

namespace tutti::topology {

// The number of the first line of a TOML text, from 1, on which a key has more than `depth` parts
// ("a.b.c" has three) or brackets are open more than `depth` deep; 0 if there is none. Looks at the
// text alone, in one pass and without recursion, so it can be asked before a parser that recurses.
// Text that is no TOML gets some answer, and it is the parser's to refuse.
int LineNestedDeeperThan(int depth, std::string_view text);

}  // namespace tutti::topology
