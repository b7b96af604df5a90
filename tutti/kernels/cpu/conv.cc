// Convolutions in float32 by oneDNN.
//
// Filters lie in memory as HWIO; every fast implementation wants them in blocks of its own, so they
// are reordered in each run (3.4 us for 3x3x32x64, of 5,400 for the convolution). Images may come
// row-major or with channels in blocks of 8. oneDNN 2.6 has code for both on AVX2; blocked is the
// faster: on one core 32 -> 64 channels, 3x3, 14x14, batch 64 took 5.4 / 5.6 / 5.8 ms forward /
// input / filter against 5.8 / 5.6 / 6.6 row-major, and 64 -> 64 on 56x56, batch 8, 21 / 21 / 25
// against 30 / 28 / 34. So the kernel wishes for blocks (LayoutWish) and lives with either. Where
// oneDNN has nothing but its reference loops for the layout at hand (a one-channel image to
// row-major output), images are reordered inside the kernel, too.
#include <algorithm>
#include <cstring>

#include "tutti/base/checked.h"
#include "tutti/device/device.h"
#include "tutti/graph/ops/conv_window.h"
#include "tutti/kernels/cpu/bias.h"
#include "tutti/kernels/cpu/conv_activation.h"
#include "tutti/kernels/cpu/conv_few_channels.h"
#include "tutti/kernels/cpu/conv_primitive.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/shape/run_time_shape.h"

namespace tutti {
namespace {

// Where a node has its three tensors: an input's number, or kResult.
constexpr int kResult = -1;
struct Roles {
  ConvDirection direction;
  int x, filter, y;
};

constexpr Roles kForward = {ConvDirection::kForward, 0, 1, kResult};
constexpr Roles kBackpropInput = {ConvDirection::kBackwardData, kResult, 0, 1};
constexpr Roles kBackpropFilter = {ConvDirection::kBackwardFilter, 0, kResult, 1};
constexpr Roles kTranspose = {ConvDirection::kBackwardData, kResult, 1, 0};

const Shape& ShapeAt(int role, std::span<const ValueType> inputs,
                     std::span<const ValueType> outputs) {
  return role == kResult ? outputs[0].shape : inputs[role].shape;
}

absl::StatusOr<ConvProblem> ProblemOf(const Node& node, const Roles& roles, bool depthwise,
                                      std::span<const ValueType> inputs,
                                      std::span<const ValueType> outputs) {
  ConvProblem problem = {.direction = roles.direction,
                         .depthwise = depthwise,
                         .x = ShapeAt(roles.x, inputs, outputs),
                         .filter = ShapeAt(roles.filter, inputs, outputs),
                         .y = ShapeAt(roles.y, inputs, outputs)};
  TUTTI_ASSIGN_OR_RETURN(problem.window, ConvWindow(node, problem.x, problem.filter));
  if (const AttrValue* activation = node.FindAttr("activation")) {
    problem.activation = std::get<std::string>(*activation);
  }
  problem.has_bias = roles.direction == ConvDirection::kForward && inputs.size() == 3;
  return problem;
}

// The gradient of a filter over few input channels, without oneDNN. Images are summed in a fixed
// number of parts, and the parts in order, whatever the cores.
class FewChannelsKernel final : public Kernel {
 public:
  // Null where oneDNN is the better choice.
  static std::unique_ptr<FewChannelsKernel> For(const ConvProblem& problem) {
    auto kernel = std::make_unique<FewChannelsKernel>();
    kernel->conv_ = {.window = problem.window,
                     .batch = problem.x[0],
                     .in_channels = problem.x[3],
                     .out_channels = problem.y[3],
                     .channel_block = onednn::ChannelBlock(problem.y_layout)};
    const bool fits = problem.direction == ConvDirection::kBackwardFilter && !problem.depthwise &&
                      problem.x.elements() > 0 && problem.y.elements() > 0 &&
                      problem.x_layout.row_major() && PrefersFewChannels(kernel->conv_);
    return fits ? std::move(kernel) : nullptr;
  }

  size_t scratch_bytes() const { return size_t(Parts() * conv_.filter_size()) * sizeof(float); }

  absl::Status Compute(KernelContext& ctx) override {
    const int64_t size = conv_.filter_size();
    const int64_t parts = Parts();
    const int64_t images = DivideRoundUp(conv_.batch, parts);
    float* sums = reinterpret_cast<float*>(ctx.scratch().data());
    std::memset(sums, 0, size_t(parts * size) * sizeof(float));
    ctx.team().ParallelFor(parts, 1, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        AddFilterGradient(conv_, ctx.input(0).data<float>(), ctx.input(1).data<float>(),
                          sums + p * size, p * images, std::min(conv_.batch, (p + 1) * images));
      }
    });
    float* filter = ctx.output(0).data<float>();
    for (int64_t i = 0; i < size; ++i) {
      float sum = 0;
      for (int64_t p = 0; p < parts; ++p) sum += sums[p * size + i];
      filter[i] = sum;
    }
    return absl::OkStatus();
  }

 private:
  int64_t Parts() const { return std::min<int64_t>(conv_.batch, 8); }
  FewChannelsConv conv_;
};

