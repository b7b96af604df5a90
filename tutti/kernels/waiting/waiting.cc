// Who may finish a waiter: the resource when its condition holds, and the cancellation of its step.
// Both do it under the resource's lock and look at `finished` first, so it happens once. The
// registration for cancellation is made and given up under that lock too: a cancellation runs its
// callbacks without holding its own lock, so the order is always resource, then cancellation. A
// callback that was already on its way when the waiter was finished finds it finished and leaves;
// it holds both by shared_ptr and does not touch the node's context.
#include "tutti/kernels/waiting/waiting.h"

#include <fmt/format.h>

namespace tutti {

WaitingResource::Access::~Access() {
  std::vector<std::shared_ptr<Waiter>> finished;
  finished.swap(resource_.finished_);
  lock_.unlock();
  for (const auto& waiter : finished) {
    KernelContext& context = *waiter->context;
    try {
      if (waiter->status.ok()) waiter->status = waiter->Deliver();
    } catch (...) {
      // It must not leave a destructor, and the other waiters are still to be told.
      waiter->status = StatusFromCurrentException();
    }
    context.completion->NodeDone(context.index, waiter->status);
  }
}

std::string WaitingResource::Describe() {
  const Access access(*this);
  return fmt::format("{} {}", kind(), DescribeState());
}

void WaitingResource::Watch(const std::shared_ptr<Waiter>& waiter) {
  if (waiter->finished) return;
  Cancellation& cancellation = waiter->context->cancellation();
  waiter->cancellation =
      cancellation.Register([self = shared_from_this(), waiter] { self->Cancel(waiter); });
  if (waiter->cancellation == Cancellation::kNone) {
    Remove(waiter);
    Finish(waiter, cancellation.status());
  }
}

void WaitingResource::Finish(const std::shared_ptr<Waiter>& waiter, absl::Status status) {
  waiter->finished = true;
  waiter->status = std::move(status);
  waiter->context->cancellation().Forget(waiter->cancellation);
  finished_.push_back(waiter);
}

void WaitingResource::Cancel(const std::shared_ptr<Waiter>& waiter) {
  const Access access(*this);
  if (waiter->finished) return;
  Remove(waiter);
  Finish(waiter, waiter->context->cancellation().status());
}

void FinishNode(KernelContext& context, absl::Status status) {
  context.completion->NodeDone(context.index, std::move(status));
}

}  // namespace tutti
