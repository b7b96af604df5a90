#include "tutti/train/strategies/join.h"

#include <fmt/format.h>

#include <cstdlib>

#include "tutti/base/progress_text.h"
#include "tutti/base/status.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/collective/communicator.h"
#include "tutti/train/cancelled_by_signal.h"
#include "tutti/train/run_config.h"

namespace tutti {
namespace {

bool InThisHost(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

}  // namespace

void RequireToken(const TaskConfig& task, bool insecure) {
  if (insecure || !JobToken().empty()) return;
  // An evaluator without a token only listens on its own host (mirror/directory_mirror.h), and one
  // task alone has nobody to listen for.
  std::vector<TaskId> tasks = task.cluster.tasks();
  std::erase_if(tasks, [](const TaskId& other) { return other.job == "evaluator"; });
  if (tasks.size() < 2) return;
  for (const TaskId& other : tasks) {
    const std::string& address = task.cluster.AddressOf(other);
    if (InThisHost(address)) continue;
    ThrowInvalidArgument(
        fmt::format("TUTTI_JOB_TOKEN is not set, and whoever reaches {} ({}) could take a place in "
                    "this job: give all its tasks the same secret text there, use addresses of "
                    "loopback, or say --insecure",
                    ToString(other), address));
  }
}

std::string JobToken() {
  const char* token = std::getenv("TUTTI_JOB_TOKEN");
  return token == nullptr ? "" : token;
}

std::shared_ptr<collective::Communicator> JoinTrainers(const Launch& launch) {
  if (launch.task == nullptr) {
    auto alone = ValueOrThrow(collective::Communicator::CreateInProcess(1));
    return std::move(alone.front());
  }
  const TaskConfig& task = *launch.task;
  RequireToken(task, launch.config.insecure);
  const CancelledBySignal cancelled;
  collective::CommunicatorOptions options;
  options.bootstrap.cancellation = cancelled.get();
  options.bootstrap.rank = task.TrainerRank();
  options.bootstrap.size = int(task.cluster.Trainers().size());
  for (const TaskId& trainer : task.cluster.Trainers()) {
    options.bootstrap.endpoints.push_back(task.cluster.AddressOf(trainer));
  }
  // Tasks of another cluster that come to the same port are told what differs.
  options.bootstrap.fingerprint = task.cluster.Fingerprint();
  options.bootstrap.token = JobToken();
  options.bootstrap.timeout_seconds = launch.config.start_timeout;
  options.share_cores = true;
  options.transport = launch.flag("transport");
  // A launcher sees tasks end that never come here, and those that wait for them do not.
  const int launcher = LauncherPipe();
  if (launcher >= 0) TellLauncher(launcher, kWaitsForOthers);
  auto communicator = ValueOrThrow(collective::Communicator::Create(options));
  if (launcher >= 0) TellLauncher(launcher, kHasOthers);
  return communicator;
}

}  // namespace tutti
