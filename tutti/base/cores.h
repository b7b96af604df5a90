#pragma once

namespace tutti {

// The cores that the calling thread may run on, at least 1. A launcher or taskset may have left it
// fewer than the machine has, which std::thread::hardware_concurrency does not tell.
int UsableCores();

}  // namespace tutti
