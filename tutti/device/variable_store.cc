#include "tutti/device/variable_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tutti/base/error.h"

namespace tutti {
namespace {

// Fresh memory costs a page fault a page, most of what a copy of a large variable takes: 500 MB in
// pages of 4 KB take 0.1 s, in pages of 2 MB 0.04 s (tutti bench checkpoint).
void AdviseHugePages(void* data, size_t bytes) {
  constexpr uintptr_t kHugePage = 2 << 20;
  const uintptr_t begin = (uintptr_t(data) + kHugePage - 1) / kHugePage * kHugePage;
  const uintptr_t end = (uintptr_t(data) + bytes) / kHugePage * kHugePage;
  if (begin < end) ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

}  // namespace

bool VariableState::initialized() const {
  std::lock_guard lock(mutex_);
  return value_.valid();
}

int64_t VariableState::bytes() const {
  std::lock_guard lock(mutex_);
  return value_.valid() ? int64_t(value_.bytes()) : 0;
}

absl::Status VariableState::NoValue() const {
  return FailedPrecondition(
      "variable \"{}\" has no value yet; call Session::Initialize() or Assign first", name_);
}

absl::StatusOr<Tensor> VariableState::Read() const {
  std::lock_guard lock(mutex_);
  if (!value_.valid()) return NoValue();
  return value_;
}

absl::StatusOr<Tensor> VariableState::ReadToSend(MemoryPool& pool) {
  std::lock_guard lock(mutex_);
  if (!value_.valid()) return NoValue();
  if (updated_by_rows_.load(std::memory_order_relaxed) || !pool.Shares(value_.bytes())) {
    return value_;
  }
  pool_ = &pool;
  if (value_.buffer().get() == pooled_) return value_;
  // Without memory the value is sent from where it is.
  absl::StatusOr<Tensor> moved = Allocate({value_.dtype(), value_.shape()});
  if (!moved.ok()) return value_;
  std::memcpy(moved->raw(), value_.raw(), value_.bytes());
  value_ = *std::move(moved);
  return value_;
}

absl::StatusOr<Tensor> VariableState::Snapshot() const {
  constexpr size_t kPieceBytes = 4 << 20;  // about a millisecond under the lock
  if (!updated_by_rows_.load(std::memory_order_relaxed)) return Read();
  ValueType type;
  {
    // Without a reference to the value: an update that met one would copy the whole table.
    std::lock_guard lock(mutex_);
    if (!value_.valid()) return NoValue();
    type = {value_.dtype(), value_.shape()};
  }
  Tensor copy;
  try {
    copy = Tensor(type.dtype, type.shape);
  } catch (const Error& error) {
    return ResourceExhausted("variable \"{}\": {}", name_, error.what());
  }
  AdviseHugePages(copy.raw(), copy.bytes());
  const int64_t rows = type.shape.rank() == 0 ? 1 : std::max<int64_t>(1, type.shape.dim(0));
  const size_t row = copy.bytes() / size_t(rows);
  const size_t piece = row * std::max<size_t>(1, kPieceBytes / std::max<size_t>(1, row));
  for (size_t done = 0; done < copy.bytes(); done += piece) {
    std::lock_guard lock(mutex_);
    if (!value_.valid() || value_.shape() != type.shape) {
      return Aborted("variable \"{}\" got another shape while it was copied for a save", name_);
    }
    std::memcpy(static_cast<std::byte*>(copy.raw()) + done,
                static_cast<const std::byte*>(value_.raw()) + done,
                std::min(piece, copy.bytes() - done));
  }
  return copy;
}

void VariableState::Assign(Tensor value) {
  std::lock_guard lock(mutex_);
  value_ = std::move(value);
}

absl::Status VariableState::MakeWritable() {
  TUTTI_ASSIGN_OR_RETURN(const Tensor old, MakeFresh());
  if (old.valid() && old.bytes() > 0) std::memcpy(value_.raw(), old.raw(), old.bytes());
  return absl::OkStatus();
}

absl::StatusOr<Tensor> VariableState::MakeFresh() {
  if (!value_.valid()) return NoValue();
  if (value_.buffer()->references() <= 1) return Tensor();
  TUTTI_ASSIGN_OR_RETURN(Tensor fresh, Allocate({value_.dtype(), value_.shape()}));
  if (cloned_bytes_ != nullptr) {
    cloned_bytes_->fetch_add(int64_t(fresh.bytes()), std::memory_order_relaxed);
  }
  return std::exchange(value_, std::move(fresh));
}

absl::StatusOr<Tensor> VariableState::Allocate(const ValueType& type) {
  if (pool_ != nullptr) {
    absl::StatusOr<Tensor> shared = pool_->Allocate(type.dtype, type.shape);
    if (!shared.ok()) {
      return ResourceExhausted("variable \"{}\": {}", name_, MessageOf(shared.status()));
    }
    pooled_ = shared->buffer().get();
    return shared;
  }
  try {
    Tensor fresh(type.dtype, type.shape);
    AdviseHugePages(fresh.raw(), fresh.bytes());
    return fresh;
  } catch (const Error& error) {
    return ResourceExhausted("variable \"{}\": {}", name_, error.what());
  }
}

absl::Status VariableState::CheckDeclaration(const ValueType& type) const {
  if (type.dtype == declared_.dtype) {
    if (type.shape.CompatibleWith(declared_.shape)) return absl::OkStatus();
    // The body of a loop declares the shape that the value has there.
    std::lock_guard lock(mutex_);
    if (value_.valid() && value_.shape().CompatibleWith(type.shape)) return absl::OkStatus();
  }
  return FailedPrecondition(
      "variable \"{}\" is {} {} on this device, but this graph declares it as {} {}; another graph "
      "declared it first: use the same declaration, another name or another container",
      name_, NameOf(declared_.dtype), declared_.shape.ToString(), NameOf(type.dtype),
      type.shape.ToString());
}

absl::StatusOr<std::shared_ptr<VariableState>> VariableStore::FindOrCreate(
    const std::string& container, const std::string& name, const ValueType& declared) {
  std::shared_ptr<VariableState> state;
  {
    std::lock_guard lock(mutex_);
    auto& entry = states_[{container, name}];
    if (entry == nullptr)
      entry = std::make_shared<VariableState>(name, declared, cloned_bytes_, lock_nanos_);
    state = entry;
  }
  TUTTI_RETURN_IF_ERROR(state->CheckDeclaration(declared));
  return state;
}

std::shared_ptr<VariableState> VariableStore::Find(const std::string& container,
                                                   const std::string& name) const {
  std::lock_guard lock(mutex_);
  const auto it = states_.find({container, name});
  return it == states_.end() ? nullptr : it->second;
}

std::vector<std::shared_ptr<VariableState>> VariableStore::List() const {
  std::lock_guard lock(mutex_);
  std::vector<std::shared_ptr<VariableState>> list;
  for (const auto& [key, state] : states_) list.push_back(state);
  return list;
}

void VariableStore::Clear(const std::string& container) {
  std::lock_guard lock(mutex_);
  std::erase_if(states_, [&](const auto& entry) { return entry.first.first == container; });
}

}  // namespace tutti
