#pragma once

namespace tutti::tools {

// Prints what a training would find here: cores, SIMD, memory, libraries, data, and how it would
// launch. True when nothing stands in the way of `make demo`.
bool Doctor();

}  // namespace tutti::tools
