#include "tutti/kernels/accumulator_resource.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tutti/device/device.h"
#include "tutti/kernels/row_indices.h"

namespace tutti {
namespace {

// Signed integers wrap around.
template <typename T>
T Plus(T a, T b) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
    return T(float(a) + float(b));
  } else if constexpr (std::is_integral_v<T>) {
    return T(uint64_t(a) + uint64_t(b));
  } else {
    return a + b;
  }
}

template <typename T>
void AddTo(T* sum, const T* values, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] = Plus(sum[i], values[i]);
}

void AddContribution(const Contribution& contribution, Tensor& sum) {
  VisitDType(sum.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = contribution.values.data<T>();
    if (!contribution.indices.valid()) return AddTo(sum.data<T>(), values, sum.elements());
    const int64_t width = RowWidth(sum.shape());
    const int64_t* indices = contribution.indices.data<int64_t>();
    for (int64_t i = 0; i < contribution.indices.elements(); ++i, values += width) {
      AddTo(sum.data<T>() + indices[i] * width, values, width);
    }
  });
}

}  // namespace

absl::Status AccumulatorTakeWaiter::Deliver() { return rows ? DeliverRows() : DeliverSum(); }

absl::Status AccumulatorTakeWaiter::DeliverSum() {
  TUTTI_RETURN_IF_ERROR(context->AllocateOutput(0, context->node->type(0).shape));
  Tensor& sum = context->output(0);
  if (sum.bytes() > 0) std::memset(sum.raw(), 0, sum.bytes());
  for (const Contribution& contribution : contributions) AddContribution(contribution, sum);
  contributions.clear();
  return absl::OkStatus();
}

absl::Status AccumulatorTakeWaiter::DeliverRows() {
  int64_t count = 0;
  for (size_t i = 0; i < contributions.size(); ++i) {
    if (!contributions[i].indices.valid()) {
      return FailedPrecondition(
          "slot {} gave a dense tensor to step {}; take the sum with AccumulatorTake", slots[i],
          step);
    }
    count += contributions[i].indices.elements();
  }
  TUTTI_RETURN_IF_ERROR(context->AllocateOutput(0, Shape{count}));
  TUTTI_RETURN_IF_ERROR(context->AllocateOutput(1, context->node->type(1).shape.WithDim(0, count)));
  auto* index_to = static_cast<std::byte*>(context->output(0).raw());
  auto* row_to = static_cast<std::byte*>(context->output(1).raw());
  for (const Contribution& contribution : contributions) {
    const size_t index_bytes = contribution.indices.bytes();
    const size_t row_bytes = contribution.values.bytes();
    if (index_bytes > 0) std::memcpy(index_to, contribution.indices.raw(), index_bytes);
    if (row_bytes > 0) std::memcpy(row_to, contribution.values.raw(), row_bytes);
    index_to += index_bytes;
    row_to += row_bytes;
  }
  contributions.clear();
  return absl::OkStatus();
}

absl::Status AccumulatorResource::Apply(int64_t step, int64_t slot, Contribution contribution) {
  const Access access(*this);
  if (step < 0 || slot < 0) {
    return OutOfRange("step is {} and slot is {}; expected 0 or more", step, slot);
  }
  if (step <= last_taken_) {
    return FailedPrecondition(
        "slot {} comes too late to step {}: accumulator \"{}\" was taken up to step {}", slot, step,
        config_.name, last_taken_);
  }
  if (!steps_[step].emplace(slot, std::move(contribution)).second) {
    return AlreadyExists("slot {} has contributed to step {} of accumulator \"{}\" already", slot,
                         step, config_.name);
  }
  Advance();
  return absl::OkStatus();
}

void AccumulatorResource::Take(const std::shared_ptr<AccumulatorTakeWaiter>& waiter) {
  const Access access(*this);
  if (waiter->step < 0 || waiter->step <= last_taken_) {
    return Finish(waiter,
                  FailedPrecondition("step is {}: accumulator \"{}\" was taken up to step {}",
                                     waiter->step, config_.name, last_taken_));
  }
  waiting_.push_back(waiter);
  Advance();
  Watch(waiter);
}

void AccumulatorResource::Advance() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const std::shared_ptr<AccumulatorTakeWaiter> waiter = *it;
    if (waiter->step <= last_taken_) {
      it = waiting_.erase(it);
      Finish(waiter, Aborted("step {} of accumulator \"{}\" was taken by somebody else",
                             waiter->step, config_.name));
      continue;
    }
    const auto step = steps_.find(waiter->step);
    const bool ready = std::all_of(waiter->slots.begin(), waiter->slots.end(), [&](int64_t slot) {
      return step != steps_.end() && step->second.contains(slot);
    });
    if (!ready) {
      ++it;
      continue;
    }
    for (const int64_t slot : waiter->slots) {
      waiter->contributions.push_back(std::move(step->second.at(slot)));
    }
    last_taken_ = waiter->step;
    steps_.erase(steps_.begin(), steps_.upper_bound(last_taken_));
    waiting_.erase(it);
    Finish(waiter);
    it = waiting_.begin();  // others may have waited for a step that is gone
  }
}

void AccumulatorResource::Remove(const std::shared_ptr<Waiter>& waiter) {
  waiting_.remove_if([&](const auto& candidate) { return candidate == waiter; });
}

std::string AccumulatorResource::Config::ToString() const {
  return fmt::format("{} {}", NameOf(dtype), shape.ToString());
}

std::string AccumulatorResource::DescribeState() const {
  return fmt::format("\"{}\", which holds contributions to {} steps", config_.name, steps_.size());
}

}  // namespace tutti
