#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tutti {

enum class LaunchKind { kAlone, kTfConfig, kTorchrun, kOpenMpi, kMpich, kSlurm };
std::string_view NameOf(LaunchKind kind);  // "Open MPI"

// What the environment says about how this process was started.
struct LaunchEnvironment {
  LaunchKind kind = LaunchKind::kAlone;
  int rank = 0;  // of this process among those of the job; with TF_CONFIG not set
  int size = 1;
  bool one_host = false;   // all of them run on this host
  std::string first_host;  // where process 0 runs; empty: the environment does not say
  std::string job;         // differs between jobs, the same in all processes of one
  std::string found;       // text for users: "process 3 of 8 (SLURM_PROCID, SLURM_STEP_NUM_TASKS)"
};

// The value of a variable; null: it is not set.
using Lookup = std::function<const char*(const char*)>;

// Reads, in this order: TF_CONFIG; torchrun's RANK and WORLD_SIZE; Open MPI's OMPI_COMM_WORLD_RANK
// and _SIZE; PMI_RANK and PMI_SIZE of MPICH and Intel MPI; the variables of a Slurm step. Without
// any of them the process is alone. Several that agree are fine, and the first counts.
// INVALID_ARGUMENT for a launcher whose variables are there only in part (it names the missing
// ones), for two that contradict each other (it shows both), for a Slurm allocation of several
// tasks in which nobody has started this process as one of them (no step of srun, no other
// launcher), and for a process that only PMIx numbers (PMIX_RANK, as prun and prterun set it),
// since its variables do not tell how many processes there are. TUTTI_LAUNCH (tf-config, torchrun,
// openmpi, mpich, slurm, alone) decides where that is wanted.
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const Lookup& lookup);
absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment();  // of this process

// The port at which process 0 of a job meets the others: from 20000 to 29999, by the job's name.
int PortOfJob(std::string_view job);

}  // namespace tutti
