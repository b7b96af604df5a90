#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "tutti/cluster/environment/launch_environment.h"

namespace tutti {

class Cancellation;

// PMIx: what Open MPI's mpirun and Slurm's `srun --mpi=pmix` offer the processes that they have
// started. It crosses hosts, and only processes of the job can read what is told. Its library
// (libpmix) is loaded when it is used, and not needed otherwise.
struct Pmix {
  enum class State {
    kNone,     // the launcher has none (no PMIX_NAMESPACE, PMIX_RANK and PMIX_SERVER_URI...)
    kOff,      // TUTTI_PMIX is "off"
    kMissing,  // this build or this host has no libpmix
    kUsed,
  };
  State state = State::kNone;
  std::string why;  // text for users; empty with kUsed
};
// Whether the processes of this job can meet through PMIx; the same on all of them, provided that
// the same is installed on their hosts. INVALID_ARGUMENT if TUTTI_PMIX is anything but "on", "off"
// or empty, and if PMIX_RANK is not the rank of the environment.
absl::StatusOr<Pmix> FindPmix(const LaunchEnvironment& environment, const Lookup& lookup);
absl::StatusOr<Pmix> FindPmix(const LaunchEnvironment& environment);  // of this process

// Gives all processes what process 0 tells. All call it, once; `tell` is that of process 0. Uses up
// the PMIx of this process: a program that calls MPI_Init itself must not. DEADLINE_EXCEEDED when
// not all processes have come. REQUIRES: FindPmix says kUsed.
absl::StatusOr<std::string> TellByPmix(int rank, const std::string& tell, int64_t deadline_nanos,
                                       const Cancellation* cancellation);

namespace pmix {

// Can the library be loaded? FAILED_PRECONDITION or UNIMPLEMENTED, and why, if not.
absl::Status Load();
// The exchange itself; waits for the other processes as long as they take.
absl::StatusOr<std::string> Tell(int rank, const std::string& tell);

}  // namespace pmix
}  // namespace tutti
