#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/tutti/models.h"

namespace tutti::tools {

// The models on which predictions are compared with the clock. None was used to calibrate the cost
// model.
//
// - mlp-small, mlp-large, cnn, resnet, lstm, transformer, transformer-4: models of the step
//   benchmark (models.h), at half or twice its batch
// - click: a look-up of 26 of 10,000 rows, then dense layers of 256 and 128; batch 128
// - two-towers: that of examples/two_towers.cc, two towers of three dense layers; batch 256
// - mlp-narrow: 20 layers of 48 units; batch 64
// - two-branches: two chains of 6 dense layers of 512 that meet at the end; batch 256
std::vector<std::string_view> PlacementModelNames();

// REQUIRES: `model` is one of them.
StepModel MakePlacementModel(std::string_view model);

// The two towers with coarse groups on devices of one's choice: the three layers of the user's
// tower, the three of the item's, and the loss, each with its variables, gradients and updates.
// `devices` has kTowerGroups numbers, or none: nobody places anything.
inline constexpr int kTowerGroups = 7;
StepModel MakeTwoTowers(std::span<const int> devices);

}  // namespace tutti::tools
