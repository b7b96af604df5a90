#pragma once

#include "tutti/collective/algorithms/algorithm.h"

// One entry per file of this folder; the essay at the head of the file explains it.
namespace tutti::collective {

extern const Algorithm kExchange;
extern const Algorithm kDirect;
extern const Algorithm kRing;
extern const Algorithm kHalvingDoubling;
extern const Algorithm kTree;
extern const Algorithm kHierarchical;
extern const Algorithm kCentral;

// The variant of kCentral with so many servers: among the workers, or the last ranks, which then
// bring no data.
constexpr int CentralVariant(int servers, bool own_hosts = false) {
  return 2 * servers + (own_hosts ? 1 : 0);
}

}  // namespace tutti::collective
