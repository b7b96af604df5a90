#include "tutti/kernels/cpu/elementwise_kernels.h"

#include <algorithm>
#include <array>

#include "tutti/device/device.h"

namespace tutti {

const VectorLoops* LoopsFor(const Node& node) {
  if (node.HasAttr("approximate") && node.attr<bool>("approximate")) {
    return FindVectorLoops(node.op() == "Gelu" ? "GeluTanh" : "GeluTanhGrad");
  }
  return FindVectorLoops(node.op());
}

VectorParams ParamsOf(const Node& node) {
  if (node.HasAttr("alpha")) return {float(node.attr<double>("alpha")), 0};
  if (node.op() == "Clip") {
    return {float(node.attr<double>("low")), float(node.attr<double>("high"))};
  }
  return {};
}

int64_t StoredFloats(const ValueType& type, const Layout& layout) {
  if (!type.shape.IsFullyKnown()) return -1;
  if (layout.row_major()) return type.shape.elements();
  return int64_t(layout.Bytes(kFloat32, type.shape) / sizeof(float));
}

absl::Status UnaryLoopKernel::Prepare(PrepareContext& context) {
  loops_ = LoopsFor(context.node());
  params_ = ParamsOf(context.node());
  count_ = StoredFloats(context.output(0), context.output_layout(0));
  return absl::OkStatus();
}

absl::Status UnaryLoopKernel::Compute(KernelContext& context) {
  const float* x = context.input(0).data<float>();
  float* y = context.output(0).data<float>();
  const int64_t count = count_ >= 0 ? count_ : context.output(0).elements();
  context.team().ParallelFor(count, loops_->grain, [&](int64_t begin, int64_t end) {
    loops_->unary(x + begin, y + begin, end - begin, params_);
  });
  return absl::OkStatus();
}

absl::Status PairLoopKernel::Prepare(PrepareContext& context) {
  loops_ = LoopsFor(context.node());
  params_ = ParamsOf(context.node());
  count_ = StoredFloats(context.output(0), context.output_layout(0));
  return absl::OkStatus();
}

absl::Status PairLoopKernel::Compute(KernelContext& context) {
  const float* a = context.input(0).data<float>();
  const float* b = context.input(1).data<float>();
  float* y = context.output(0).data<float>();
  if (context.input(0).shape() != context.input(1).shape()) {
    return InvalidArgument("shapes differ: {} and {}", context.input(0).shape().ToString(),
                           context.input(1).shape().ToString());
  }
  const int64_t count = count_ >= 0 ? count_ : context.output(0).elements();
  context.team().ParallelFor(count, loops_->grain, [&](int64_t begin, int64_t end) {
    loops_->both(a + begin, b + begin, y + begin, end - begin, params_);
  });
  return absl::OkStatus();
}

namespace {

// Rows shorter than this are repeated into a buffer of kRepeatFloats, so that the loops get long
// runs.
constexpr int64_t kShortRow = 128;
constexpr int64_t kRepeatFloats = 1024;

}  // namespace

absl::Status BinaryLoopKernel::Prepare(PrepareContext& context) {
  loops_ = LoopsFor(context.node());
  const Shape shapes[] = {context.input(0).shape, context.input(1).shape};
  ready_ = shapes[0].IsFullyKnown() && shapes[1].IsFullyKnown() &&
           context.output(0).shape.IsFullyKnown();
  if (!ready_) return absl::OkStatus();
  broadcast_ = Broadcast(context.output(0).shape, shapes);
  repeated_ = -1;
  if (broadcast_.rank() == 2 && broadcast_.row_size() < kShortRow && broadcast_.step(0) == 1 &&
      broadcast_.step(1) == 1) {
    repeated_ = broadcast_.stride(0, 0) == 0 ? 0 : 1;
  }
  return absl::OkStatus();
}

// Row by row; within a row an input moves along or stands still.
void BinaryLoopKernel::RunRows(const float* a, const float* b, float* y, int64_t begin,
                               int64_t end) const {
  broadcast_.ForEachRun(begin, end, [&](int64_t position, int64_t count, const auto& offsets) {
    const float* pa = a + offsets[0];
    const float* pb = b + offsets[1];
    if (broadcast_.step(0) == 1 && broadcast_.step(1) == 1) {
      loops_->both(pa, pb, y + position, count, {});
    } else if (broadcast_.step(0) == 1) {
      loops_->scalar_b(pa, pb, y + position, count, {});
    } else if (broadcast_.step(1) == 1) {
      loops_->scalar_a(pa, pb, y + position, count, {});
    } else {
      float value;
      loops_->both(pa, pb, &value, 1, {});
      std::fill_n(y + position, count, value);
    }
  });
}

// [m, n] with a short [n]: as long runs with copies of that row.
void BinaryLoopKernel::RunRepeated(const float* a, const float* b, float* y, int64_t begin,
                                   int64_t end) const {
  const int64_t row = broadcast_.row_size();
  const int64_t first = begin % row;
  const float* short_row = repeated_ == 0 ? a : b;
  std::array<float, kRepeatFloats> copies;
  const int64_t run = kRepeatFloats / row * row;
  for (int64_t i = 0; i < std::min(run, end - begin); ++i) copies[i] = short_row[(first + i) % row];
  for (int64_t at = begin; at < end; at += run) {
    const int64_t count = std::min(run, end - at);
    if (repeated_ == 0) {
      loops_->both(copies.data(), b + at, y + at, count, {});
    } else {
      loops_->both(a + at, copies.data(), y + at, count, {});
    }
  }
}

absl::Status BinaryLoopKernel::Compute(KernelContext& context) {
  const float* a = context.input(0).data<float>();
  const float* b = context.input(1).data<float>();
  float* y = context.output(0).data<float>();
  if (!ready_) {
    const Shape shapes[] = {context.input(0).shape(), context.input(1).shape()};
    broadcast_ = Broadcast(context.output(0).shape(), shapes);
  }
  context.team().ParallelFor(broadcast_.elements(), loops_->grain, [&](int64_t begin, int64_t end) {
    if (ready_ && repeated_ >= 0) {
      RunRepeated(a, b, y, begin, end);
    } else {
      RunRows(a, b, y, begin, end);
    }
  });
  return absl::OkStatus();
}

void AddUnaryLoop(KernelRegistry& registry, const char* op, bool zero_at_zero) {
  registry.Add({.op = op,
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [] { return std::make_unique<UnaryLoopKernel>(); },
                .in_place = {{0, 0}},
                .any_layout = zero_at_zero});
}

void AddPairLoop(KernelRegistry& registry, const char* op) {
  registry.Add({.op = op,
                .kind = "cpu",
                .dtypes = {kFloat32},
                .make = [] { return std::make_unique<PairLoopKernel>(); },
                .in_place = {{0, 0}, {1, 0}},
                .any_layout = true});
}

}  // namespace tutti
