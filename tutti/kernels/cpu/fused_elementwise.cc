#include "tutti/kernels/cpu/fused_elementwise.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tutti/device/device.h"
#include "tutti/kernels/cpu/register.h"

namespace tutti {
namespace {

// The buffers of one core: 32 KiB, what a first-level cache holds.
constexpr int64_t kArenaFloats = 8192;
constexpr int64_t kMostTile = 1024;
constexpr int64_t kLeastTile = 16;
constexpr int kMostSources = 64;
constexpr int64_t kGrain = 4096;

}  // namespace

// Where the operands of one tile lie.
struct FusedElementwiseKernel::Tile {
  int64_t begin = 0;
  int64_t count = 0;
  std::array<const float*, kMostSources + 2 * kMostElementwiseLines> sources = {};
  std::array<const float*, kMostElementwiseLines> lines = {};
};

absl::Status FusedElementwiseKernel::Prepare(PrepareContext& context) {
  const Node& node = context.node();
  num_inputs_ = context.num_inputs();
  if (num_inputs_ > kMostSources) {
    return InvalidArgument("{} inputs; at most {}", num_inputs_, kMostSources);
  }
  TUTTI_ASSIGN_OR_RETURN(
      const auto program,
      ParseElementwiseProgram(node.attr<std::vector<std::string>>("program"), num_inputs_));
  sources_.assign(num_inputs_, {});
  lines_.clear();
  for (const ElementwiseLine& text : program) {
    Line line;
    line.loops = FindVectorLoops(text.op->name);
    if (line.loops == nullptr) return Internal("no loops for {}", text.op->name);
    line.params = {text.constants[0], text.constants[1]};
    line.count = text.op->operands;
    for (int i = 0; i < line.count; ++i) {
      const ElementwiseOperand& operand = text.operands[i];
      line.operands[i] = {operand.kind == ElementwiseOperand::Kind::kLine, operand.index};
      if (operand.kind == ElementwiseOperand::Kind::kNumber) {
        line.operands[i].index = int(sources_.size());
        sources_.push_back({.kind = Source::Kind::kScalar, .number = operand.number});
      }
      Operand& placed = line.operands[i];
      (placed.is_line ? lines_[placed.index].last_line : sources_[placed.index].last_line) =
          int(lines_.size());
    }
    lines_.push_back(line);
  }
  output_lines_.clear();
  for (const int64_t index : node.attr<std::vector<int64_t>>("outputs")) {
    lines_[index].output = int(output_lines_.size());
    lines_[index].last_line = int(lines_.size());
    output_lines_.push_back(int(index));
  }
  staged_.assign(output_lines_.size(), false);
  std::vector<Shape> shapes;
  ready_ = context.output(0).shape.IsFullyKnown();
  for (int i = 0; i < num_inputs_; ++i) {
    shapes.push_back(context.input(i).shape);
    ready_ = ready_ && shapes.back().IsFullyKnown();
  }
  return ready_ ? Classify(context.output(0).shape, shapes) : absl::OkStatus();
}

absl::Status FusedElementwiseKernel::Classify(const Shape& output, std::span<const Shape> inputs) {
  elements_ = output.elements();
  for (int i = 0; i < num_inputs_; ++i) {
    Source& source = sources_[i];
    source.kind = inputs[i].elements() == elements_ ? Source::Kind::kFull
                  : inputs[i].elements() == 1       ? Source::Kind::kScalar
                                                    : Source::Kind::kRepeated;
    if (source.kind == Source::Kind::kRepeated)
      source.broadcast = Broadcast(output, {&inputs[i], 1});
  }
  // Scalars reach a loop as scalars only where it has a form for that.
  for (Source& source : sources_) source.fill = false;
  for (const Line& line : lines_) {
    bool scalar[2] = {};
    for (int i = 0; i < line.count; ++i) {
      scalar[i] = !line.operands[i].is_line &&
                  sources_[line.operands[i].index].kind == Source::Kind::kScalar;
    }
    const bool has_form =
        line.count == 2 && line.loops->scalar_a != nullptr && scalar[0] != scalar[1];
    if (has_form) continue;
    for (int i = 0; i < line.count; ++i) {
      if (scalar[i]) sources_[line.operands[i].index].fill = true;
    }
  }
  return AssignSlots();
}

// Buffers for repeated sources for the whole tile, and for results from their line to their last
// use; a line may take over the buffer of an operand that it uses up.
absl::Status FusedElementwiseKernel::AssignSlots() {
  int slots = 0;
  for (Source& source : sources_) {
    if (source.kind == Source::Kind::kRepeated || source.fill) source.slot = slots++;
  }
  std::vector<int> free;
  for (int i = 0; i < int(lines_.size()); ++i) {
    Line& line = lines_[i];
    for (int k = 0; k < line.count; ++k) {
      if (!line.operands[k].is_line) continue;
      const Line& operand = lines_[line.operands[k].index];
      const bool twice =
          k == 1 && line.operands[0].is_line && line.operands[0].index == line.operands[1].index;
      if (operand.last_line == i && !twice) free.push_back(operand.slot);
    }
    if (free.empty()) {
      line.slot = slots++;
    } else {
      line.slot = free.back();
      free.pop_back();
    }
  }
  if (slots * kLeastTile > kArenaFloats) {
    return InvalidArgument("the program holds {} values at once; at most {}", slots,
                           kArenaFloats / kLeastTile);
  }
  tile_ = std::clamp(kArenaFloats / std::max(slots, 1) / 16 * 16, kLeastTile, kMostTile);
  return absl::OkStatus();
}

void FusedElementwiseKernel::RunLine(const Line& line, const Tile& tile, float* to) const {
  const float* values[2] = {};
  bool scalar[2] = {};
  for (int i = 0; i < line.count; ++i) {
    const Operand& operand = line.operands[i];
    values[i] = operand.is_line ? tile.lines[operand.index] : tile.sources[operand.index];
    scalar[i] = !operand.is_line && sources_[operand.index].kind == Source::Kind::kScalar &&
                !sources_[operand.index].fill;
  }
  if (line.count == 1) {
    line.loops->unary(values[0], to, tile.count, line.params);
  } else if (scalar[0]) {
    line.loops->scalar_a(values[0], values[1], to, tile.count, line.params);
  } else if (scalar[1]) {
    line.loops->scalar_b(values[0], values[1], to, tile.count, line.params);
  } else {
    line.loops->both(values[0], values[1], to, tile.count, line.params);
  }
}

void FusedElementwiseKernel::RunRange(KernelContext& context, int64_t begin, int64_t end) const {
  alignas(64) float arena[kArenaFloats];
  const auto buffer = [&](int slot) { return arena + slot * tile_; };
  Tile tile;
  for (size_t i = 0; i < sources_.size(); ++i) {
    const Source& source = sources_[i];
    const float* data = int(i) < num_inputs_ ? context.input(int(i)).data<float>() : &source.number;
    tile.sources[i] = source.fill ? std::fill_n(buffer(source.slot), tile_, *data) - tile_ : data;
  }
  for (int64_t at = begin; at < end; at += tile_) {
    tile.begin = at;
    tile.count = std::min(tile_, end - at);
    for (int i = 0; i < num_inputs_; ++i) {
      const Source& source = sources_[i];
      const float* data = context.input(i).data<float>();
      if (source.kind == Source::Kind::kFull) {
        tile.sources[i] = data + at;
      } else if (source.kind == Source::Kind::kRepeated) {
        float* to = buffer(source.slot);
        tile.sources[i] = to;
        source.broadcast.ForEachRun(
            at, at + tile.count, [&](int64_t position, int64_t count, const auto& offsets) {
              const float* from = data + offsets[0];
              if (source.broadcast.step(0) == 0) {
                std::fill_n(to + (position - at), count, *from);
              } else if (count == tile.count) {
                tile.sources[i] = from;
              } else {
                std::memcpy(to + (position - at), from, size_t(count) * sizeof(float));
              }
            });
      }
    }
    for (size_t i = 0; i < lines_.size(); ++i) {
      const Line& line = lines_[i];
      const bool direct = line.output >= 0 && !staged_[line.output];
      float* to = direct ? context.output(line.output).data<float>() + at : buffer(line.slot);
      tile.lines[i] = to;
      RunLine(line, tile, to);
    }
    for (size_t i = 0; i < output_lines_.size(); ++i) {
      float* to = context.output(int(i)).data<float>() + at;
      if (tile.lines[output_lines_[i]] == to) continue;
      std::memcpy(to, tile.lines[output_lines_[i]], size_t(tile.count) * sizeof(float));
    }
  }
}

absl::Status FusedElementwiseKernel::Compute(KernelContext& context) {
  if (!ready_) {
    std::vector<Shape> shapes;
    for (int i = 0; i < num_inputs_; ++i) shapes.push_back(context.input(i).shape());
    TUTTI_RETURN_IF_ERROR(Classify(context.output(0).shape(), shapes));
  }
  // An output may have taken the memory of an input. Where a later line still reads that input, the
  // output of a tile waits in its buffer until the tile is done.
  for (size_t o = 0; o < output_lines_.size(); ++o) {
    staged_[o] = false;
    for (int i = 0; i < num_inputs_; ++i) {
      if (context.input(i).raw() == context.output(int(o)).raw() &&
          sources_[i].last_line > output_lines_[o]) {
        staged_[o] = true;
      }
    }
  }
  context.team().ParallelFor(elements_, kGrain,
                             [&](int64_t begin, int64_t end) { RunRange(context, begin, end); });
  return absl::OkStatus();
}

void RegisterFusedElementwiseCpuKernel(KernelRegistry& registry) {
  std::vector<std::pair<int, int>> in_place;
  for (int output = 0; output < 4; ++output) {
    for (int input = 0; input < 8; ++input) in_place.emplace_back(input, output);
  }
  AddKernel<FusedElementwiseKernel>(registry, "_FusedElementwise", "cpu", {kFloat32}, in_place);
}

}  // namespace tutti
