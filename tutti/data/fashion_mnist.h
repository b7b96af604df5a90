#pragma once

#include <array>
#include <string>
#include <string_view>

#include "tutti/tensor/tensor.h"

// Fashion-MNIST: 60,000 training and 10,000 test images of clothes, 28 x 28 grey values, in 10
// classes.
namespace tutti {

inline constexpr std::array<std::string_view, 10> kFashionMnistClasses = {
    "T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot"};

struct LabeledImages {
  Tensor images;  // uint8 [count, 28, 28, 1]
  Tensor labels;  // int32 [count], 0..9
};

struct FashionMnist {
  LabeledImages train;
  LabeledImages test;
};

// The folder that holds the four files: $TUTTI_DATA or its subfolder fashion-mnist when the
// variable is set, else where Debian's package dataset-fashion-mnist puts them. Throws Error
// (kNotFound), saying where it looked and what to install.
std::string FindFashionMnist();

// Reads the four IDX files, plain or gzipped, from `folder` (empty: FindFashionMnist()). Throws
// Error when a file is missing or does not hold what it should.
FashionMnist LoadFashionMnist(const std::string& folder = "");

}  // namespace tutti
