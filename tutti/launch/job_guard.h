#pragma once

#include <sys/types.h>

#include "absl/status/statusor.h"

namespace tutti {

// Ends the tasks of a job, and whatever they started, when this process dies without having done so
// itself, even by SIGKILL: a small process of its own, which holds nothing of this one but the end
// of a connection, and ends with it. Not thread-safe.
class JobGuard {
 public:
  static absl::StatusOr<JobGuard> Start();
  JobGuard(JobGuard&& other) noexcept;
  JobGuard& operator=(JobGuard&&) = delete;
  // The guard ends; what it still watches is ended by force.
  ~JobGuard();

  // A process group that must not outlive this process.
  void Watch(pid_t group) const;
  // It has ended: its number may become another's.
  void Forget(pid_t group) const;

 private:
  explicit JobGuard(int socket) : socket_(socket) {}

  int socket_;
};

}  // namespace tutti
