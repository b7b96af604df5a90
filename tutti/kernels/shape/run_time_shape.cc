#include "tutti/kernels/shape/run_time_shape.h"

#include "tutti/device/device.h"
#include "tutti/graph/build.h"

namespace tutti {
namespace {

class RunTimeShapeKernel final : public Kernel {
 public:
  RunTimeShapeKernel(std::unique_ptr<Kernel> inner, int shape_input)
      : inner_(std::move(inner)), shape_input_(shape_input) {}

  absl::Status Prepare(PrepareContext& ctx) override {
    planned_ = ctx.output(0).shape.IsFullyKnown();
    prepared_for_.clear();
    return planned_ ? inner_->Prepare(ctx) : absl::OkStatus();
  }

  absl::Status Compute(KernelContext& ctx) override {
    if (planned_) return inner_->Compute(ctx);
    TUTTI_ASSIGN_OR_RETURN(const ValueType output, OutputType(ctx));
    TUTTI_RETURN_IF_ERROR(ctx.AllocateOutput(0, output.shape));
    std::vector<ValueType> types;
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      types.push_back({ctx.input(i).dtype(), ctx.input(i).shape()});
    }
    types.push_back(output);
    if (types != prepared_for_) {
      prepared_for_.clear();  // until all of this has succeeded `inner_` is fit for no shapes
      PrepareContext prepare(*ctx.node, ctx.device(), std::span(types).first(types.size() - 1),
                             std::span(types).last(1));
      TUTTI_RETURN_IF_ERROR(inner_->Prepare(prepare));
      TUTTI_ASSIGN_OR_RETURN(
          scratch_, ctx.device().pool().Allocate(kUInt8, Shape{int64_t(prepare.scratch_bytes())}));
      prepared_for_ = types;
    }
    KernelContext with_scratch = ctx;
    with_scratch.SetScratch({static_cast<std::byte*>(scratch_.raw()), scratch_.bytes()});
    return inner_->Compute(with_scratch);
  }

 private:
  // What the shape function says once the shape's value is known to it; its errors are the node's.
  absl::StatusOr<ValueType> OutputType(const KernelContext& ctx) const {
    Graph graph;
    NodeSpec spec = ctx.node->spec();
    spec.control_inputs.clear();
    spec.name.clear();
    for (int i = 0; i < ctx.num_inputs(); ++i) {
      NodeSpec source;
      if (i == shape_input_) {
        source = {.op = "Constant", .attrs = {{"value", ctx.input(i)}}};
      } else {
        source = {.op = "Arg",
                  .attrs = {{"dtype", ctx.input(i).dtype()}, {"shape", ctx.input(i).shape()}}};
      }
      TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(graph, std::move(source)));
      spec.inputs[i] = node->output();
    }
    TUTTI_ASSIGN_OR_RETURN(Node * node, AddNode(graph, std::move(spec)));
    return node->type(0);
  }

  const std::unique_ptr<Kernel> inner_;
  const int shape_input_;
  bool planned_ = false;
  std::vector<ValueType> prepared_for_;
  Tensor scratch_;
};

}  // namespace

std::unique_ptr<Kernel> WithRunTimeShape(std::unique_ptr<Kernel> inner, int shape_input) {
  return std::make_unique<RunTimeShapeKernel>(std::move(inner), shape_input);
}

}  // namespace tutti
