#pragma once

#include <cstdint>

#include "tutti/graph/ops/window.h"

// The inner loops of pooling, by Highway for the machine at hand. Memory is [images, height, width,
// inner]: for NHWC inner is the channels; with channels in blocks of 8, every block counts as an
// image of its own with inner = 8. Each function works on images [begin, end). Thread-safe.
namespace tutti {

void MaxPoolImages(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
                   int64_t end);
void AvgPoolImages(const Window& window, int64_t inner, const float* x, float* y, int64_t begin,
                   int64_t end);
// Gives dy to the first element of each window that equals y.
void MaxPoolGradImages(const Window& window, int64_t inner, const float* x, const float* y,
                       const float* dy, float* dx, int64_t begin, int64_t end);
// MaxPoolImages that also notes where in its window, counted row by row, each maximum was, and the
// gradient that needs nothing else. REQUIRES: the window has at most kMostPoolPositions elements.
void MaxPoolWithPositionsImages(const Window& window, int64_t inner, const float* x, float* y,
                                uint8_t* positions, int64_t begin, int64_t end);
void MaxPoolGradWithPositionsImages(const Window& window, int64_t inner, const uint8_t* positions,
                                    const float* dy, float* dx, int64_t begin, int64_t end);
void AvgPoolGradImages(const Window& window, int64_t inner, const float* dy, float* dx,
                       int64_t begin, int64_t end);

}  // namespace tutti
