// Size classes: 64 bytes times {4, 5, 6, 7} times a power of two, so that rounding wastes at most a
// quarter. A Block keeps its memory and its place in the free list of its class; releasing it is a
// push, allocating one a pop, both under one short lock.
#include "tutti/device/pool.h"

#include <bit>

#include "tutti/base/checked.h"
#include "tutti/device/memory_limit.h"

namespace tutti {
namespace {

constexpr int kClasses = 4 * 48;

struct SizeClass {
  int index;
  size_t bytes;
};

SizeClass ClassOf(size_t bytes) {
  const uint64_t units = std::max<uint64_t>(4, (bytes + 63) / 64);
  const int log = 63 - std::countl_zero(units);  // units in [2^log, 2^(log+1)), log >= 2
  const uint64_t step = uint64_t{1} << (log - 2);
  uint64_t quarter = (units - (uint64_t{1} << log) + step - 1) / step;  // 0..4
  return {(log - 2) * 4 + int(quarter), size_t(((uint64_t{1} << log) + quarter * step) * 64)};
}

}  // namespace

struct MemoryPool::State {
  ~State();
  std::mutex mutex;
  std::array<std::vector<Block*>, kClasses> idle;
  Usage usage;
  Source source;  // may be empty
  size_t least = 0;
};

class MemoryPool::Block final : public Buffer {
 public:
  Block(std::shared_ptr<State> state, BufferRef memory, int size_class)
      : Buffer(memory->data(), memory->size()),
        home_(std::move(state)),
        memory_(std::move(memory)),
        size_class_(size_class) {}

  // While a block lies idle it must not keep the pool alive: the owner is set only while it is in
  // use.
  void Take(std::shared_ptr<State> state) { home_ = std::move(state); }

 private:
  void Release() override {
    const std::shared_ptr<State> home = std::move(home_);
    std::lock_guard lock(home->mutex);
    home->usage.in_use -= int64_t(size());
    home->usage.idle += int64_t(size());
    home->idle[size_class_].push_back(this);
  }

  friend class MemoryPool;
  std::shared_ptr<State> home_;
  BufferRef memory_;
  int size_class_;
};

MemoryPool::State::~State() {
  for (auto& list : idle) {
    for (Block* block : list) delete block;
  }
}

MemoryPool::MemoryPool() : state_(std::make_shared<State>()) {}

MemoryPool::~MemoryPool() { Trim(); }

absl::StatusOr<Tensor> MemoryPool::Allocate(DType dtype, const Shape& shape) {
  const auto bytes = CheckedMul(shape.elements(), int64_t(SizeOf(dtype)));
  if (!bytes || *bytes < 0 || *bytes > int64_t(kMostBytes)) {
    return ResourceExhausted("a tensor of {} {} is too large", NameOf(dtype), shape.ToString());
  }
  const SizeClass size_class = ClassOf(size_t(*bytes));
  Block* block = nullptr;
  Source source;
  {
    std::lock_guard lock(state_->mutex);
    auto& idle = state_->idle[size_class.index];
    if (!idle.empty()) {
      block = idle.back();
      idle.pop_back();
      state_->usage.idle -= int64_t(block->size());
    }
    if (block == nullptr && size_class.bytes >= state_->least) source = state_->source;
    state_->usage.in_use += int64_t(size_class.bytes);
    state_->usage.peak = std::max(state_->usage.peak, state_->usage.in_use);
  }
  if (block != nullptr) {
    block->Take(state_);
  } else {
    BufferRef memory;
    if (source != nullptr) memory = source(size_class.bytes);
    if (!memory) memory = AllocateBuffer(size_class.bytes);
    if (!memory) {
      std::lock_guard lock(state_->mutex);
      state_->usage.in_use -= int64_t(size_class.bytes);
      return ResourceExhausted("not enough memory for a tensor of {} {}", NameOf(dtype),
                               shape.ToString());
    }
    block = new Block(state_, std::move(memory), size_class.index);
  }
  return Tensor(dtype, shape, BufferRef(block));
}

void MemoryPool::SetSource(Source source, size_t least) {
  std::lock_guard lock(state_->mutex);
  state_->source = std::move(source);
  state_->least = least;
}

bool MemoryPool::Shares(size_t bytes) const {
  std::lock_guard lock(state_->mutex);
  return state_->source != nullptr && bytes >= state_->least;
}

MemoryPool::Usage MemoryPool::usage() const {
  std::lock_guard lock(state_->mutex);
  return state_->usage;
}

void MemoryPool::Trim() {
  std::lock_guard lock(state_->mutex);
  for (auto& idle : state_->idle) {
    for (Block* block : idle) delete block;
    idle.clear();
  }
  state_->usage.idle = 0;
}

}  // namespace tutti
