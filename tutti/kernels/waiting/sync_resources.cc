#include "tutti/kernels/waiting/sync_resources.h"

#include <algorithm>
#include <utility>

#include "tutti/device/device.h"
#include "tutti/device/step_cleanup.h"

namespace tutti {
namespace {

template <typename List>
void RemoveFrom(List& waiting, const std::shared_ptr<Waiter>& waiter) {
  waiting.remove_if([&](const auto& candidate) { return candidate == waiter; });
}

}  // namespace

// --- Mutex.

absl::Status MutexWaiter::Deliver() {
  if (StepCleanup* const cleanup = context->step->cleanup; cleanup != nullptr) {
    cleanup->IfStepFails([held = mutex, token = result] { held->ReleaseIfHeld(token); });
  }
  return NumberWaiter::Deliver();
}

void MutexResource::Acquire(const std::shared_ptr<MutexWaiter>& waiter) {
  const Access access(*this);
  waiting_.push_back(waiter);
  Advance();
  Watch(waiter);
}

absl::Status MutexResource::Release(int64_t token) {
  const Access access(*this);
  if (token != holder_ || holder_ == 0) {
    return FailedPrecondition(
        "token {} does not hold mutex \"{}\"; {}", token, config_.name,
        holder_ == 0 ? std::string("nobody does") : fmt::format("token {} does", holder_));
  }
  holder_ = 0;
  Advance();
  return absl::OkStatus();
}

void MutexResource::ReleaseIfHeld(int64_t token) {
  const Access access(*this);
  if (holder_ != token) return;
  holder_ = 0;
  Advance();
}

std::string MutexResource::DescribeState() const {
  return holder_ == 0 ? fmt::format("\"{}\", which nobody holds", config_.name)
                      : fmt::format("\"{}\", which token {} holds", config_.name, holder_);
}

void MutexResource::Advance() {
  if (holder_ != 0 || waiting_.empty()) return;
  const auto next = waiting_.front();
  waiting_.pop_front();
  holder_ = ++last_token_;
  next->result = holder_;
  Finish(next);
}

void MutexResource::Remove(const std::shared_ptr<Waiter>& waiter) { RemoveFrom(waiting_, waiter); }

// --- Barrier.

void BarrierResource::Arrive(const std::shared_ptr<NumberWaiter>& waiter) {
  const Access access(*this);
  waiting_.push_back(waiter);
  if (int64_t(waiting_.size()) < config_.participants) return Watch(waiter);
  for (const auto& arrived : waiting_) {
    arrived->result = round_;
    Finish(arrived);
  }
  waiting_.clear();
  ++round_;
}

void BarrierResource::Remove(const std::shared_ptr<Waiter>& waiter) {
  RemoveFrom(waiting_, waiter);
}

std::string BarrierResource::Config::ToString() const {
  return fmt::format("{} participants", participants);
}

std::string BarrierResource::DescribeState() const {
  return fmt::format("\"{}\" of {}", config_.name, config_.ToString());
}

// --- Gate.

absl::Status GateWaiter::Deliver() {
  TUTTI_RETURN_IF_ERROR(context->AllocateOutput(0, Shape{int64_t(admitted.size())}));
  std::copy(admitted.begin(), admitted.end(), context->output(0).data<int64_t>());
  return absl::OkStatus();
}

absl::Status GateResource::CheckWorker(int64_t worker) const {
  if (worker >= 0 && worker < config_.workers) return absl::OkStatus();
  return OutOfRange("worker is {}; gate \"{}\" has workers 0 to {}", worker, config_.name,
                    config_.workers - 1);
}

absl::Status GateResource::ForgottenStep(int64_t step) const {
  return OutOfRange("step is {}; gate \"{}\" remembers steps from {} on", step, config_.name,
                    std::max<int64_t>(0, newest_ - kRememberedSteps + 1));
}

bool GateResource::Complete(int64_t number, const Step& step) const {
  if (int64_t(step.admitted.size()) >= config_.admit) return true;
  // Whoever is expected may still come.
  for (int64_t worker = 0; worker < config_.workers; ++worker) {
    if (expected_from_[size_t(worker)] <= number && !step.admitted.contains(worker)) return false;
  }
  return true;
}

absl::StatusOr<bool> GateResource::Enter(int64_t step, int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  if (step < 0) return OutOfRange("step is {}; expected 0 or more", step);
  if (expected_from_[size_t(worker)] == kLeft) {
    return FailedPrecondition("worker {} has left gate \"{}\"", worker, config_.name);
  }
  if (step > newest_) {
    newest_ = step;
    steps_.erase(steps_.begin(), steps_.lower_bound(newest_ - kRememberedSteps + 1));
  }
  if (step <= newest_ - kRememberedSteps) {
    ++refused_[size_t(worker)];
    return false;
  }
  Step& entry = steps_[step];
  if (step == newest_) Advance();  // who waits for a step that is forgotten now gives up
  if (entry.admitted.contains(worker)) return true;
  if (Complete(step, entry)) {
    if (entry.refused.insert(worker).second) ++refused_[size_t(worker)];
    return false;
  }
  entry.admitted.insert(worker);
  Advance();
  return true;
}

void GateResource::Admitted(const std::shared_ptr<GateWaiter>& waiter) {
  const Access access(*this);
  if (waiter->step < 0 || waiter->step <= newest_ - kRememberedSteps) {
    return Finish(waiter, ForgottenStep(waiter->step));
  }
  waiting_.push_back(waiter);
  Advance();
  Watch(waiter);
}

absl::StatusOr<bool> GateResource::Contains(int64_t step, int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  const auto found = steps_.find(step);
  return found != steps_.end() && found->second.admitted.contains(worker);
}

absl::Status GateResource::Leave(int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  expected_from_[size_t(worker)] = kLeft;
  Advance();
  return absl::OkStatus();
}

// Steps that have begun do not wait for it: it may have missed them.
absl::StatusOr<int64_t> GateResource::Join(int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  expected_from_[size_t(worker)] = newest_ + 1;
  Advance();
  return std::max<int64_t>(newest_, 0);
}

std::vector<int64_t> GateResource::refused() {
  const Access access(*this);
  return refused_;
}

void GateResource::Advance() {
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const std::shared_ptr<GateWaiter> waiter = *it;
    if (waiter->step <= newest_ - kRememberedSteps) {
      it = waiting_.erase(it);
      Finish(waiter, ForgottenStep(waiter->step));
      continue;
    }
    const auto step = steps_.find(waiter->step);
    static const Step kNobody;
    const Step& entry = step == steps_.end() ? kNobody : step->second;
    if (!Complete(waiter->step, entry)) {
      ++it;
      continue;
    }
    waiter->admitted.assign(entry.admitted.begin(), entry.admitted.end());
    it = waiting_.erase(it);
    Finish(waiter);
  }
}

