// Variables and the plain updates. A read hands out a reference; an update works in place when
// nobody else holds one. What is assigned is always copied: the value may lie in planned memory
// that the next step uses again, or in a tensor that the caller changes later.
#include <cstring>
#include <type_traits>

#include "tutti/kernels/ref/register.h"
#include "tutti/kernels/update/accumulate_kernel.h"
#include "tutti/kernels/update/variable_access.h"

namespace tutti {
namespace {

class VariableKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(c.node().output(), c.device()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    if (!c.output_consumed(0)) return absl::OkStatus();
    TUTTI_ASSIGN_OR_RETURN(
        Tensor value, state_->is_sent() ? state_->ReadToSend(c.device().pool()) : state_->Read());
    TUTTI_RETURN_IF_ERROR(CheckDeclared(*state_, value, c.node->type(0)));
    c.SetOutput(0, std::move(value));
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<VariableState> state_;
};

class IsInitializedKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(c.node().input(0), c.device()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    *c.output(0).data<bool>() = state_->initialized();
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<VariableState> state_;
};

class AssignKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(state_, VariableOf(c.node().input(0), c.device()));
    declared_ = {c.node().input(0).dtype(), c.node().input(0).shape()};
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext& c) override {
    const Tensor& value = c.input(1);
    if (!value.shape().CompatibleWith(declared_.shape)) {
      return InvalidArgument("shapes differ: variable \"{}\" is declared as {}, value is {}",
                             state_->name(), declared_.shape.ToString(), value.shape().ToString());
    }
    std::lock_guard lock(state_->mutex());
    Tensor& stored = state_->value_locked();
    const bool fits = stored.valid() && stored.dtype() == value.dtype() &&
                      stored.shape() == value.shape() && stored.buffer()->references() == 1;
    if (!fits) {
      TUTTI_ASSIGN_OR_RETURN(stored, state_->Allocate({value.dtype(), value.shape()}));
    }
    if (value.bytes() > 0) std::memcpy(stored.raw(), value.raw(), value.bytes());
    if (c.output_consumed(0)) c.SetOutput(0, stored);
    return absl::OkStatus();
  }

 private:
  std::shared_ptr<VariableState> state_;
  ValueType declared_;
};

// Signed integers wrap around, as two's complement does, instead of being undefined.
template <typename T, bool kSubtract>
T Accumulate(T a, T b) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(kSubtract ? float(a) - float(b) : float(a) + float(b));
  } else if constexpr (std::is_integral_v<T>) {
    return T(kSubtract ? uint64_t(a) - uint64_t(b) : uint64_t(a) + uint64_t(b));
  } else {
    return kSubtract ? a - b : a + b;
  }
}

void AccumulatePlainly(DType dtype, bool subtract, void* to, const void* from, int64_t count) {
  VisitDType(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!std::is_same_v<T, bool>) {
      T* const out = static_cast<T*>(to);
      const T* const in = static_cast<const T*>(from);
      for (int64_t i = 0; i < count; ++i) {
        out[i] =
            subtract ? Accumulate<T, true>(out[i], in[i]) : Accumulate<T, false>(out[i], in[i]);
      }
    }
  });
}

}  // namespace

void RegisterStateRefKernels(KernelRegistry& registry) {
  AddKernel<VariableKernel>(registry, "Variable", "ref");
  AddKernel<IsInitializedKernel>(registry, "IsInitialized", "ref");
  AddKernel<AssignKernel>(registry, "Assign", "ref");
  AddAccumulateKernels(registry, "ref", {}, AccumulatePlainly);
}

}  // namespace tutti
