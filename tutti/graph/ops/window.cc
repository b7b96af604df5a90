#include "tutti/graph/ops/window.h"

#include <algorithm>

#include "tutti/base/checked.h"
#include "tutti/tensor/shape.h"

namespace tutti {
namespace {

// Sizes, strides and the like stay below this, so that sums and products of two of them fit.
constexpr int64_t kLargest = int64_t{1} << 31;

absl::Status CheckPair(std::string_view what, std::span<const int64_t> values) {
  if (values.size() != 2 || values[0] < 1 || values[1] < 1 || values[0] >= kLargest ||
      values[1] >= kLargest) {
    return InvalidArgument("{} must be two numbers from 1 on, [height, width]; got {}", what,
                           Shape::Make(values) ? Shape(values).ToString() : "other numbers");
  }
  return absl::OkStatus();
}

absl::Status CheckAttrs(const WindowAttrs& attrs) {
  TUTTI_RETURN_IF_ERROR(CheckPair("strides", attrs.strides));
  TUTTI_RETURN_IF_ERROR(CheckPair("dilations", attrs.dilations));
  if (attrs.padding != "SAME" && attrs.padding != "VALID" && attrs.padding != "EXPLICIT") {
    return InvalidArgument("padding must be SAME, VALID or EXPLICIT; got \"{}\"", attrs.padding);
  }
  const size_t pads = attrs.padding == "EXPLICIT" ? 4 : 0;
  if (attrs.pads.size() != pads) {
    return InvalidArgument("{} numbers in pads; padding {} takes {}", attrs.pads.size(),
                           attrs.padding, pads == 4 ? "4: top, bottom, left, right" : "none");
  }
  for (const int64_t pad : attrs.pads) {
    if (pad < 0 || pad >= kLargest)
      return InvalidArgument("pads holds {}; it must be 0 or more", pad);
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(std::string_view axis, int64_t size, int64_t window) {
  if (window == 0) return InvalidArgument("the window's {} is 0; it must be 1 or more", axis);
  if (size >= kLargest || window >= kLargest) {
    return InvalidArgument("{} {} with a window of {} is larger than 2^31 - 1", axis, size, window);
  }
  return absl::OkStatus();
}

WindowDim Along(const WindowAttrs& attrs, int axis, int64_t window) {
  WindowDim dim = {
      .window = window, .stride = attrs.strides[axis], .dilation = attrs.dilations[axis]};
  if (!attrs.pads.empty()) {
    dim.pad_before = attrs.pads[2 * axis];
    dim.pad_after = attrs.pads[2 * axis + 1];
  }
  return dim;
}

// How many inputs a window spans. Fits: both factors are below 2^31.
int64_t Extent(const WindowDim& dim) { return (dim.window - 1) * dim.dilation + 1; }

void PadSame(WindowDim& dim) {
  const int64_t missing =
      std::max<int64_t>((dim.output - 1) * dim.stride + Extent(dim) - dim.input, 0);
  dim.pad_before = missing / 2;
  dim.pad_after = missing - missing / 2;
}

absl::StatusOr<WindowDim> Resolve(const WindowAttrs& attrs, std::string_view axis_name, int axis,
                                  int64_t input, int64_t window) {
  TUTTI_RETURN_IF_ERROR(CheckSizes(axis_name, input, window));
  WindowDim dim = Along(attrs, axis, window);
  dim.input = input;
  dim.output = kUnknownDim;
  if (input == kUnknownDim || (window == kUnknownDim && attrs.padding != "SAME")) return dim;
  if (attrs.padding == "SAME") {
    dim.output = DivideRoundUp(input, dim.stride);
    if (window != kUnknownDim && dim.output > 0) PadSame(dim);
    return dim;
  }
  const int64_t room = input + dim.pad_before + dim.pad_after - Extent(dim);
  if (room < 0) {
    return InvalidArgument(
        "a window of {} {} (dilation {}) does not fit into {} {} with padding {}; pad more, or use "
        "SAME",
        axis_name, window, dim.dilation, axis_name, input, attrs.padding);
  }
  dim.output = room / dim.stride + 1;
  return dim;
}

absl::StatusOr<WindowDim> ResolveTransposed(const WindowAttrs& attrs, std::string_view axis_name,
                                            int axis, int64_t output, int64_t window) {
  TUTTI_RETURN_IF_ERROR(CheckSizes(axis_name, output, window));
  WindowDim dim = Along(attrs, axis, window);
  dim.output = output;
  dim.input = kUnknownDim;
  if (output == kUnknownDim || (window == kUnknownDim && attrs.padding != "SAME")) return dim;
  if (attrs.padding == "SAME") {
    dim.input = output * dim.stride;
    if (window != kUnknownDim && output > 0) PadSame(dim);
    return dim;
  }
  dim.input =
      output == 0 ? 0 : (output - 1) * dim.stride + Extent(dim) - dim.pad_before - dim.pad_after;
  if (dim.input < 0) {
    return InvalidArgument("pads {} and {} are more than the {} {} that the windows span",
                           dim.pad_before, dim.pad_after, axis_name,
                           dim.input + dim.pad_before + dim.pad_after);
  }
  return dim;
}

}  // namespace

std::string_view NameOf(Padding padding) {
  switch (padding) {
    case Padding::kSame:
      return "SAME";
    case Padding::kValid:
      return "VALID";
    case Padding::kExplicit:
      break;
  }
  return "EXPLICIT";
}

absl::StatusOr<Window> ResolveWindow(const WindowAttrs& attrs, int64_t height, int64_t width,
                                     int64_t window_height, int64_t window_width) {
  TUTTI_RETURN_IF_ERROR(CheckAttrs(attrs));
  Window window;
  TUTTI_ASSIGN_OR_RETURN(window.height, Resolve(attrs, "height", 0, height, window_height));
  TUTTI_ASSIGN_OR_RETURN(window.width, Resolve(attrs, "width", 1, width, window_width));
  return window;
}

absl::StatusOr<Window> ResolveTransposedWindow(const WindowAttrs& attrs, int64_t output_height,
                                               int64_t output_width, int64_t window_height,
                                               int64_t window_width) {
  TUTTI_RETURN_IF_ERROR(CheckAttrs(attrs));
  Window window;
  TUTTI_ASSIGN_OR_RETURN(window.height,
                         ResolveTransposed(attrs, "height", 0, output_height, window_height));
  TUTTI_ASSIGN_OR_RETURN(window.width,
                         ResolveTransposed(attrs, "width", 1, output_width, window_width));
  return window;
}

}  // namespace tutti
