#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tutti/cluster/environment/launch_environment.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/net/socket.h"

namespace tutti {

class Cancellation;

struct MeetOptions {
  // How the processes divide the roles: the chief, workers, so many ps, the evaluator.
  int ps = 0;
  bool evaluator = false;
  double timeout_seconds = 60;
  const Cancellation* cancellation = nullptr;  // ends the waiting; may be null
};

// A process of a job that knows where all others are.
struct MetTasks {
  TaskConfig config;
  std::string token;  // of the job, for TUTTI_JOB_TOKEN
  net::Socket port;   // listens at the task's address already
};

// Lets the processes of a job that MPI, Slurm or torchrun has started find each other: all meet at
// process 0, at a port made from the job's name (PortOfJob; TUTTI_JOB_PORT overrides it), and tell
// where they listen. Where process 0 is, and the job's token, come from the environment
// (TUTTI_JOB_TOKEN), from PMIx (pmix_client.h; its port is any then) or from mpiexec
// (pmi_client.h), else from a file of mode 0600 that process 0 writes into TUTTI_JOB_DIR, or
// $HOME/.tutti, and removes when all have come. TUTTI_HOST is the address of this host where the
// one of its first interface is not right. All processes call it. REQUIRES: the environment is of a
// launcher with ranks, and size > 1.
absl::StatusOr<MetTasks> MeetTasks(const LaunchEnvironment& environment,
                                   const MeetOptions& options);

}  // namespace tutti
