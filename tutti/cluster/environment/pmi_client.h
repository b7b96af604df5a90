#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace tutti {

// What process 0 of a job that mpiexec of MPICH or Intel MPI has started tells the others through
// it: version 1.1 of PMI, lines of text over a socket that mpiexec gives each process (PMI_FD). It
// crosses hosts, and only processes of the job can read it.
struct PmiExchange {
  std::string job;   // the name that mpiexec has for it
  std::string told;  // by process 0
};
// All processes call it once; `tell` is that of process 0, without spaces. Uses up the PMI of this
// process: a program that calls MPI_Init itself must not. DEADLINE_EXCEEDED when mpiexec does not
// answer, or not all processes have come.
absl::StatusOr<PmiExchange> ExchangeByPmi(int fd, int rank, const std::string& tell,
                                          int64_t deadline_nanos);

}  // namespace tutti
