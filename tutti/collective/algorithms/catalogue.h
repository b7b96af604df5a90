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
extern const Algorithm kParameterServer;

}  // namespace tutti::collective
