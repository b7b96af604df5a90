#pragma once

#include <vector>

#include "tutti/device/kernel_registry.h"
#include "tutti/graph/ops/elementwise_program.h"
#include "tutti/kernels/cpu/vector_loops.h"
#include "tutti/kernels/shape/broadcast.h"

namespace tutti {

// Runs a program of element-wise lines tile by tile. A tile is some hundred elements of the output;
// every line is one vector loop over it, and what a line leaves for later ones stays in the
// first-level cache. An input is read where it lies if it has every element, is handed to the loops
// as a scalar if it has one, and is else repeated into a buffer of the tile (or read where it lies,
// when the tile lies within one of its rows).
class FusedElementwiseKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override;
  absl::Status Compute(KernelContext& context) override;

 private:
  struct Source {  // an input, or a number of the program
    enum class Kind { kFull, kScalar, kRepeated };
    Kind kind = Kind::kFull;
    bool fill = false;  // a scalar that some line needs as an array
    int slot = -1;      // its buffer, when repeated or filled
    int last_line = -1;
    Broadcast broadcast;
    float number = 0;
  };
  struct Operand {
    bool is_line = false;
    int index = 0;  // of the line, or of the source
  };
  struct Line {
    const VectorLoops* loops = nullptr;
    VectorParams params;
    Operand operands[2];
    int count = 1;
    int slot = -1;
    int output = -1;  // of the node, or -1
    int last_line = -1;
  };
  struct Tile;

  absl::Status Classify(const Shape& output, std::span<const Shape> inputs);
  absl::Status AssignSlots();
  void RunRange(KernelContext& context, int64_t begin, int64_t end) const;
  void RunLine(const Line& line, const Tile& tile, float* to) const;

  std::vector<Source> sources_;  // the inputs first
  std::vector<Line> lines_;
  std::vector<int> output_lines_;
  std::vector<bool> staged_;  // by output: written to its buffer first, see Compute
  int num_inputs_ = 0;
  int64_t elements_ = 0;
  int64_t tile_ = 0;
  bool ready_ = false;
};

}  // namespace tutti
