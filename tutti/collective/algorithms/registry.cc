#include <array>
#include <string>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/catalogue.h"

namespace tutti::collective {

std::span<const Algorithm> Algorithms() {
  // Made at the first call, so that it does not matter in which order the files are initialised.
  static const std::array all = {kExchange, kDirect,       kRing,   kHalvingDoubling,
                                 kTree,     kHierarchical, kCentral};
  return all;
}

absl::StatusOr<const Algorithm*> FindAlgorithm(std::string_view name) {
  for (const Algorithm& algorithm : Algorithms()) {
    if (algorithm.name == name) return &algorithm;
  }
  std::string names;
  for (const Algorithm& algorithm : Algorithms()) {
    names += names.empty() ? "" : ", ";
    names += algorithm.name;
  }
  return NotFound("there is no algorithm \"{}\"; there are {}", name, names);
}

}  // namespace tutti::collective
