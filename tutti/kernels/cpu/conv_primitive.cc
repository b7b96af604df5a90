#include "tutti/kernels/cpu/conv_primitive.h"

#include <cstring>

#include "tutti/base/checked.h"

namespace tutti {
namespace {

using dnnl::memory;
using onednn::AnyImageDesc;
using onednn::ImageDesc;
using onednn::Quality;

// oneDNN 2.6 writes whole vectors past its scratchpad where it gathers every other pixel of a 1x1
// convolution with an odd number of channels (found by the op sweep: Conv2DBackpropFilter, stride
// 2, 3 channels).
constexpr size_t kScratchpadSlack = 1024;

// What all three descriptors of oneDNN take beside the memory descriptors.
struct Geometry {
  memory::dims strides, dilations, pad_before, pad_after;
};

Geometry GeometryOf(const Window& window) {
  const WindowDim& h = window.height;
  const WindowDim& w = window.width;
  return {
      .strides = {h.stride, w.stride},
      .dilations = {h.dilation - 1, w.dilation - 1},
      // oneDNN wants the padding that the outputs use, not what the graph asked for.
      .pad_before = {h.pad_before, w.pad_before},
      .pad_after = {
          (h.output - 1) * h.stride + (h.window - 1) * h.dilation + 1 - h.input - h.pad_before,
          (w.output - 1) * w.stride + (w.window - 1) * w.dilation + 1 - w.input - w.pad_before}};
}

memory::dims FilterDims(const ConvProblem& p) {
  if (p.depthwise) return {p.filter[2], p.filter[3], 1, p.filter[0], p.filter[1]};
  return {p.filter[3], p.filter[2], p.filter[0], p.filter[1]};
}

// The filter as it lies in the tensor.
memory::desc FilterDesc(const ConvProblem& p) {
  const int64_t pixel = p.filter[2] * p.filter[3];
  const int64_t row = p.filter[1] * pixel;
  const memory::dims strides = p.depthwise ? memory::dims{p.filter[3], 1, 1, row, pixel}
                                           : memory::dims{1, p.filter[3], row, pixel};
  return memory::desc(FilterDims(p), memory::data_type::f32, strides);
}

memory::desc AnyFilterDesc(const ConvProblem& p) {
  return memory::desc(FilterDims(p), memory::data_type::f32, memory::format_tag::any);
}

memory::desc BiasDesc(const ConvProblem& p) {
  return memory::desc({p.y[3]}, memory::data_type::f32, memory::format_tag::x);
}

// What a primitive does last, by the name of the op. Wrong for NaN: see conv_activation.h.
void AppendActivation(const std::string& name, dnnl::post_ops& post_ops) {
  using dnnl::algorithm;
  if (name == "Relu") {
    post_ops.append_eltwise(1, algorithm::eltwise_relu, 0, 0);
  } else if (name == "Relu6") {
    post_ops.append_eltwise(1, algorithm::eltwise_clip, 0, 6);
  } else if (name == "Tanh") {
    post_ops.append_eltwise(1, algorithm::eltwise_tanh, 0, 0);
  } else if (name == "Sigmoid") {
    post_ops.append_eltwise(1, algorithm::eltwise_logistic, 0, 0);
  } else if (name == "Gelu") {
    post_ops.append_eltwise(1, algorithm::eltwise_gelu_erf, 0, 0);
  }
}

dnnl::primitive_attr AttrOf(const ConvProblem& p) {
  dnnl::primitive_attr attr = onednn::Attr();
  dnnl::post_ops post_ops;
  AppendActivation(p.activation, post_ops);
  attr.set_post_ops(post_ops);
  return attr;
}

// A primitive and the layouts it chose.
struct Choice {
  dnnl::primitive primitive;
  memory::desc x, filter, y, scratchpad;
  int quality = 0;
};

dnnl::convolution_forward::desc ForwardDesc(const ConvProblem& p, const memory::desc& x,
                                            const memory::desc& y, dnnl::prop_kind kind) {
  const Geometry g = GeometryOf(p.window);
  const auto direct = dnnl::algorithm::convolution_direct;
  if (p.has_bias) {
    return {kind, direct,    x,           AnyFilterDesc(p), BiasDesc(p),
            y,    g.strides, g.dilations, g.pad_before,     g.pad_after};
  }
  return {kind, direct, x, AnyFilterDesc(p), y, g.strides, g.dilations, g.pad_before, g.pad_after};
}

// The best implementation for images described by x and y, which may leave the choice to oneDNN.
Choice Choose(const ConvProblem& p, const memory::desc& x, const memory::desc& y) {
  const Geometry g = GeometryOf(p.window);
  const auto direct = dnnl::algorithm::convolution_direct;
  dnnl::engine& engine = onednn::Engine();
  if (p.direction == ConvDirection::kForward) {
    const dnnl::convolution_forward::primitive_desc pd(
        ForwardDesc(p, x, y, dnnl::prop_kind::forward_inference), AttrOf(p), engine);
    return {dnnl::convolution_forward(pd),
            pd.src_desc(),
            pd.weights_desc(),
            pd.dst_desc(),
            pd.scratchpad_desc(),
            Quality(pd.impl_info_str())};
  }
  const dnnl::convolution_forward::primitive_desc hint(
      ForwardDesc(p, x, y, dnnl::prop_kind::forward_training), engine);
  if (p.direction == ConvDirection::kBackwardData) {
    const dnnl::convolution_backward_data::primitive_desc pd(
        {direct, x, AnyFilterDesc(p), y, g.strides, g.dilations, g.pad_before, g.pad_after},
        onednn::Attr(), engine, hint);
    return {dnnl::convolution_backward_data(pd),
            pd.diff_src_desc(),
            pd.weights_desc(),
            pd.diff_dst_desc(),
            pd.scratchpad_desc(),
            Quality(pd.impl_info_str())};
  }
  const dnnl::convolution_backward_weights::primitive_desc pd(
      {direct, x, AnyFilterDesc(p), y, g.strides, g.dilations, g.pad_before, g.pad_after},
      onednn::Attr(), engine, hint);
  return {dnnl::convolution_backward_weights(pd),
          pd.src_desc(),
          pd.diff_weights_desc(),
          pd.diff_dst_desc(),
          pd.scratchpad_desc(),
          Quality(pd.impl_info_str())};
}

Choice ChooseForLayouts(const ConvProblem& p) {
  Choice given = Choose(p, ImageDesc(p.x, p.x_layout), ImageDesc(p.y, p.y_layout));
  if (given.quality > 0) return given;
  Choice free = Choose(p, AnyImageDesc(p.x), AnyImageDesc(p.y));
  return free.quality > 0 ? free : given;
}

}  // namespace

std::pair<Layout, Layout> FavouriteLayouts(const ConvProblem& problem) {
  std::pair<Layout, Layout> layouts;
  if (problem.x.elements() == 0 || problem.y.elements() == 0) return layouts;
  const absl::Status status = onednn::Guard([&] {
    const Choice choice = Choose(problem, AnyImageDesc(problem.x), AnyImageDesc(problem.y));
    if (choice.quality < 2) return;
    layouts.first = onednn::LayoutOf(choice.x).value_or(Layout());
    layouts.second = onednn::LayoutOf(choice.y).value_or(Layout());
  });
  return status.ok() ? layouts : std::pair<Layout, Layout>();
}

size_t ConvPrimitive::TakeScratch(size_t bytes) {
  const size_t offset = scratch_bytes_;
  scratch_bytes_ += size_t(RoundUp(int64_t(bytes), 64));
  return offset;
}

void ConvPrimitive::SetUp(Operand& operand, const memory::desc& outside, const memory::desc& inside,
                          bool is_result) {
  operand = {};
  operand.outside = memory(outside, onednn::Engine(), nullptr);
  operand.reordered = outside != inside;
  if (!operand.reordered) return;
  operand.inside = memory(inside, onednn::Engine(), nullptr);
  operand.offset = TakeScratch(inside.get_size());
  operand.reorder = is_result ? dnnl::reorder(operand.inside, operand.outside)
                              : dnnl::reorder(operand.outside, operand.inside);
}

absl::Status ConvPrimitive::Prepare(const ConvProblem& problem) {
  direction_ = problem.direction;
  scratch_bytes_ = 0;
  nothing_to_sum_ =
      problem.x.elements() == 0 || problem.y.elements() == 0 || problem.filter.elements() == 0;
  if (nothing_to_sum_) {
    const Shape& result = direction_ == ConvDirection::kForward        ? problem.y
                          : direction_ == ConvDirection::kBackwardData ? problem.x
                                                                       : problem.filter;
    zero_bytes_ = size_t(result.elements()) * sizeof(float);
    return absl::OkStatus();
  }
  return onednn::Guard([&] {
    const Choice choice = ChooseForLayouts(problem);
    primitive_ = choice.primitive;
    SetUp(x_, ImageDesc(problem.x, problem.x_layout), choice.x,
          direction_ == ConvDirection::kBackwardData);
    SetUp(filter_, FilterDesc(problem), choice.filter,
          direction_ == ConvDirection::kBackwardFilter);
    SetUp(y_, ImageDesc(problem.y, problem.y_layout), choice.y,
          direction_ == ConvDirection::kForward);
    const auto inside = [](const Operand& o) { return o.reordered ? o.inside : o.outside; };
    const bool data = direction_ == ConvDirection::kBackwardData;
    const bool filter = direction_ == ConvDirection::kBackwardFilter;
    const bool forward = direction_ == ConvDirection::kForward;
    scratchpad_ = memory(choice.scratchpad, onednn::Engine(), nullptr);
    scratchpad_offset_ = TakeScratch(choice.scratchpad.get_size() + kScratchpadSlack);
    args_ = {{data ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, inside(x_)},
             {filter ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, inside(filter_)},
             {forward ? DNNL_ARG_DST : DNNL_ARG_DIFF_DST, inside(y_)},
             {DNNL_ARG_SCRATCHPAD, scratchpad_}};
    if (problem.has_bias) {
      bias_ = memory(BiasDesc(problem), onednn::Engine(), nullptr);
      args_[DNNL_ARG_BIAS] = bias_;
    }
  });
}

absl::Status ConvPrimitive::Run(void* x, void* filter, void* y, const void* bias,
                                std::byte* scratch) {
  Operand* const operands[] = {&x_, &filter_, &y_};
  void* const data[] = {x, filter, y};
  const int result = direction_ == ConvDirection::kForward        ? 2
                     : direction_ == ConvDirection::kBackwardData ? 0
                                                                  : 1;
  if (nothing_to_sum_) {
    std::memset(data[result], 0, zero_bytes_);
    return absl::OkStatus();
  }
  return onednn::Guard([&] {
    dnnl::stream& stream = onednn::Stream();
    for (int i = 0; i < 3; ++i) {
      Operand& operand = *operands[i];
      operand.outside.set_data_handle(data[i]);
      if (!operand.reordered) continue;
      operand.inside.set_data_handle(scratch + operand.offset);
      if (i != result) operand.reorder.execute(stream, operand.outside, operand.inside);
    }
    scratchpad_.set_data_handle(scratch + scratchpad_offset_);
    if (bias != nullptr) bias_.set_data_handle(const_cast<void*>(bias));
    primitive_.execute(stream, args_);
    Operand& out = *operands[result];
    if (out.reordered) out.reorder.execute(stream, out.inside, out.outside);
  });
}

}  // namespace tutti
