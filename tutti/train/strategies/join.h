#pragma once

#include <memory>
#include <string>

#include "tutti/train/strategies/registry.h"

namespace tutti {

namespace collective {
class Communicator;
}

// A communicator of all tasks of the cluster that train, by their ranks; of this process alone
// where there is no cluster. Waits for the others as long as --start-timeout says; a stop
// (train/stop.h) ends the waiting. Tasks prove that they belong together by the text in
// TUTTI_JOB_TOKEN (RequireToken). Throws Error.
std::shared_ptr<collective::Communicator> JoinTrainers(const Launch& launch);

// The cluster's token, TUTTI_JOB_TOKEN; every task of a job has the same. Empty: there is none.
std::string JobToken();

// Throws Error (kInvalidArgument) where tasks of the cluster would listen beyond their host without
// a token, unless `insecure`. All tasks of a job decide alike.
void RequireToken(const TaskConfig& task, bool insecure);

}  // namespace tutti
