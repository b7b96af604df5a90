#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/device/device_info.h"
#include "tutti/runtime/messages/message_codec.h"

// What a task tells of itself: to masters that want its devices, and to `tutti status`.
namespace tutti {

struct TaskStatus {
  struct Link {
    std::string peer;  // "/job:ps/task:0 (10.0.0.7:2222, tcp)"
    uint64_t incarnation = 0;
    uint64_t messages_sent = 0, bytes_sent = 0;
    uint64_t messages_received = 0, bytes_received = 0;
  };
  struct Step {  // one that runs now
    uint64_t session = 0;
    int64_t step = 0;
    std::string master;  // whose step it is
    int64_t running_nanos = 0;
    std::string waits_for;  // "" or the tasks whose values it waits for
  };

  std::string task;
  uint64_t incarnation = 0;
  std::string address;
  std::string error;  // not empty: the task does not answer, and why; nothing else is known then
  int64_t uptime_nanos = 0;
  std::vector<DeviceInfo> devices;
  int64_t sessions = 0;          // that this task is the master of
  int64_t registered_steps = 0;  // for masters elsewhere
  int64_t memory_bytes = 0;      // resident, of the process
  uint64_t refused_values = 0;   // for steps that were over or not known
  uint64_t refused_links = 0;    // of older or fenced processes of a task, or of another cluster
  uint64_t fenced_messages = 0;  // that were ignored, of processes that had lost their place
  // On all links so far, those that have ended included.
  uint64_t bytes_received = 0, bytes_sent = 0;
  int64_t requests = 0;      // parts of steps that masters elsewhere asked for, so far
  int64_t busy_nanos = 0;    // running nodes, all devices together, so far
  int64_t lock_nanos = 0;    // readers and updates of variables waiting for each other
  int64_t cloned_bytes = 0;  // of variables that updates copied because somebody held them
  std::vector<Link> links;
  std::vector<Step> steps;
};

void EncodeTaskStatus(const TaskStatus& status, WireMessage& to);
absl::StatusOr<TaskStatus> DecodeTaskStatus(std::string_view fields);

void EncodeTaskStatuses(const std::vector<TaskStatus>& statuses, WireMessage& to);
absl::StatusOr<std::vector<TaskStatus>> DecodeTaskStatuses(std::string_view fields);

}  // namespace tutti
