#include "tutti/kernels/waiting/accumulator_resource.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tutti/device/device.h"
#include "tutti/kernels/update/row_indices.h"

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

// sum = a + b; `sum` may be `a`. Blocks of a fixed size, which the compiler makes vectors of.
template <typename T>
void AddTo(T* sum, const T* a, const T* b, int64_t count) {
  constexpr int64_t kBlock = 64 / sizeof(T);
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    T block[kBlock];
    for (int64_t j = 0; j < kBlock; ++j) block[j] = Plus(a[i + j], b[i + j]);
    std::memcpy(sum + i, block, sizeof(block));
  }
  for (; i < count; ++i) sum[i] = Plus(a[i], b[i]);
}

constexpr int64_t kGrain = 16384;  // elements; fewer are not worth another core

void AddTensors(const Tensor& a, const Tensor& b, const Team& team, Tensor& sum) {
  VisitDType(sum.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    T* const to = sum.data<T>();
    team.ParallelFor(sum.elements(), kGrain, [&](int64_t begin, int64_t end) {
      AddTo(to + begin, a.data<T>() + begin, b.data<T>() + begin, end - begin);
    });
  });
}

void AddRows(const Contribution& contribution, Tensor& sum) {
  VisitDType(sum.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = contribution.values.data<T>();
    T* const to = sum.data<T>();
    const int64_t width = RowWidth(sum.shape());
    const int64_t* indices = contribution.indices.data<int64_t>();
    for (int64_t i = 0; i < contribution.indices.elements(); ++i, values += width) {
      T* const row = to + indices[i] * width;
      AddTo(row, row, values, width);
    }
  });
}

}  // namespace

absl::Status AccumulatorTakeWaiter::Deliver() {
  if (rows) return DeliverRows();
  context->SetOutput(0, std::move(sum));
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

bool AccumulatorResource::HasContributed(int64_t step, int64_t slot) const {
  if (const auto taken = taken_.find(step); taken != taken_.end()) {
    return std::find(taken->second.begin(), taken->second.end(), slot) != taken->second.end();
  }
  const auto it = steps_.find(step);
  if (it == steps_.end()) return false;
  const std::vector<int64_t>& summed = it->second.summed;
  return it->second.kept.contains(slot) ||
         std::find(summed.begin(), summed.end(), slot) != summed.end();
}

absl::Status AccumulatorResource::Apply(int64_t step, int64_t slot, bool once,
                                        Contribution contribution) {
  const Access access(*this);
  if (step < 0 || slot < 0) {
    return OutOfRange("step is {} and slot is {}; expected 0 or more", step, slot);
  }
  const bool repeated = HasContributed(step, slot);
  if (repeated && once) return absl::OkStatus();
  if (step <= last_taken_) {
    return FailedPrecondition(
        "slot {} comes too late to step {}: accumulator \"{}\" was taken up to step {}", slot, step,
        config_.name, last_taken_);
  }
  if (repeated) {
    return AlreadyExists("slot {} has contributed to step {} of accumulator \"{}\" already", slot,
                         step, config_.name);
  }
  steps_[step].kept.emplace(slot, std::move(contribution));
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
      Finish(waiter, Aborted("step {} of accumulator \"{}\" was taken by another node",
                             waiter->step, config_.name));
      continue;
    }
    const absl::StatusOr<bool> ready = IsReady(*waiter);
    if (ready.ok() && !*ready) {
      ++it;
      continue;
    }
    waiting_.erase(it);
    if (ready.ok()) {
      last_taken_ = waiter->step;
      steps_.erase(steps_.begin(), steps_.upper_bound(last_taken_));
      taken_.erase(taken_.begin(), taken_.lower_bound(last_taken_ - kRememberedSteps + 1));
    }
    Finish(waiter, ready.status());
    it = waiting_.begin();  // others may have waited for a step that is gone
  }
}

