#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/op_def.h"

// The little language of the op _FusedElementwise: a list of lines, each one element-wise op on
// float32 values. $i is an input of the node, %i the result of line i, and a number is itself;
// after the operands come the op's constants (alpha, the bounds of Clip).
//
//   Add $0 $1
//   LeakyRelu %0 0.2
//   Mul %1 0.5
//
// Attribute "outputs" names the lines whose results are the node's outputs. All inputs broadcast to
// one shape, which every output has.
namespace tutti {

struct ElementwiseOp {
  std::string_view name;  // of the op; GeluTanh and GeluTanhGrad for the approximate Gelu
  int operands = 1;
  int constants = 0;
  bool broadcasts = false;  // takes operands of different shapes, so also numbers
};

// Null when the language does not have it.
const ElementwiseOp* FindElementwiseOp(std::string_view name);

struct ElementwiseOperand {
  enum class Kind { kInput, kLine, kNumber };
  Kind kind = Kind::kNumber;
  int index = 0;
  float number = 0;
};

struct ElementwiseLine {
  const ElementwiseOp* op = nullptr;
  std::array<ElementwiseOperand, 2> operands = {};
  std::array<float, 2> constants = {};
  std::string ToString() const;
};

// At most this many lines make a program.
inline constexpr int kMostElementwiseLines = 256;

// An INVALID_ARGUMENT that names the line when it is not understood, or takes an input or a result
// that does not exist.
absl::StatusOr<std::vector<ElementwiseLine>> ParseElementwiseProgram(
    std::span<const std::string> program, int num_inputs);

}  // namespace tutti