class ConvKernel final : public Kernel {
 public:
  ConvKernel(const Roles& roles, bool depthwise) : roles_(roles), depthwise_(depthwise) {}

  absl::Status Prepare(PrepareContext& ctx) override {
    const auto type = [&](int role) -> const ValueType& {
      return role == kResult ? ctx.output(0) : ctx.input(role);
    };
    const auto layout = [&](int role) {
      return role == kResult ? ctx.output_layout(0) : ctx.input_layout(role);
    };
    for (const int role : {roles_.x, roles_.filter, roles_.y}) {
      if (!type(role).shape.IsFullyKnown()) return absl::OkStatus();  // comes again when known
    }
    std::vector<ValueType> inputs;
    for (int i = 0; i < ctx.num_inputs(); ++i) inputs.push_back(ctx.input(i));
    TUTTI_ASSIGN_OR_RETURN(ConvProblem problem, ProblemOf(ctx.node(), roles_, depthwise_, inputs,
                                                          std::span(&ctx.output(0), 1)));
    problem.x_layout = layout(roles_.x);
    problem.y_layout = layout(roles_.y);
    few_channels_ = FewChannelsKernel::For(problem);
    if (few_channels_ != nullptr) {
      ctx.SetScratchBytes(few_channels_->scratch_bytes());
      return absl::OkStatus();
    }
    careful_ = problem.activation.empty() ? nullptr : std::make_unique<ConvActivation>(problem);
    TUTTI_RETURN_IF_ERROR(primitive_.Prepare(problem));
    ctx.SetScratchBytes(primitive_.scratch_bytes());
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& ctx) override {
    if (few_channels_ != nullptr) return few_channels_->Compute(ctx);
    if (careful_ != nullptr && careful_->MayOverflow(ctx)) return careful_->Compute(ctx);
    const auto data = [&](int role) -> void* {
      return role == kResult ? ctx.output(0).raw() : const_cast<void*>(ctx.input(role).raw());
    };
    const void* bias = ctx.num_inputs() == 3 && roles_.direction == ConvDirection::kForward
                           ? ctx.input(2).raw()
                           : nullptr;
    return primitive_.Run(data(roles_.x), data(roles_.filter), data(roles_.y), bias,
                          ctx.scratch().data());
  }

 private:
  const Roles roles_;
  const bool depthwise_;
  ConvPrimitive primitive_;
  std::unique_ptr<ConvActivation> careful_;          // with an activation, for values that it bends
  std::unique_ptr<FewChannelsKernel> few_channels_;  // in place of the primitive, where it is set
};

LayoutWish Wish(const Node& node, const Roles& roles, bool depthwise,
                std::span<const ValueType> inputs, std::span<const ValueType> outputs) {
  LayoutWish wish = {std::vector<Layout>(inputs.size()), std::vector<Layout>(outputs.size())};
  const auto problem = ProblemOf(node, roles, depthwise, inputs, outputs);
  if (!problem.ok()) return wish;
  const auto at = [&](int role) -> Layout& {
    return role == kResult ? wish.outputs[0] : wish.inputs[role];
  };
  if (roles.direction == ConvDirection::kBackwardFilter) {
    // Without oneDNN the gradient is taken as it comes: mostly as the convolution has left y.
    ConvProblem forward = *problem, few_channels = *problem;
    forward.direction = ConvDirection::kForward;
    few_channels.y_layout = FavouriteLayouts(forward).second;
    if (FewChannelsKernel::For(few_channels) != nullptr) {
      at(roles.y) = few_channels.y_layout;
      return wish;
    }
  }
  const auto [x, y] = FavouriteLayouts(*problem);
  if (roles.x != roles.filter) at(roles.x) = x;
  if (roles.y != roles.filter) at(roles.y) = y;
  return wish;
}

void Add(KernelRegistry& registry, std::string op, const Roles& roles, bool depthwise,
         bool shape_is_input) {
  registry.Add({.op = std::move(op),
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [=]() -> std::unique_ptr<Kernel> {
                  auto kernel = std::make_unique<ConvKernel>(roles, depthwise);
                  if (!shape_is_input) return kernel;
                  return WithRunTimeShape(std::move(kernel), 2);
                },
                .layout_wish =
                    [=](const Node& node, std::span<const ValueType> inputs,
                        std::span<const ValueType> outputs) {
                      return Wish(node, roles, depthwise, inputs, outputs);
                    }});
}

}  // namespace

void RegisterConvCpuKernels(KernelRegistry& registry) {
  Add(registry, "Conv2D", kForward, false, false);
  Add(registry, "Conv2DBackpropInput", kBackpropInput, false, true);
  Add(registry, "Conv2DBackpropFilter", kBackpropFilter, false, true);
  Add(registry, "DepthwiseConv2D", kForward, true, false);
  Add(registry, "DepthwiseConv2DBackpropInput", kBackpropInput, true, true);
  Add(registry, "DepthwiseConv2DBackpropFilter", kBackpropFilter, true, true);
  Add(registry, "Conv2DTranspose", kTranspose, false, false);
  Add(registry, "_FusedConv2D", kForward, false, false);
  RegisterBiasCpuKernels(registry);
}

}  // namespace tutti
