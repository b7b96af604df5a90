#pragma once

#include <string_view>

#include "tutti/graph/input.h"

namespace tutti::nn {

// What a layer does with its result.
enum class Activation {
  kLinear,  // nothing
  kRelu,
  kRelu6,
  kLeakyRelu,
  kElu,
  kGelu,
  kSigmoid,
  kTanh,
  kSoftplus,
};

// So that options read {.activation = nn::kRelu}.
inline constexpr Activation kLinear = Activation::kLinear;
inline constexpr Activation kRelu = Activation::kRelu;
inline constexpr Activation kRelu6 = Activation::kRelu6;
inline constexpr Activation kLeakyRelu = Activation::kLeakyRelu;
inline constexpr Activation kElu = Activation::kElu;
inline constexpr Activation kGelu = Activation::kGelu;
inline constexpr Activation kSigmoid = Activation::kSigmoid;
inline constexpr Activation kTanh = Activation::kTanh;
inline constexpr Activation kSoftplus = Activation::kSoftplus;

// The activation of x, with the default parameters of its op; x itself for kLinear.
Output Activate(Input x, Activation activation, std::string_view name = "");

}  // namespace tutti::nn
