// How a plan runs on a lane. The ready set is a bitmap over the plan's order; the lane always takes
// the lowest bit. So a plan without asynchronous nodes runs exactly in order, which is what its
// memory was planned for, and one with them runs whatever is next among what is ready. Taking and
// setting a bit costs a few instructions, and the search starts where the last one ended.
//
// A node that fails ends the step: nothing more is started, the step's cancellation is raised so
// that waiting nodes return, and when the last of them has, the run finishes with the first error.
// What a kernel or a shape function throws is such a failure too: no exception leaves a node. A
// step that is ended from outside (out of time, closed) notes which of its nodes were not done.
#include "tutti/runtime/executor/executor.h"

#include <bit>

#include "tutti/base/clock.h"
#include "tutti/base/team.h"
#include "tutti/collective/communicator.h"
#include "tutti/device/device.h"
#include "tutti/net/link/gathered_sends.h"
#include "tutti/runtime/executor/unfinished.h"

namespace tutti {

void StepRun::Start(std::function<void()> finished) {
  finished_ = std::move(finished);
  status_ = absl::OkStatus();
  outstanding_ = 0;
  first_word_ = 0;
  timings_.clear();
  step_.run = this;
  instance_.BeginRun(&step_, this);
  RunReady();
  FinishIfDone();
}

void StepRun::NodeDone(uint32_t node, absl::Status status) {
  lane_.Push(this, node, std::move(status));
}

void StepRun::Complete(uint32_t node, absl::Status status) {
  if (status.ok()) {
    FinishNode(node);
  } else {
    Fail(node, status);
  }
  SetOutstanding(node, false);
  lane_.Enqueue(*this);
}

void StepRun::TakeTurn() {
  RunReady();
  FinishIfDone();
}

void StepRun::RunReady() {
  std::vector<uint64_t>& ready = instance_.ready();
  const auto words = uint32_t(ready.size());
  if (running_) return;
  running_ = true;
  while (first_word_ < words) {
    const uint64_t word = ready[first_word_];
    if (word == 0) {
      ++first_word_;
      continue;
    }
    if (!status_.ok()) break;
    if (!lane_.SpendOne()) {
      lane_.Enqueue(*this);
      break;
    }
    const uint32_t bit = uint32_t(std::countr_zero(word));
    ready[first_word_] = word & (word - 1);
    RunOne(first_word_ * 64 + bit);
    if (outstanding_ > 0 && lane_.communicator() != nullptr) lane_.communicator()->Poll();
  }
  running_ = false;
}

void StepRun::RunOne(uint32_t i) {
  PlanInstance::RunNode& node = instance_.nodes()[i];
  if (step_.cancellation->cancelled()) {
    Fail(i, step_.cancellation->status());
    return;
  }
  if (node.flags & PlanInstance::kAsync) {
    if (const absl::Status status = StartAsync(i); !status.ok()) Fail(i, status);
    return;
  }
  if (node.long_running) net::GatheredSends::Flush();
  if (records != nullptr) timings_.push_back({i, NowNanos(), 0});
  const absl::Status status = Compute(i);
  if (status.ok()) {
    FinishNode(i);
  } else {
    Fail(i, status);
  }
}

absl::Status StepRun::Compute(uint32_t i) {
  PlanInstance::RunNode& node = instance_.nodes()[i];
  try {
    if (node.flags != 0) TUTTI_RETURN_IF_ERROR(instance_.PrepareToRun(i));
    return node.kernel->Compute(node.context);
  } catch (...) {
    return StatusFromCurrentException();
  }
}

// A kernel whose Start throws has not called NodeDone and never will.
absl::Status StepRun::StartAsync(uint32_t i) {
  PlanInstance::RunNode& node = instance_.nodes()[i];
  try {
    if (node.flags != PlanInstance::kAsync) TUTTI_RETURN_IF_ERROR(instance_.PrepareToRun(i));
    if (records != nullptr) timings_.push_back({i, NowNanos(), 0});
  } catch (...) {
    return StatusFromCurrentException();
  }
  SetOutstanding(i, true);
  try {
    node.kernel->AsAsync()->Start(node.context);
  } catch (...) {
    SetOutstanding(i, false);
    return StatusFromCurrentException();
  }
  return absl::OkStatus();
}

void StepRun::FinishNode(uint32_t i) {
  if (records != nullptr) {
    for (auto it = timings_.rbegin(); it != timings_.rend(); ++it) {
      if (it->node == i && it->end_nanos == 0) {
        it->end_nanos = NowNanos();
        break;
      }
    }
  }
  const PlanInstance::RunNode& node = instance_.nodes()[i];
  if (node.drop_count > 0) instance_.DropInputs(node);
  std::vector<uint32_t>& waiting = instance_.waiting();
  std::vector<uint64_t>& ready = instance_.ready();
  for (uint32_t k = 0; k < node.successor_count; ++k) {
    const uint32_t next = node.successors[k];
    if (--waiting[next] > 0) continue;
    ready[next / 64] |= uint64_t{1} << (next % 64);
    if (next / 64 < first_word_) first_word_ = next / 64;
  }
}

void StepRun::Fail(uint32_t i, const absl::Status& status) {
  if (!status_.ok()) return;  // the first cause stays
  if (step_.cancellation->cancelled()) {
    status_ = step_.cancellation->status();
    if (unfinished != nullptr) TellUnfinished(i);
    return;
  }
  status_ =
      WithPrefix(status, fmt::format("{} on {}: ", instance_.nodes()[i].context.node->Describe(),
                                     instance_.plan().device->name()));
  if (unfinished != nullptr) unfinished->StepFailed();
  step_.cancellation->Cancel(status_);
}

// Of a step that was ended: the nodes that wait, and node i when it was about to start.
void StepRun::TellUnfinished(uint32_t i) {
  const auto tell = [&](uint32_t node, std::string why) {
    unfinished->Add(fmt::format("{} on {}", instance_.nodes()[node].context.node->Describe(),
                                instance_.plan().device->name()),
                    std::move(why));
  };
  const std::vector<uint64_t>& outstanding = instance_.outstanding();
  if ((outstanding[i / 64] >> (i % 64) & 1) == 0) tell(i, "not started");
  for (uint32_t word = 0; word < outstanding.size() && outstanding_ > 0; ++word) {
    for (uint64_t bits = outstanding[word]; bits != 0; bits &= bits - 1) {
      const uint32_t node = word * 64 + uint32_t(std::countr_zero(bits));
      const PlanInstance::RunNode& run = instance_.nodes()[node];
      const std::string awaited = run.kernel->AsAsync()->Awaited(run.context);
      tell(node, awaited.empty() ? "" : "waits for " + awaited);
    }
  }
}

void StepRun::SetOutstanding(uint32_t i, bool outstanding) {
  uint64_t& word = instance_.outstanding()[i / 64];
  const uint64_t bit = uint64_t{1} << (i % 64);
  word = outstanding ? word | bit : word & ~bit;
  outstanding ? ++outstanding_ : --outstanding_;
}

void StepRun::FinishIfDone() {
  if (outstanding_ > 0 || running_ || queued_ || finished_ == nullptr) return;
  if (records != nullptr) {
    try {
      AppendRecords(instance_.plan(), timings_, *records);
    } catch (...) {
      status_.Update(StatusFromCurrentException());
    }
  }
  const std::function<void()> finished = std::exchange(finished_, nullptr);
  finished();
}

absl::Status RunOnThisThread(PlanInstance& instance, StepContext& step, const RunSetup& setup) {
  Device& device = *instance.plan().device;
  TeamScope team(device.team());
  const net::GatheredSends gathered;
  Lane lane({.communicator = setup.communicator,
             .patience = setup.patience,
             .busy_nanos = device.busy_nanos()});
  if (setup.communicator != nullptr) lane.BeginCollectives();
  StepRun run(instance, lane, step);
  run.records = setup.records;
  run.options = setup.options;
  run.unfinished = setup.unfinished;
  bool done = false;
  const int64_t start = NowNanos();
  run.Start([&done] { done = true; });
  device.busy_nanos()->fetch_add(NowNanos() - start, std::memory_order_relaxed);
  lane.Drive(&done);
  return run.status();
}

}  // namespace tutti
