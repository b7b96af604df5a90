#include "tutti/graph/ops/elementwise_program.h"

#include <fmt/format.h>

#include <charconv>

#include "tutti/graph/ops/register.h"

namespace tutti {
namespace {

constexpr ElementwiseOp kOps[] = {
    {"Add", 2, 0, true},
    {"Sub", 2, 0, true},
    {"Mul", 2, 0, true},
    {"Div", 2, 0, true},
    {"FloorDiv", 2, 0, true},
    {"Mod", 2, 0, true},
    {"Pow", 2, 0, true},
    {"Maximum", 2, 0, true},
    {"Minimum", 2, 0, true},
    {"SquaredDifference", 2, 0, true},
    {"Neg"},
    {"Abs"},
    {"Sign"},
    {"Square"},
    {"Sqrt"},
    {"Rsqrt"},
    {"Exp"},
    {"Log"},
    {"Log1p"},
    {"Sin"},
    {"Cos"},
    {"Erf"},
    {"Floor"},
    {"Ceil"},
    {"Round"},
    {"Clip", 1, 2},
    {"Relu"},
    {"Relu6"},
    {"LeakyRelu", 1, 1},
    {"Elu", 1, 1},
    {"Sigmoid"},
    {"Tanh"},
    {"Softplus"},
    {"Gelu"},
    {"GeluTanh"},
    {"ReluGrad", 2},
    {"Relu6Grad", 2},
    {"LeakyReluGrad", 2, 1},
    {"EluGrad", 2, 1},
    {"SigmoidGrad", 2},
    {"TanhGrad", 2},
    {"SoftplusGrad", 2},
    {"GeluGrad", 2},
    {"GeluTanhGrad", 2},
};

std::vector<std::string_view> Words(std::string_view line) {
  std::vector<std::string_view> words;
  while (!line.empty()) {
    const size_t end = std::min(line.find(' '), line.size());
    if (end > 0) words.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

absl::StatusOr<ElementwiseOperand> ParseOperand(std::string_view word, int num_inputs,
                                                int num_lines) {
  using Kind = ElementwiseOperand::Kind;
  ElementwiseOperand operand;
  if (word[0] == '$' || word[0] == '%') {
    operand.kind = word[0] == '$' ? Kind::kInput : Kind::kLine;
    const int count = word[0] == '$' ? num_inputs : num_lines;
    if (!ParseNumber(word.substr(1), &operand.index) || operand.index < 0 ||
        operand.index >= count) {
      return InvalidArgument("\"{}\" names none of {} {}", word, count,
                             word[0] == '$' ? "inputs" : "lines before");
    }
    return operand;
  }
  if (!ParseNumber(word, &operand.number)) {
    return InvalidArgument("\"{}\" is no operand; expected $input, %line or a number", word);
  }
  return operand;
}

absl::StatusOr<ElementwiseLine> ParseLine(std::string_view text, int num_inputs, int num_lines) {
  const auto words = Words(text);
  if (words.empty()) return InvalidArgument("the line is empty");
  ElementwiseLine line;
  line.op = FindElementwiseOp(words[0]);
  if (line.op == nullptr) return InvalidArgument("there is no element-wise op \"{}\"", words[0]);
  const int expected = 1 + line.op->operands + line.op->constants;
  if (int(words.size()) != expected) {
    return InvalidArgument("{} takes {} operands and {} constants, got {} words after it", words[0],
                           line.op->operands, line.op->constants, words.size() - 1);
  }
  for (int i = 0; i < line.op->operands; ++i) {
    TUTTI_ASSIGN_OR_RETURN(line.operands[i], ParseOperand(words[1 + i], num_inputs, num_lines));
  }
  for (int i = 0; i < line.op->constants; ++i) {
    const std::string_view word = words[1 + line.op->operands + i];
    if (!ParseNumber(word, &line.constants[i])) {
      return InvalidArgument("\"{}\" is no number", word);
    }
  }
  return line;
}

absl::Status InferFusedElementwise(InferContext& c) {
  if (c.num_inputs() == 0) return c.Error("no inputs given");
  Shape shape;
  for (int i = 0; i < c.num_inputs(); ++i) {
    TUTTI_RETURN_IF_ERROR(c.RequireDType(i, kFloat32));
    const auto merged = BroadcastShapes(shape, c.shape(i));
    if (!merged) {
      return c.Error("{} does not broadcast with the inputs before it, {}", c.DescribeInput(i),
                     shape.ToString());
    }
    shape = *merged;
  }
  TUTTI_ASSIGN_OR_RETURN(
      const auto lines,
      ParseElementwiseProgram(c.attr<std::vector<std::string>>("program"), c.num_inputs()));
  const auto& outputs = c.attr<std::vector<int64_t>>("outputs");
  if (outputs.empty()) return c.Error("attribute \"outputs\" names no line");
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i] < 0 || outputs[i] >= int64_t(lines.size())) {
      return c.Error("outputs[{}] is {}; there are {} lines", i, outputs[i], lines.size());
    }
    c.SetOutput(int(i), kFloat32, shape);
  }
  return absl::OkStatus();
}

}  // namespace

const ElementwiseOp* FindElementwiseOp(std::string_view name) {
  for (const ElementwiseOp& op : kOps) {
    if (op.name == name) return &op;
  }
  return nullptr;
}

std::string ElementwiseLine::ToString() const {
  std::string text(op->name);
  for (int i = 0; i < op->operands; ++i) {
    switch (operands[i].kind) {
      case ElementwiseOperand::Kind::kInput:
        text += fmt::format(" ${}", operands[i].index);
        break;
      case ElementwiseOperand::Kind::kLine:
        text += fmt::format(" %{}", operands[i].index);
        break;
      case ElementwiseOperand::Kind::kNumber:
        text += fmt::format(" {}", operands[i].number);
        break;
    }
  }
  for (int i = 0; i < op->constants; ++i) text += fmt::format(" {}", constants[i]);
  return text;
}

absl::StatusOr<std::vector<ElementwiseLine>> ParseElementwiseProgram(
    std::span<const std::string> program, int num_inputs) {
  if (program.empty() || program.size() > size_t(kMostElementwiseLines)) {
    return InvalidArgument("attribute \"program\" has {} lines; expected 1 to {}", program.size(),
                           kMostElementwiseLines);
  }
  std::vector<ElementwiseLine> lines;
  for (const std::string& text : program) {
    auto line = ParseLine(text, num_inputs, int(lines.size()));
    if (!line.ok()) {
      return WithPrefix(line.status(), fmt::format("program line {} \"{}\": ", lines.size(), text));
    }
    lines.push_back(*line);
  }
  return lines;
}

void RegisterFusedElementwiseOp(OpRegistry& registry) {
  registry.Add({.name = "_FusedElementwise",
                .inputs = {"inputs..."},
                .attrs = {{"program", AttrType::kStrings}, {"outputs", AttrType::kInts}},
                .infer = InferFusedElementwise,
                .internal = true});
}

}  // namespace tutti
