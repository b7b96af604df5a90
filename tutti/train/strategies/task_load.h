#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// What a task of a training has done so far, or between two moments. A plain value.
struct TaskLoad {
  std::string task = {};       // "/job:ps/task:0"; empty: not known
  int64_t nanos = 0;           // that have passed
  int64_t busy_nanos = 0;      // running nodes
  int64_t requests = 0;        // parts of steps that other tasks asked for
  int64_t bytes_received = 0;  // from other tasks
  int64_t bytes_sent = 0;
  int64_t lock_nanos = 0;    // readers and updates of variables waiting for each other
  int64_t cloned_bytes = 0;  // of variables that updates copied because somebody held them

  TaskLoad Since(const TaskLoad& before) const {
    return {task,
            nanos - before.nanos,
            busy_nanos - before.busy_nanos,
            requests - before.requests,
            bytes_received - before.bytes_received,
            bytes_sent - before.bytes_sent,
            lock_nanos - before.lock_nanos,
            cloned_bytes - before.cloned_bytes};
  }
};

}  // namespace tutti
