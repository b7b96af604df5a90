#include "tutti/runtime/worker_step.h"

#include <cstring>
#include <iterator>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/device/device.h"

namespace tutti {

WorkerStep::WorkerStep(RegisteredStep& registered, RunRequest& request, RunResponse& response,
                       Cancellation& cancellation, Collectives* collectives, Rendezvous* rendezvous)
    : registered_(registered),
      request_(request),
      response_(response),
      cancellation_(cancellation),
      collectives_(collectives),
      rendezvous_(rendezvous),
      start_nanos_(request.trace ? NowNanos() : 0) {
  response.results.resize(registered.fetches);
  if (request.trace) response.trace = std::make_unique<StepTrace>();
}

absl::Status WorkerStep::RunHere(RegisteredStep::Part& part, const Patience& patience) {
  absl::Status status;
  try {
    PartRun run(*this, part);
    status = run.Begin();
    if (status.ok()) {
      status = run.End(RunOnThisThread(run.instance(), run.context(), run.Setup(patience)));
    }
  } catch (...) {
    status = StatusFromCurrentException();
  }
  if (!status.ok()) Failed(status);
  return status;
}

void WorkerStep::Failed(const absl::Status& status) {
  if (!cancellation_.cancelled()) unfinished_.StepFailed();
  cancellation_.Cancel(status);
}

void WorkerStep::Finish(absl::Status status) {
  response_.status = std::move(status);
  if (response_.trace != nullptr) {
    response_.trace->start_nanos = start_nanos_;
    SortFromStart(start_nanos_, response_.trace->nodes);
  }
  if (response_.status.ok()) return;
  cleanup_.Undo();
  response_.unfinished = unfinished_.ToString();
  response_.results.clear();
}

void WorkerStep::AddToTrace(const StepPlan& plan, std::vector<NodeRecord>& records) {
  auto peak = RecordPeak(plan);
  std::lock_guard lock(mutex_);
  StepTrace& trace = *response_.trace;
  trace.arena_bytes += int64_t(plan.arena_bytes());
  trace.peaks.push_back(std::move(peak));
  std::move(records.begin(), records.end(), std::back_inserter(trace.nodes));
}

absl::Status PartRun::Begin() {
  TUTTI_ASSIGN_OR_RETURN(instance_, part_.instances->Take());
  const StepPlan& plan = instance_->plan();
  for (size_t i = 0; i < plan.feeds.size(); ++i) {
    instance_->value(plan.feeds[i]) = std::move(step_.request_.feeds[part_.first_feed + i]);
  }
  context_ = {.random_step = step_.request_.random_step,
              .cancellation = &step_.cancellation_,
              .cleanup = &step_.cleanup_,
              .device = part_.device,
              .rendezvous = step_.rendezvous_,
              .collectives = step_.collectives_};
  return absl::OkStatus();
}

collective::Communicator* PartRun::communicator() const {
  return step_.collectives_ == nullptr || !part_.has_collectives
             ? nullptr
             : &step_.collectives_->communicator();
}

RunSetup PartRun::Setup(const Patience& patience) {
  return {.unfinished = &step_.unfinished_,
          .options = step_.registered_.options,
          .records = step_.request_.trace ? &records_ : nullptr,
          .communicator = communicator(),
          .patience = patience};
}

namespace {

// A result is the client's, to keep and to write into. What the run computed for it has no other
// owner once the run has ended; a variable's value, a constant or a feed has, and is copied.
absl::Status MakeOwn(Tensor& result, Device& device) {
  if (!result.buffer() || result.buffer()->references() == 1) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(Tensor copy, device.pool().Allocate(result.dtype(), result.shape()));
  if (result.bytes() > 0) std::memcpy(copy.raw(), result.raw(), result.bytes());
  result = std::move(copy);
  return absl::OkStatus();
}

}  // namespace

absl::Status PartRun::End(absl::Status status) {
  const StepPlan& plan = instance_->plan();
  TensorList& results = step_.response_.results;
  if (status.ok()) {
    for (size_t i = 0; i < plan.fetches.size(); ++i) {
      results[part_.first_fetch + i] = instance_->value(plan.fetches[i]);
    }
  }
  if (step_.request_.trace) step_.AddToTrace(plan, records_);
  instance_->EndRun();
  const size_t fetches = plan.fetches.size();
  part_.instances->Return(std::move(instance_));
  if (!status.ok()) return status;
  for (size_t i = 0; i < fetches; ++i) {
    TUTTI_RETURN_IF_ERROR(MakeOwn(results[part_.first_fetch + i], *part_.device));
  }
  return absl::OkStatus();
}

}  // namespace tutti
