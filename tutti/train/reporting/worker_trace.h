#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/client/session.h"
#include "tutti/train/run_config.h"

namespace tutti {

// Which steps are traced and where the trace goes: --trace.
struct TraceRequest {
  int64_t first = 0;  // as people count steps, from 1 on; 0: no trace
  int64_t last = 0;
  std::string path = {};
  bool warm = false;  // the steps count from where this process begins
};

// Of "FILE", which means step 11, when everything is warm; of "A..B", which goes to trace.json; or
// of "A..B:FILE". Of an empty text: no trace. Throws Error (kInvalidArgument).
TraceRequest ParseTraceRequest(const std::string& text);

// The request of worker 0, which decides for all, for it is the one that writes; another's --trace
// alone is warned about. `step` updates were made before. All workers call it. Throws Error if a
// worker is lost.
TraceRequest AgreeOnTrace(const RunConfig& config, Peers& peers, int64_t step, int64_t max_steps);

// A traced step, and when it began, by this worker's clock.
struct StepTrace {
  int64_t start_nanos = 0;
  RunTrace trace;
};

// Writes one Chrome trace of steps of all workers to `path`: worker 0 writes what the others send
// it. Their clocks are set by the end of the last step, which comes for all at the same time. All
// workers call it. Throws Error if a worker is lost; a file that cannot be written is warned about.
void WriteWorkerTraces(const RunConfig& config, Peers& peers, const std::string& path,
                       const std::vector<StepTrace>& steps);

}  // namespace tutti
