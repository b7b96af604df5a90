#include "tutti/runtime/executor/device_lane.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/base/cores.h"
#include "tutti/base/log.h"
#include "tutti/base/thread.h"

namespace tutti {
namespace {

// Passing from one run to the next costs some 10 ns, a node of a model 1 us and more: a turn of
// this many nodes is short for those who wait, and the passing does not count.
constexpr int64_t kTurn = 16;

LaneOptions OptionsOf(const DeviceLaneOptions& options) {
  LaneOptions lane{
      .communicator = options.communicator, .turn = kTurn, .busy_nanos = options.busy_nanos};
  if (options.crowded) lane.patience = {.spin_nanos = 0, .yield_nanos = 0};
  return lane;
}

}  // namespace

struct DeviceLane::State {
  explicit State(DeviceLaneOptions given) : options(std::move(given)), lane(OptionsOf(options)) {}

  struct StopJob final : LaneJob {
    void RunOnLane() override { stopped = true; }
    bool stopped = false;
  };

  void Run() {
    if (!options.cores.empty()) {
      if (const absl::Status status = RunThreadOnCores(options.cores); !status.ok()) {
        Log(LogLevel::kWarning, "the lane of {} is not pinned: {}", options.device,
            MessageOf(status));
      }
    }
    TeamScope team(options.team);
    lane.Drive(&stop.stopped);
  }

  const DeviceLaneOptions options;
  Lane lane;
  StopJob stop;
};

DeviceLane::DeviceLane(DeviceLaneOptions options)
    : state_(std::make_shared<State>(std::move(options))) {}

DeviceLane::~DeviceLane() {
  if (!thread_.joinable()) return;
  state_->lane.Push(&state_->stop);
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

absl::Status DeviceLane::Start() {
  std::lock_guard lock(mutex_);
  if (thread_.joinable()) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(thread_, StartThread(fmt::format("the lane of {}", state_->options.device),
                                              [state = state_] { state->Run(); }));
  return absl::OkStatus();
}

absl::Status DeviceLane::Post(LaneJob* job) {
  TUTTI_RETURN_IF_ERROR(Start());
  state_->lane.Push(job);
  return absl::OkStatus();
}

bool DeviceLane::working() const { return state_->lane.working(); }

void DeviceLane::BringCaller() const { MoveThreadTo(state_->options.cores); }

Lane& DeviceLane::lane() { return state_->lane; }

}  // namespace tutti
