#include "tutti/device/variable_store.h"

#include "tutti/base/error.h"

namespace tutti {

bool VariableState::initialized() const {
  std::lock_guard lock(mutex_);
  return value_.valid();
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
    } catch (const Error& error) {
      return ResourceExhausted("variable \"{}\": {}", name_, error.what());
    }
  }
  return absl::OkStatus();
}

std::shared_ptr<VariableState> VariableStore::FindOrCreate(const std::string& container,
                                                           const std::string& name) {
  std::lock_guard lock(mutex_);
  auto& state = states_[{container, name}];
  if (state == nullptr) state = std::make_shared<VariableState>(name);
  return state;
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
