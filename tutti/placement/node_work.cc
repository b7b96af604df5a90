// How much a node does, by op family. A matrix product multiplies and adds once for each element of
// its result and of the dimension that is summed over; a convolution once for each element of its
// result and of a filter; its two gradients do as much as the convolution. Everything else is
// bound by memory: it reads its inputs and writes its outputs once, at a speed that depends on the
// kind of arithmetic in between. The table has one line an op that is no plain pass over memory.
#include "tutti/placement/node_work.h"

#include <algorithm>
#include <string>
#include <unordered_map>

#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/update_table.h"

namespace tutti::placement {
namespace {

WorkKind TableKind(const std::string& op) {
  static const auto* const kTable = [] {
    auto* table = new std::unordered_map<std::string, WorkKind>;
    const auto add = [&](WorkKind kind, std::initializer_list<const char*> ops) {
      for (const char* name : ops) table->emplace(name, kind);
    };
    add(WorkKind::kMatrix, {"MatMul", "BatchMatMul", "_FusedMatMul", "_MatMulDescent",
                            "MatrixInverse", "MatrixDeterminant", "Cholesky", "MatrixSolve"});
    add(WorkKind::kConvolution,
        {"Conv2D", "Conv2DTranspose", "Conv2DBackpropInput", "Conv2DBackpropFilter",
         "DepthwiseConv2D", "DepthwiseConv2DBackpropInput", "DepthwiseConv2DBackpropFilter",
         "_FusedConv2D"});
    add(WorkKind::kFunction, {"Exp",
                              "Log",
                              "Log1p",
                              "Sin",
                              "Cos",
                              "Erf",
                              "Pow",
                              "Sigmoid",
                              "Tanh",
                              "Softplus",
                              "Elu",
                              "Gelu",
                              "GeluGrad",
                              "Softmax",
                              "LogSoftmax",
                              "SoftmaxGrad",
                              "LogSoftmaxGrad",
                              "SoftplusGrad",
                              "LogSumExp",
                              "LayerNorm",
                              "LayerNormGrad",
                              "SoftmaxCrossEntropy",
                              "SparseSoftmaxCrossEntropy",
                              "SigmoidCrossEntropy"});
    add(WorkKind::kElementwise, {"Add",
                                 "Mul",
                                 "Sub",
                                 "Div",
                                 "Mod",
                                 "Maximum",
                                 "Minimum",
                                 "SquaredDifference",
                                 "Greater",
                                 "GreaterEqual",
                                 "Less",
                                 "LessEqual",
                                 "Equal",
                                 "NotEqual",
                                 "LogicalAnd",
                                 "LogicalOr",
                                 "LogicalNot",
                                 "Neg",
                                 "Abs",
                                 "Square",
                                 "Sign",
                                 "Reciprocal",
                                 "Sqrt",
                                 "Rsqrt",
                                 "Floor",
                                 "Ceil",
                                 "Round",
                                 "AddN",
                                 "Select",
                                 "Cast",
                                 "Clip",
                                 "Relu",
                                 "ReluGrad",
                                 "Relu6",
                                 "Relu6Grad",
                                 "LeakyRelu",
                                 "LeakyReluGrad",
                                 "EluGrad",
                                 "SigmoidGrad",
                                 "TanhGrad",
                                 "BiasAdd",
                                 "ZerosLike",
                                 "OnesLike",
                                 "Fill",
                                 "_FusedElementwise",
                                 "Identity",
                                 "Assign",
                                 "AssignAdd",
                                 "AssignSub",
                                 "BroadcastTo"});
    add(WorkKind::kReduction, {"Sum",
                               "Mean",
                               "Prod",
                               "Max",
                               "Min",
                               "All",
                               "Any",
                               "AllFinite",
                               "ArgMax",
                               "ArgMin",
                               "L2Loss",
                               "SumToShape",
                               "BiasAddGrad",
                               "MaxPool",
                               "AvgPool",
                               "GlobalAvgPool",
                               "MaxPoolGrad",
                               "AvgPoolGrad",
                               "GlobalAvgPoolGrad",
                               "MaxPoolGradGrad",
                               "_MaxPoolWithPositions",
                               "_MaxPoolGradWithPositions",

                               "BatchNorm",
                               "BatchNormGrad",
                               "BatchNormInference",
                               "Cumsum",
                               "TopK",
                               "InTopK"});
    add(WorkKind::kCopy, {"Concat", "ConcatGrad", "Split", "Pad", "Pack", "Unpack", "Tile", "Slice",
                          "SliceGrad", "DynamicPartition", "DynamicStitch", "DynamicStitchGrad"});
    add(WorkKind::kMovement,
        {"Transpose",  "TileGrad",           "Reverse",      "Gather",           "_GatherRows",
         "GatherGrad", "GatherNd",           "ScatterNd",    "GatherLast",       "GatherLastGrad",
         "OneHot",     "UnsortedSegmentSum", "StridedSlice", "StridedSliceGrad", "PackRows",
         "MergeRows",  "_Reorder",           "ScatterAdd",   "ScatterSub",       "ScatterUpdate"});
    add(WorkKind::kRandom,
        {"RandomUniform", "RandomNormal", "TruncatedNormal", "Shuffle", "Dropout"});
    add(WorkKind::kNone, {"NoOp", "Shape", "Rank", "Size", "Variable", "FIFOQueue",
                          "RandomShuffleQueue", "IsInitialized", "StopGradient"});
    return table;
  }();
  const auto it = kTable->find(op);
  if (it != kTable->end()) return it->second;
  // The updates of optimizers, dense, sparse and fused.
  if (op.starts_with("Apply") || op.starts_with("_FusedApply")) return WorkKind::kElementwise;
  return WorkKind::kOther;
}

int64_t DimOr(const Shape& shape, int i) {
  if (!shape.has_rank() || shape.rank() <= i) return 1;
  const int64_t dim = shape.dims()[size_t(i)];
  return dim < 0 ? kAssumedDim : dim;
}

double Elements(const Shape& shape) {
  if (!shape.has_rank()) return kAssumedDim;
  double elements = 1;
  for (int i = 0; i < shape.rank(); ++i) elements *= double(DimOr(shape, i));
  return elements;
}

// The last dimension but `back`.
double DimFromEnd(const Shape& shape, int back) {
  if (!shape.has_rank() || shape.rank() <= back) return 1;
  return double(DimOr(shape, shape.rank() - 1 - back));
}

bool FlagOf(const Node& node, std::string_view name) {
  const AttrValue* const value = node.FindAttr(name);
  const bool* const flag = value == nullptr ? nullptr : std::get_if<bool>(value);
  return flag != nullptr && *flag;
}

double MatrixOperations(const Node& node) {
  if (node.num_inputs() == 0) return 0;
  const Shape& first = node.input(0).shape();
  if (node.op() == "_MatMulDescent" && node.num_inputs() >= 4) {
    // (&variable, learning_rate, a, b, ...): the product has the variable's shape.
    const Shape& a = node.input(2).shape();
    return 2 * Elements(first) * DimFromEnd(a, FlagOf(node, "transpose_a") ? 1 : 0);
  }
  const bool product =
      node.op() == "MatMul" || node.op() == "BatchMatMul" || node.op() == "_FusedMatMul";
  if (product && node.num_outputs() > 0) {
    const double inner = DimFromEnd(first, FlagOf(node, "transpose_a") ? 1 : 0);
    return 2 * Elements(node.type(0).shape) * inner;
  }
  return 2 * Elements(first) * DimFromEnd(first, 0);  // factorisations: n^3
}

// A filter is [height, width, in, out].
double FilterOperations(const Shape& filter, bool depthwise) {
  const double window = double(DimOr(filter, 0)) * double(DimOr(filter, 1));
  return 2 * window * (depthwise ? 1 : double(DimOr(filter, 2)));
}

double ConvolutionOperations(const Node& node) {
  if (node.num_inputs() < 2 || node.num_outputs() == 0) return 0;
  const bool depthwise = node.op().find("Depthwise") != std::string::npos;
  if (node.op().ends_with("BackpropFilter")) {
    return Elements(node.input(1).shape()) * FilterOperations(node.type(0).shape, depthwise);
  }
  if (node.op().ends_with("BackpropInput")) {
    return Elements(node.input(1).shape()) * FilterOperations(node.input(0).shape(), depthwise);
  }
  const Shape& filter = node.input(1).shape();
  if (node.op() == "Conv2DTranspose") {
    return Elements(node.input(0).shape()) * 2 * double(DimOr(filter, 0)) *
           double(DimOr(filter, 1)) * double(DimOr(filter, 2));
  }
  return Elements(node.type(0).shape) * FilterOperations(filter, depthwise);
}

NodeWork WorkOfGraph(const Graph& graph) {
  // The kinds inside are mixed; the sum counts under the one that has most.
  NodeWork sum;
  double heaviest = -1;
  for (const auto& node : graph.nodes()) {
    const NodeWork work = WorkOf(*node);
    sum.operations += work.operations;
    sum.read_bytes += work.read_bytes;
    sum.write_bytes += work.write_bytes;
    sum.known = sum.known && work.known;
    const double weight = work.operations + work.read_bytes + work.write_bytes;
    if (work.kind != WorkKind::kNone && weight > heaviest) {
      heaviest = weight;
      sum.kind = work.kind;
    }
  }
  return sum;
}

void AddBodies(const Node& node, NodeWork& work) {
  const bool loop = node.op() == "While";
  NodeWork bodies;
  double heaviest = -1;
  for (const auto& [name, value] : node.attrs()) {
    const auto* const body = std::get_if<std::shared_ptr<const Subgraph>>(&value);
    if (body == nullptr || *body == nullptr) continue;
    const NodeWork inside = WorkOfGraph(*(*body)->graph);
    const double weight = inside.operations + inside.read_bytes + inside.write_bytes;
    if (loop) {
      bodies.operations += inside.operations * kAssumedIterations;
      bodies.read_bytes += inside.read_bytes * kAssumedIterations;
      bodies.write_bytes += inside.write_bytes * kAssumedIterations;
      if (weight > heaviest) bodies.kind = inside.kind;
    } else if (weight > heaviest) {
      bodies = inside;
    }
    heaviest = std::max(heaviest, weight);
  }
  work.kind = bodies.kind == WorkKind::kNone ? WorkKind::kOther : bodies.kind;
  work.operations = bodies.operations;
  work.read_bytes = bodies.read_bytes;
  work.write_bytes = bodies.write_bytes;
}

// Of an update of some rows of its variable and slots: the input that has the rows. -1: it is none.
int RowsInput(const Node& node) {
  const std::string& op = node.op();
  if (op == "ScatterAdd" || op == "ScatterSub" || op == "ScatterUpdate") return 2;
  bool sparse = false;
  const UpdateOp* const update = FindUpdateOp(op, &sparse);
  return update != nullptr && sparse ? update->gradient_input() + 1 : -1;
}

// Would the passes compute the node together with the one that makes its input 0?
bool JoinsFirst(const Node& node) {
  if (node.num_inputs() == 0 || node.num_outputs() != 1 || node.def().stateful) return false;
  const auto pass = [](WorkKind kind) {
    return kind == WorkKind::kElementwise || kind == WorkKind::kFunction;
  };
  if (!pass(TableKind(node.op())) || node.op().find("Softmax") != std::string::npos ||
      node.op().find("CrossEntropy") != std::string::npos || node.op() == "LogSumExp") {
    return false;
  }
  const Node& producer = *node.input(0).node;
  if (producer.def().source || producer.def().stateful || producer.num_outputs() != 1) return false;
  const WorkKind kind = TableKind(producer.op());
  return pass(kind) || kind == WorkKind::kMatrix || kind == WorkKind::kConvolution;
}

}  // namespace

std::string_view NameOf(WorkKind kind) {
  constexpr std::string_view kNames[] = {"none",     "matrix",    "convolution", "elementwise",
                                         "function", "reduction", "copy",        "movement",
                                         "random",   "other"};
  return kNames[int(kind)];
}

double BytesOf(const ValueType& type) {
  if (type.dtype == DType::kInvalid) return 0;
  return Elements(type.shape) * double(SizeOf(type.dtype));
}

NodeWork WorkOf(const Node& node) {
  NodeWork work;
  for (int i = 0; i < node.num_outputs(); ++i) {
    work.output_bytes += BytesOf(node.type(i));
    work.known = work.known && node.type(i).shape.IsFullyKnown();
  }
  if (node.def().source || node.def().view || node.def().transfer) return work;
  if (node.def().has_subgraphs()) {
    AddBodies(node, work);
    return work;
  }
  work.kind = TableKind(node.op());
  if (work.kind == WorkKind::kNone) return work;
  const auto type = [&](int i) -> const ValueType& {
    return node.input(i).node->type(node.input(i).index);
  };
  // Of a table, the rows that are looked up or updated.
  const int rows = RowsInput(node);
  const bool looks_up = node.op() == "Gather" || node.op() == "_GatherRows";
  const double rows_bytes = rows >= 0 ? BytesOf(type(rows)) : work.output_bytes;
  if (rows >= 0) work.known = work.known && type(rows).shape.IsFullyKnown();
  work.write_bytes = rows_bytes;
  for (int i = 0; i < node.num_inputs(); ++i) {
    const bool table = rows >= 0 ? node.def().IsVariableInput(i) : looks_up && i == 0;
    work.read_bytes += table ? rows_bytes : BytesOf(type(i));
  }
  if (work.kind == WorkKind::kMatrix) work.operations = MatrixOperations(node);
  if (work.kind == WorkKind::kConvolution) work.operations = ConvolutionOperations(node);
  return work;
}

int JoinedInput(const Node& node) {
  constexpr int kGradient = 2;
  if (node.op() == "ApplyGradientDescent" && node.num_inputs() > kGradient) {
    return node.input(kGradient).node->op() == "MatMul" ? kGradient : -1;
  }
  return JoinsFirst(node) ? 0 : -1;
}

}  // namespace tutti::placement
