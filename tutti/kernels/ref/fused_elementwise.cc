// The reference of _FusedElementwise: one element at a time, each line in double.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "tutti/device/device.h"
#include "tutti/graph/ops/elementwise_program.h"
#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/shape/broadcast.h"

namespace tutti {
namespace {

// A line's operands a and b, and its constants c[0] and c[1].
using Function = double (*)(double a, double b, const std::array<float, 2>& c);

struct NamedFunction {
  std::string_view name;
  Function function;
};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::numbers::sqrt2); }
double GeluBend(double x) {
  return std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x));
}

#define TUTTI_LINE(Name, expression)                                                        \
  {                                                                                         \
    #Name,                                                                                  \
        []([[maybe_unused]] double a, [[maybe_unused]] double b,                            \
           [[maybe_unused]] const std::array<float, 2>& c) -> double { return expression; } \
  }

constexpr NamedFunction kFunctions[] = {
    TUTTI_LINE(Add, a + b),
    TUTTI_LINE(Sub, a - b),
    TUTTI_LINE(Mul, a* b),
    TUTTI_LINE(Div, a / b),
    TUTTI_LINE(FloorDiv, std::floor(a / b)),
    TUTTI_LINE(Mod, a - std::floor(a / b) * b),
    TUTTI_LINE(Pow, std::pow(a, b)),
    TUTTI_LINE(Maximum, a != a || a > b ? a : b),
    TUTTI_LINE(Minimum, a != a || a < b ? a : b),
    TUTTI_LINE(SquaredDifference, (a - b) * (a - b)),
    TUTTI_LINE(Neg, -a),
    TUTTI_LINE(Abs, std::abs(a)),
    TUTTI_LINE(Sign, a != a ? a : double((a > 0) - (a < 0))),
    TUTTI_LINE(Square, a* a),
    TUTTI_LINE(Sqrt, std::sqrt(a)),
    TUTTI_LINE(Rsqrt, 1 / std::sqrt(a)),
    TUTTI_LINE(Exp, std::exp(a)),
    TUTTI_LINE(Log, std::log(a)),
    TUTTI_LINE(Log1p, std::log1p(a)),
    TUTTI_LINE(Sin, std::sin(a)),
    TUTTI_LINE(Cos, std::cos(a)),
    TUTTI_LINE(Erf, std::erf(a)),
    TUTTI_LINE(Floor, std::floor(a)),
    TUTTI_LINE(Ceil, std::ceil(a)),
    TUTTI_LINE(Round, std::nearbyint(a)),
    TUTTI_LINE(Clip, a<c[0] ? double(c[0]) : a> c[1] ? double(c[1]) : a),
    TUTTI_LINE(Relu, a <= 0 ? 0 : a),
    TUTTI_LINE(Relu6, a <= 0   ? 0
                      : a >= 6 ? 6
                               : a),
    TUTTI_LINE(LeakyRelu, a > 0 ? a : a * c[0]),
    TUTTI_LINE(Elu, a > 0 ? a : c[0] * std::expm1(a)),
    TUTTI_LINE(Sigmoid, Sigmoid(a)),
    TUTTI_LINE(Tanh, std::tanh(a)),
    TUTTI_LINE(Softplus, std::max(a, 0.0) + std::log1p(std::exp(-std::abs(a)))),
    TUTTI_LINE(Gelu, a* NormalCdf(a)),
    TUTTI_LINE(GeluTanh, 0.5 * a * (1 + GeluBend(a))),
    TUTTI_LINE(ReluGrad, b > 0 ? a : 0),
    TUTTI_LINE(Relu6Grad, b > 0 && b < 6 ? a : 0),
    TUTTI_LINE(LeakyReluGrad, b > 0 ? a : a * c[0]),
    TUTTI_LINE(EluGrad, b > 0 ? a : a * (b + c[0])),
    TUTTI_LINE(SigmoidGrad, a* b * (1 - b)),
    TUTTI_LINE(TanhGrad, a * (1 - b * b)),
    TUTTI_LINE(SoftplusGrad, a* Sigmoid(b)),
    TUTTI_LINE(GeluGrad,
               a*(NormalCdf(b) + b * std::exp(-0.5 * b * b) / std::sqrt(2 * std::numbers::pi))),
    TUTTI_LINE(GeluTanhGrad,
               a * (0.5 * (1 + GeluBend(b)) + 0.5 * b * (1 - GeluBend(b) * GeluBend(b)) *
                                                  std::sqrt(2 / std::numbers::pi) *
                                                  (1 + 3 * 0.044715 * b * b))),
};
#undef TUTTI_LINE

class FusedElementwiseReference final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& context) override {
    const Node& node = context.node();
    TUTTI_ASSIGN_OR_RETURN(lines_,
                           ParseElementwiseProgram(node.attr<std::vector<std::string>>("program"),
                                                   context.num_inputs()));
    functions_.clear();
    for (const ElementwiseLine& line : lines_) {
      const auto found = std::find_if(
          std::begin(kFunctions), std::end(kFunctions),
          [&](const NamedFunction& candidate) { return candidate.name == line.op->name; });
      if (found == std::end(kFunctions)) return Internal("no function for {}", line.op->name);
      functions_.push_back(found->function);
    }
    outputs_ = node.attr<std::vector<int64_t>>("outputs");
    results_.resize(lines_.size());
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& context) override {
    const Shape& shape = context.output(0).shape();
    std::vector<Broadcast> inputs;
    for (int i = 0; i < context.num_inputs(); ++i) {
      inputs.emplace_back(shape, std::span(&context.input(i).shape(), 1));
    }
    for (int64_t at = 0; at < shape.elements(); ++at) {
      for (size_t i = 0; i < lines_.size(); ++i) {
        double values[2] = {};
        for (int k = 0; k < lines_[i].op->operands; ++k) {
          const ElementwiseOperand& operand = lines_[i].operands[k];
          switch (operand.kind) {
            case ElementwiseOperand::Kind::kNumber:
              values[k] = operand.number;
              break;
            case ElementwiseOperand::Kind::kLine:
              values[k] = results_[operand.index];
              break;
            case ElementwiseOperand::Kind::kInput:
              inputs[operand.index].ForEachRun(
                  at, at + 1, [&](int64_t, int64_t, const auto& offsets) {
                    values[k] = context.input(operand.index).data<float>()[offsets[0]];
                  });
              break;
          }
        }
        results_[i] = functions_[i](values[0], values[1], lines_[i].constants);
      }
      for (size_t o = 0; o < outputs_.size(); ++o) {
        context.output(int(o)).data<float>()[at] = float(results_[outputs_[o]]);
      }
    }
    return absl::OkStatus();
  }

 private:
  std::vector<ElementwiseLine> lines_;
  std::vector<Function> functions_;
  std::vector<int64_t> outputs_;
  std::vector<double> results_;
};

}  // namespace

void RegisterFusedElementwiseRefKernel(KernelRegistry& registry) {
  AddKernel<FusedElementwiseReference>(registry, "_FusedElementwise", "ref", {kFloat32});
}

}  // namespace tutti
