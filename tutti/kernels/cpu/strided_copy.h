#pragma once

#include "tutti/kernels/shape/strided_copy.h"

namespace tutti {

// Copies by whole runs where elements lie side by side, and by square tiles where rows become
// columns; on all cores of the team.
void FastStridedCopy(const Team& team, const StridedCopy& copy, size_t size, const std::byte* from,
                     std::byte* to);

}  // namespace tutti
