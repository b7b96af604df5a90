#pragma once

#include <functional>
#include <string>

#include "tutti/train/flags.h"
#include "tutti/train/run_config.h"
#include "tutti/train/stop.h"

namespace tutti {

struct MainOptions {
  std::string summary = "Trains a model.";  // the first line of --help
  RunConfig defaults = {};                  // what the flags are when they are not given
  const Flags* flags = nullptr;             // the program's own, beside those of RunConfig
};

// What a training program's main returns. Reads the flags, settings (TUTTI_*, tutti.toml) and
// TF_CONFIG, joins the other workers, calls `body`, and turns what it throws into a message and an
// exit code:
//   0    done
//   1    training error, or results that could not be written to stdout
//   2    usage: a flag or TF_CONFIG
//   128  a peer was lost: starting again may help; 128 + n: ended by signal n
// All tasks of a job have the same secret text in TUTTI_JOB_TOKEN; without one, tasks that are
// reachable from outside refuse to start, unless --insecure is given. SIGINT and SIGTERM end the
// training after the current step, or at once while it waits for the other workers; a second signal
// ends it at once. All workers stop after the same step, whichever of them got the signal, and all
// exit with 128 + n, because none has finished and no launcher should regard the job as done.
int Main(int argc, char** argv, const std::function<void(const RunConfig&)>& body);
int Main(int argc, char** argv, const MainOptions& options,
         const std::function<void(const RunConfig&)>& body);

}  // namespace tutti
