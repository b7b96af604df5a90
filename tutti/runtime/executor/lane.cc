// How a lane shares its thread among runs. Runs with something to do stand in a queue; the lane
// takes the first, which runs nodes until it has none that is ready or its turn is over, and stands
// at the end of the queue again in the second case. Everything else arrives: nodes that completed
// elsewhere and parts of new steps. An arrival only puts its run into the queue, so that many small
// steps cannot keep a large one from its turn, nor the other way round.
//
// Bodies of If and While are runs of their own. They draw on the same turn as the run around them,
// so a loop of a million short iterations gives way like a plan of a million nodes.
//
// What nodes send to other tasks in one turn gathers, and is written at its end: the variables that
// a step reads, or its gradients, wake their receiver once (net/link/gathered_sends.h).
#include "tutti/runtime/executor/lane.h"

#include "tutti/base/clock.h"
#include "tutti/collective/communicator.h"
#include "tutti/net/link/gathered_sends.h"
#include "tutti/runtime/executor/executor.h"

namespace tutti {

void Lane::Push(StepRun* run, uint32_t node, absl::Status status) {
  Add({run, nullptr, node, std::move(status)});
}

void Lane::Push(LaneJob* job) { Add({nullptr, job, 0, absl::OkStatus()}); }

void Lane::Add(Arrival arrival) {
  std::lock_guard lock(mutex_);
  arrivals_.push_back(std::move(arrival));
  arrived_.store(true, std::memory_order_release);
  if (owner_.load(std::memory_order_relaxed) == std::this_thread::get_id()) return;
  // Notified under the lock: once the lane has seen the arrival it may end, and this object with
  // it.
  if (asleep_) changed_.notify_one();
  if (in_communicator_) options_.communicator->Wake();
}

bool Lane::TakeArrivals() {
  if (!arrived_.load(std::memory_order_acquire)) return false;
  std::lock_guard lock(mutex_);
  taken_.swap(arrivals_);
  arrived_.store(false, std::memory_order_relaxed);
  return true;
}

void Lane::HandleTaken() {
  left_ = 0;  // a job's run stands in the queue before it runs its first node
  for (Arrival& arrival : taken_) {
    if (arrival.run != nullptr) {
      arrival.run->Complete(arrival.node, std::move(arrival.status));
    } else {
      arrival.job->RunOnLane();
    }
  }
  taken_.clear();
}

void Lane::Enqueue(StepRun& run) {
  if (run.queued_) return;
  run.queued_ = true;
  run.next_in_lane_ = nullptr;
  (last_ == nullptr ? first_ : last_->next_in_lane_) = &run;
  last_ = &run;
}

StepRun* Lane::Dequeue() {
  StepRun* const run = first_;
  if (run == nullptr) return nullptr;
  first_ = run->next_in_lane_;
  if (first_ == nullptr) last_ = nullptr;
  run->queued_ = false;
  return run;
}

void Lane::Drive(const bool* done) {
  if (*done) return;
  const net::GatheredSends gathered;
  owner_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  SetWorking(true);
  while (!*done) {
    if (TakeArrivals()) HandleTaken();
    if (StepRun* const run = Dequeue()) {
      left_ = options_.turn;
      run->TakeTurn();
      net::GatheredSends::Flush();
    } else if (!*done) {
      SetWorking(false);
      net::GatheredSends::Flush();
      communicator() == nullptr ? Await() : AwaitAndCommunicate();
      SetWorking(true);
    }
  }
  SetWorking(false);
}

void Lane::SetWorking(bool working) {
  working_.store(working, std::memory_order_relaxed);
  if (options_.busy_nanos == nullptr) return;
  const int64_t now = NowNanos();
  if (!working) {
    options_.busy_nanos->fetch_add(now - working_since_, std::memory_order_relaxed);
  }
  working_since_ = now;
}

void Lane::Await() {
  if (LookFor([this] { return arrived_.load(std::memory_order_acquire); }, options_.patience)) {
    return;
  }
  std::unique_lock lock(mutex_);
  asleep_ = true;
  changed_.wait(lock, [&] { return !arrivals_.empty(); });
  asleep_ = false;
}

void Lane::AwaitAndCommunicate() {
  constexpr int64_t kLongest = 100'000'000;  // a missed wake-up costs 0.1 s, not the job
  {
    std::lock_guard lock(mutex_);
    if (!arrivals_.empty()) return;
    in_communicator_ = true;
  }
  options_.communicator->SetIdle(true);
  while (!arrived_.load(std::memory_order_acquire)) {
    if (!options_.communicator->Poll()) options_.communicator->WaitForWork(kLongest);
  }
  options_.communicator->SetIdle(false);
  std::lock_guard lock(mutex_);
  in_communicator_ = false;
}

}  // namespace tutti
