#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/collective/schedule/schedule.h"

namespace tutti::collective {

// What a schedule costs, in units of the whole data's size K (1.0 = K) where sizes are even.
struct Work {
  int64_t rounds = 0;            // longest chain of messages (a signal counts) and memory steps
  std::vector<int64_t> steps;    // per rank
  std::vector<double> sent;      // per rank, messages
  std::vector<double> received;  // per rank, messages
  std::vector<double> reduced;   // per rank: bytes added to something
  std::vector<double> loaded;    // per rank: read from and written to memory, peers' included
  struct Link {
    int from;
    int to;
    double bytes;
    int64_t messages;
  };
  std::vector<Link> links;  // by (from, to), only those that carry something
};

// Executes the schedule symbolically: every piece of every rank holds, per source, how often each
// rank's contribution is in it. Proves, for every order in which the steps may overlap:
//   complete       at the end every rank holds what the operation promises,
//   exactly once   with every contribution in it once,
//   no deadlock    every step runs,
//   no race        of two steps that may overlap, neither writes a piece that the other touches,
//                  in a peer's memory either; nothing of a rank is touched before it has signalled
//                  that it started.
// The error is a FAILED_PRECONDITION that names rank, step (number and text), piece, what it holds
// and what it should hold.
absl::Status Verify(const Schedule& schedule);

// Counts. REQUIRES: Verify(schedule) is OK.
Work CountWork(const Schedule& schedule);

}  // namespace tutti::collective
