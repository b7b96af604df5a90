#include "tutti/device/variable_store.h"

#include "tutti/base/error.h"

namespace tutti {

bool VariableState::initialized() const {
  std::lock_guard lock(mutex_);
  return value_.valid();
}

int64_t VariableState::bytes() const {
  std::lock_guard lock(mutex_);
  return value_.valid() ? int64_t(value_.bytes()) : 0;
}

absl::StatusOr<Tensor> VariableState::Read() const {
  std::lock_guard lock(mutex_);
  if (!value_.valid()) {
    return FailedPrecondition(
        "variable \"{}\" has no value yet; call Session::Initialize() or Assign first", name_);
  }
  return value_;
}

void VariableState::Assign(Tensor value) {
  std::lock_guard lock(mutex_);
  value_ = std::move(value);
}

absl::Status VariableState::MakeWritable() {
  if (!value_.valid()) {
    return FailedPrecondition(
        "variable \"{}\" has no value yet; call Session::Initialize() or Assign first", name_);
  }
  if (value_.buffer()->references() > 1) {
    try {
      value_ = value_.Clone();
      if (cloned_bytes_ != nullptr) {
        cloned_bytes_->fetch_add(int64_t(value_.bytes()), std::memory_order_relaxed);
      }
    } catch (const Error& error) {
      return ResourceExhausted("variable \"{}\": {}", name_, error.what());
    }
  }
  return absl::OkStatus();
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
    if (entry == nullptr) entry = std::make_shared<VariableState>(name, declared, cloned_bytes_);
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