void GateResource::Remove(const std::shared_ptr<Waiter>& waiter) { RemoveFrom(waiting_, waiter); }

std::string GateResource::Config::ToString() const {
  return fmt::format("admission of {} of {} workers", admit, workers);
}

std::string GateResource::DescribeState() const {
  return fmt::format(
      "\"{}\", whose newest step is {} and which {} of {} workers have left", config_.name, newest_,
      std::count(expected_from_.begin(), expected_from_.end(), kLeft), config_.workers);
}

// --- Clock.

absl::Status ClockResource::CheckRange(int64_t worker) const {
  if (worker >= 0 && worker < config_.workers) return absl::OkStatus();
  return OutOfRange("worker is {}; clock \"{}\" has workers 0 to {}", worker, config_.name,
                    config_.workers - 1);
}

absl::Status ClockResource::CheckWorker(int64_t worker) const {
  TUTTI_RETURN_IF_ERROR(CheckRange(worker));
  if (times_[worker] != kLeft) return absl::OkStatus();
  return FailedPrecondition("worker {} has left clock \"{}\"", worker, config_.name);
}

int64_t ClockResource::Slowest() const {
  int64_t slowest = kLeft;
  for (const int64_t time : times_) {
    if (time != kLeft && (slowest == kLeft || time < slowest)) slowest = time;
  }
  return slowest;
}

absl::StatusOr<int64_t> ClockResource::Advance(int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  const int64_t time = ++times_[worker];
  FinishWaiters();
  return time;
}

void ClockResource::Wait(const std::shared_ptr<ClockWaiter>& waiter) {
  const Access access(*this);
  absl::Status status = CheckWorker(waiter->worker);
  if (status.ok() && waiter->staleness < 0) {
    status = InvalidArgument("staleness is {}; expected 0 or more", waiter->staleness);
  }
  if (!status.ok()) return Finish(waiter, std::move(status));
  waiting_.push_back(waiter);
  FinishWaiters();
  Watch(waiter);
}

