#pragma once

#include <string>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/graph/ops/window.h"
#include "tutti/kernels/cpu/onednn.h"

namespace tutti {

enum class ConvDirection {
  kForward,         // x, filter -> y
  kBackwardData,    // filter, y -> x
  kBackwardFilter,  // x, y -> filter
};

// A convolution of concrete size: x is NHWC, filter HWIO (HWC and multiplier for depthwise), y
// NHWC.
struct ConvProblem {
  ConvDirection direction = ConvDirection::kForward;
  bool depthwise = false;
  Shape x, filter, y;
  Layout x_layout, y_layout;
  Window window;
  // Forward only: + bias [out], then an activation by name, "" for none.
  bool has_bias = false;
  std::string activation = {};
};

// The layouts of x and y that oneDNN is fastest with.
std::pair<Layout, Layout> FavouriteLayouts(const ConvProblem& problem);

// One direction of a convolution, ready to run: oneDNN's primitive and the reorders around it. Not
// thread-safe.
class ConvPrimitive {
 public:
  absl::Status Prepare(const ConvProblem& problem);
  size_t scratch_bytes() const { return scratch_bytes_; }
  // The tensor that the direction computes is written, the others are read. bias: null without one.
  absl::Status Run(void* x, void* filter, void* y, const void* bias, std::byte* scratch);

 private:
  // One of the three tensors: as it lies outside, and as the primitive wants it.
  struct Operand {
    dnnl::memory outside;
    dnnl::memory inside;
    dnnl::reorder reorder;  // empty when both are one
    size_t offset = 0;      // of `inside` in the scratch memory
    bool reordered = false;
  };
  void SetUp(Operand& operand, const dnnl::memory::desc& outside, const dnnl::memory::desc& inside,
             bool is_result);
  size_t TakeScratch(size_t bytes);

  ConvDirection direction_ = ConvDirection::kForward;
  size_t zero_bytes_ = 0;  // nothing to sum: the result is this many zero bytes
  bool nothing_to_sum_ = false;
  dnnl::primitive primitive_;
  Operand x_, filter_, y_;
  dnnl::memory bias_;
  dnnl::memory scratchpad_;
  size_t scratchpad_offset_ = 0;
  std::unordered_map<int, dnnl::memory> args_;
  size_t scratch_bytes_ = 0;
};

}  // namespace tutti
