#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/cluster/cluster_spec.h"
#include "tutti/launch/job_guard.h"
#include "tutti/launch/job_output.h"
#include "tutti/launch/launcher.h"
#include "tutti/launch/remote_task.h"
#include "tutti/launch/restart_policy.h"
#include "tutti/launch/task_process.h"
#include "tutti/launch/wait_watch.h"
#include "tutti/net/socket.h"

namespace tutti {

// A job under `tutti run`: its tasks, from the start to the last end. Not thread-safe.
class Job {
 public:
  explicit Job(const LaunchOptions& options);

  // Opens log files and starts every task. `signals` is a signalfd: one that comes while other
  // hosts are waited for ends the start (CANCELLED).
  absl::Status Start(int signals);
  // Until all have ended. Returns the exit code.
  int Run();

 private:
  struct Task {
    TaskId id;
    std::string role;                    // "worker 0"
    std::string host = {};               // that ssh reaches; empty: this one
    bool agent_waits = false;            // there, for the command
    AgentStream agent;                   // what comes from it
    net::Socket port = {};               // that it is to listen at; held until it is started
    std::optional<TaskProcess> process;  // of its last start
    int64_t started = 0;                 // NowNanos of that
    bool waits_for_others = false;       // until all tasks that train have come
    bool has_others = false;             // they have
    bool ended_well = false;             // with code 0

    bool runs() const { return process.has_value() && !process->reaped(); }
  };
  // Why the job ends, or is about to be mended.
  struct Cause {
    RestartPolicy::Loss loss;
    int signal = 0;
    std::vector<std::string> last_lines = {};
    bool never_came = false;  // it ended well, but others wait for it
  };

  // job_start.cc
  absl::Status HoldPorts();
  absl::Status StartTask(size_t index);
  absl::Status StartHere(Task& task);
  std::vector<std::pair<std::string, std::string>> EnvironmentOf(const Task& task) const;

  // job_remote.cc
  absl::Status AssignTasks();
  absl::Status StartAgent(Task& task, int port);
  absl::StatusOr<std::string> WaitForAgent(size_t index);
  absl::Status StartThere(size_t index);

  // job_start.cc
  absl::Status StartAll();
  absl::Status StartAgain(const std::vector<size_t>& tasks);
  void Watch();

  // job.cc
  bool AnyRuns() const;
  bool MayBeLeftOut(const Task& task) const;
  void TakeEndOfTraining();
  void GoOnWithout();
  void PollOnce();
  int Timeout() const;
  void TakeOutput(size_t task, int fd);
  void TakeProgress(Task& task, std::string_view text);
  void LookForMissing();
  void TakeEnd(size_t task);
  void TakeRest(size_t task, int fd);
  void TakeSignal();
  void TakeLoss(size_t task, int code);
  Cause CauseOf(const RestartPolicy::Loss& loss) const;
  bool IsEvaluator(size_t task) const { return tasks_[task].id.job == "evaluator"; }
  void GoOnWithoutEvaluator(const Cause& cause, const std::string& reason);
  void Mend();
  void EndFinally();
  void StartDeadline(double seconds);
  void EndByForce();
  void LookAtTasks();
  void TellCause();
  std::string HowItEnded(const Cause& cause) const;

  const LaunchOptions& options_;
  std::vector<Task> tasks_;
  JobOutput output_;
  RestartPolicy policy_;
  int signals_ = -1;
  std::string token_;
  ClusterSpec cluster_;
  std::optional<JobGuard> guard_;
  std::optional<WaitWatch> watch_;
  int64_t next_look_ = 0;
  std::vector<RestartPolicy::Loss> losses_;  // that are not mended
  std::optional<Cause> cause_;               // of these
  std::optional<Cause> lost_evaluator_;      // that was not started again
  std::string gave_up_;                      // why there is no further restart
  int64_t mend_at_ = 0;                      // 0: nothing is to be mended
  bool mend_all_ = false;                    // once all have ended
  bool final_ = false;                       // the job ends, well or not
  int signal_ = 0;                           // that ended the job; 0: none
  int64_t deadline_ = 0;                     // for those that still run; 0: none
  bool terminated_ = false;                  // SIGTERM was sent at the deadline
  bool survives_losses_ = false;             // of workers but the first: the job goes on without
  bool trained_ = false;                     // the first task that trains has ended well
};

// "SIGKILL".
std::string SignalName(int number);

}  // namespace tutti
