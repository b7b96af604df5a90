#pragma once

#include <string_view>

#include "tutti/graph/graph.h"

namespace tutti::placement {

// What limits a node: kinds of work whose speed is measured apart.
enum class WorkKind {
  kNone,         // has its value before the step, or is a view: takes no time
  kMatrix,       // products of matrices: multiplications and additions
  kConvolution,  // the same, of images
  kElementwise,  // a pass over memory with cheap arithmetic: Add, Relu, updates
  kFunction,     // a pass with costly arithmetic: Exp, Tanh, Gelu, Softmax
  kReduction,    // a pass that reads more than it writes: Sum, norms, pooling
  kCopy,         // copies of long pieces: Concat, Split, Slice
  kMovement,     // copies of short ones: Transpose, Gather
  kRandom,       // drawing random numbers
  kOther,        // what no table has: taken as plain loops over memory
};
inline constexpr int kWorkKinds = 10;

std::string_view NameOf(WorkKind kind);  // "matrix"

// What a node does, from its op and shapes: nothing about a machine.
struct NodeWork {
  WorkKind kind = WorkKind::kNone;
  double operations = 0;    // floating-point, of kMatrix and kConvolution
  double read_bytes = 0;    // of all inputs; of a table, the rows that are touched
  double write_bytes = 0;   // of all outputs, likewise
  double output_bytes = 0;  // that others may want; a view has those of its input
  bool known = true;        // false: some shape is not; unknown dimensions count as kAssumedDim
};

// What an unknown dimension counts as.
inline constexpr int64_t kAssumedDim = 32;

// Bytes of a value; unknown dimensions count as kAssumedDim.
double BytesOf(const ValueType& type);

// Of If, the heavier branch; of While, kAssumedIterations times its body and condition.
inline constexpr double kAssumedIterations = 10;
NodeWork WorkOf(const Node& node);

// The input whose producer the passes would fuse with the node if that input has no other reader:
// input 0 of a pass over memory that follows a product, a convolution or another such pass; the
// gradient of a plain descent step that follows a product. -1: none.
int JoinedInput(const Node& node);

}  // namespace tutti::placement