absl::StatusOr<bool> AccumulatorResource::IsReady(AccumulatorTakeWaiter& waiter) {
  Step& step = steps_[waiter.step];
  const std::vector<int64_t>& slots = waiter.slots;
  // A Take that was cancelled may have begun the sum.
  if (step.summed.size() > (waiter.rows ? 0 : slots.size()) ||
      !std::equal(step.summed.begin(), step.summed.end(), slots.begin())) {
    return FailedPrecondition(
        "the sum of step {} of accumulator \"{}\" was begun with slots {}, for a Take that was "
        "cancelled; take it with slots that begin with these",
        waiter.step, config_.name, fmt::join(step.summed, ", "));
  }
  if (!waiter.rows) {
    while (step.summed.size() < slots.size() && step.kept.contains(slots[step.summed.size()])) {
      TUTTI_RETURN_IF_ERROR(AddNext(step, slots[step.summed.size()], *waiter.context));
    }
    if (step.summed.size() < slots.size()) return false;
    if (slots.empty()) TUTTI_RETURN_IF_ERROR(AddNext(step, -1, *waiter.context));
    if (!step.own) TUTTI_RETURN_IF_ERROR(MakeOwn(step, *waiter.context));
    waiter.sum = std::move(step.sum);
  } else {
    for (const int64_t slot : slots) {
      if (!step.kept.contains(slot)) return false;
    }
    for (const int64_t slot : slots) waiter.contributions.push_back(step.kept.at(slot));
  }
  std::vector<int64_t>& contributed = taken_[waiter.step];
  contributed = std::move(step.summed);
  for (const auto& [slot, contribution] : step.kept) contributed.push_back(slot);
  return true;
}

// Slot -1 contributes nothing.
absl::Status AccumulatorResource::AddNext(Step& step, int64_t slot, KernelContext& context) {
  Contribution contribution;
  if (slot >= 0) {
    contribution = std::move(step.kept.at(slot));
    step.kept.erase(slot);
    step.summed.push_back(slot);
    if (!contribution.indices.valid()) return AddDense(step, contribution, context);
  }
  if (!step.sum.valid()) {
    TUTTI_ASSIGN_OR_RETURN(step.sum,
                           context.device().pool().Allocate(config_.dtype, config_.shape));
    if (step.sum.bytes() > 0) std::memset(step.sum.raw(), 0, step.sum.bytes());
  }
  if (!step.own) TUTTI_RETURN_IF_ERROR(MakeOwn(step, context));
  if (slot >= 0) AddRows(contribution, step.sum);
  return absl::OkStatus();
}

// The first contribution becomes the sum itself. One that lies in memory of its sender is read
// there: the second is added to it into fresh memory, and neither is ever copied.
absl::Status AccumulatorResource::AddDense(Step& step, const Contribution& contribution,
                                           KernelContext& context) {
  if (!step.sum.valid()) {
    step.sum = contribution.values;
    step.own = contribution.own;
    return absl::OkStatus();
  }
  const Tensor first = step.sum;
  if (!step.own) {
    TUTTI_ASSIGN_OR_RETURN(step.sum,
                           context.device().pool().Allocate(config_.dtype, config_.shape));
    step.own = true;
  }
  AddTensors(first, contribution.values, context.team(), step.sum);
  return absl::OkStatus();
}

// Whoever takes the sum may write into it.
absl::Status AccumulatorResource::MakeOwn(Step& step, KernelContext& context) {
  TUTTI_ASSIGN_OR_RETURN(Tensor copy,
                         context.device().pool().Allocate(config_.dtype, config_.shape));
  if (copy.bytes() > 0) std::memcpy(copy.raw(), step.sum.raw(), copy.bytes());
  step.sum = std::move(copy);
  step.own = true;
  return absl::OkStatus();
}

void AccumulatorResource::Remove(const std::shared_ptr<Waiter>& waiter) {
  waiting_.remove_if([&](const auto& candidate) { return candidate == waiter; });
}

std::string AccumulatorResource::Config::ToString() const {
  return fmt::format("{} {}", NameOf(dtype), shape.ToString());
}

std::string AccumulatorResource::DescribeState() const {
  const auto count = std::count_if(steps_.begin(), steps_.end(), [](const auto& step) {
    return !step.second.kept.empty() || !step.second.summed.empty();
  });
  return fmt::format("\"{}\", which holds contributions to {} steps", config_.name, count);
}

}  // namespace tutti