absl::Status ClockResource::Leave(int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckRange(worker));
  times_[worker] = kLeft;
  FinishWaiters();
  return absl::OkStatus();
}

absl::StatusOr<int64_t> ClockResource::Join(int64_t worker) {
  const Access access(*this);
  TUTTI_RETURN_IF_ERROR(CheckRange(worker));
  times_[worker] = kLeft;
  FinishWaiters();  // those of its former self, too
  times_[worker] = Slowest() == kLeft ? last_slowest_ : Slowest();
  return times_[worker];
}

void ClockResource::FinishWaiters() {
  const int64_t slowest = Slowest();
  if (slowest != kLeft) last_slowest_ = slowest;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const std::shared_ptr<ClockWaiter> waiter = *it;
    const int64_t time = times_[waiter->worker];
    if (time != kLeft && time - slowest > waiter->staleness) {
      ++it;
      continue;
    }
    it = waiting_.erase(it);
    waiter->result = slowest;
    Finish(waiter, time == kLeft ? Aborted("worker {} left clock \"{}\" while it waited",
                                           waiter->worker, config_.name)
                                 : absl::OkStatus());
  }
}

void ClockResource::Remove(const std::shared_ptr<Waiter>& waiter) { RemoveFrom(waiting_, waiter); }

std::string ClockResource::Config::ToString() const { return fmt::format("{} workers", workers); }

std::string ClockResource::DescribeState() const {
  const int64_t slowest = Slowest();
  if (slowest == kLeft) return fmt::format("\"{}\", which every worker has left", config_.name);
  const auto who = std::find(times_.begin(), times_.end(), slowest) - times_.begin();
  return fmt::format("\"{}\", whose slowest worker {} is at {}", config_.name, who, slowest);
}

// --- Dispenser.

absl::Status DispenserResource::CheckWorker(int64_t worker) const {
  if (worker >= 0 && worker < config_.workers) return absl::OkStatus();
  return OutOfRange("worker is {}; dispenser \"{}\" has workers 0 to {}", worker, config_.name,
                    config_.workers - 1);
}

absl::StatusOr<int64_t> DispenserResource::Take(int64_t worker) {
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  std::lock_guard lock(mutex_);
  const int64_t number = returned_.empty() ? next_++ : *returned_.begin();
  returned_.erase(number);
  Held& held = held_[size_t(worker)];
  held = {held[1], number};
  return number;
}

absl::StatusOr<DispenserResource::Held> DispenserResource::Return(int64_t worker) {
  TUTTI_RETURN_IF_ERROR(CheckWorker(worker));
  std::lock_guard lock(mutex_);
  const Held held = std::exchange(held_[size_t(worker)], Held{kNone, kNone});
  for (const int64_t number : held) {
    if (number != kNone) returned_.insert(number);
  }
  return held;
}

void DispenserResource::Reset() {
  std::lock_guard lock(mutex_);
  next_ = 0;
  returned_.clear();
  std::fill(held_.begin(), held_.end(), Held{kNone, kNone});
}

// --- Ledger.

absl::Status LedgerResource::Check(int64_t worker, int64_t step) const {
  if (worker < 0 || worker >= config_.workers) {
    return OutOfRange("worker is {}; ledger \"{}\" has workers 0 to {}", worker, config_.name,
                      config_.workers - 1);
  }
  if (step < 0) return OutOfRange("step is {}; expected 0 or more", step);
  return absl::OkStatus();
}

absl::StatusOr<bool> LedgerResource::Enter(int64_t worker, int64_t step, StepCleanup* cleanup) {
  TUTTI_RETURN_IF_ERROR(Check(worker, step));
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[size_t(worker)];
  if (step <= entry.newest) return false;
  if (cleanup != nullptr) {
    cleanup->IfStepFails([self = shared_from_this(), worker, step, before = entry.newest] {
      std::lock_guard again(self->mutex_);
      Entry& failed = self->entries_[size_t(worker)];
      if (failed.newest == step && failed.confirmed < step) failed.newest = before;
    });
  }
  entry.newest = step;
  return true;
}

absl::Status LedgerResource::Confirm(int64_t worker, int64_t step) {
  TUTTI_RETURN_IF_ERROR(Check(worker, step));
  std::lock_guard lock(mutex_);
  Entry& entry = entries_[size_t(worker)];
  entry.confirmed = std::max(entry.confirmed, step);
  return absl::OkStatus();
}

}  // namespace tutti
