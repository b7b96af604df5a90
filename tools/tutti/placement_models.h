#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/tutti/models.h"

namespace tutti::tools {

// The models on which predictions are compared with the clock. None was used to calibrate the cost
// model.
//
//   mlp-small, mlp-large, cnn, transformer   those of the step benchmark, at half or twice its
//   batch resnet         6 convolutions with two connections around pairs of them, 16x16x32; batch
//   16 lstm           a cell of 128 units, unrolled 20 times; batch 16 click          a look-up of
//   26 of 10,000 rows, then dense layers of 256 and 128; batch 128 two-towers     two towers of
//   three dense layers of 512; batch 256 mlp-narrow     20 layers of 48 units; batch 64
//   transformer-4  4 encoder blocks, width 128, 4 heads, sequence 64; batch 4
//   two-branches   two chains of 6 dense layers of 512 that meet at the end; batch 256
std::vector<std::string_view> PlacementModelNames();

// REQUIRES: `model` is one of them.
StepModel MakePlacementModel(std::string_view model);

}  // namespace tutti::tools
