#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/base/team.h"
#include "tutti/runtime/executor/lane.h"

namespace tutti {

struct DeviceLaneOptions {
  std::string device = {};      // for messages
  Team team = Team();           // of the device
  std::vector<int> cores = {};  // to which its thread is pinned, and what that starts; empty: not
  collective::Communicator* communicator = nullptr;       // null: no collectives
  std::shared_ptr<std::atomic<int64_t>> busy_nanos = {};  // the device's
  bool crowded = false;  // lanes outnumber the cores: it never spins
};

// The lane of a device, on a thread of its own that is started at the first Post and lasts.
// Thread-safe. REQUIRES: destroyed when no run is under way on it; it may be destroyed by something
// that runs on it.
class DeviceLane {
 public:
  explicit DeviceLane(DeviceLaneOptions options);
  ~DeviceLane();
  DeviceLane(const DeviceLane&) = delete;
  DeviceLane& operator=(const DeviceLane&) = delete;

  // Begins `job` on the lane. RESOURCE_EXHAUSTED, and the job is not begun, when the thread cannot
  // be started.
  absl::Status Post(LaneJob* job);

  // Is it running nodes at this moment?
  bool working() const;

  // A thread that runs a part of the device itself, while other lanes are at work, should not share
  // a core with one of those: brings it to the device's cores.
  void BringCaller() const;

  // For what runs on it.
  Lane& lane();

 private:
  struct State;
  absl::Status Start();

  const std::shared_ptr<State> state_;  // its thread holds it, too
  std::mutex mutex_;
  std::thread thread_;
};

}  // namespace tutti
