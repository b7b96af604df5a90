#pragma once

#include <string>

#include "tutti/graph/random_graph.h"

namespace tutti {

// Damaged input for tests: bits flipped, bytes changed, cut off, cut out, doubled and moved.
inline std::string Mutate(std::string bytes, RandomGraph& random) {
  for (int64_t i = random.Below(4); i >= 0 && !bytes.empty(); --i) {
    const auto at = size_t(random.Below(int64_t(bytes.size())));
    const auto length = size_t(random.Below(16)) + 1;
    switch (random.Below(6)) {
      case 0:
        bytes[at] = char(bytes[at] ^ (1 << random.Below(8)));
        break;
      case 1:
        bytes[at] = char(random.Bits());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, length);
        break;
      case 4:
        bytes.insert(at, bytes.substr(at, length));
        break;
      default:
        bytes.insert(at, bytes.substr(size_t(random.Below(int64_t(bytes.size()))), length));
    }
  }
  return bytes;
}

}  // namespace tutti
