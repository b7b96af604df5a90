#pragma once

#include "tutti/client/session.h"
#include "tutti/train/run_config.h"

namespace tutti {

// Does worker 0 want a trace? It decides for all, for it is the one that writes; another's --trace
// alone is warned about. All workers call it. Throws Error if a worker is lost.
bool WantsWorkerTraces(const RunConfig& config);

// Writes one Chrome trace of a step of all workers to config.trace: worker 0 writes what the others
// send it. Their clocks are set by the end of the step, which comes for all at the same time. All
// workers call it. Throws Error if a worker is lost; a file that cannot be written is warned about.
void WriteWorkerTraces(const RunConfig& config, const RunTrace& trace);

}  // namespace tutti
