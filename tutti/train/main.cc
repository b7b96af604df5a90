#include "tutti/train/main.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stop_token>
#include <thread>

#include "tutti/base/cancellation.h"
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/text_file.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/collective/communicator.h"
#include "tutti/train/agreement.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {
namespace {

constexpr int kTrainingError = 1;
constexpr int kUsage = 2;
constexpr int kPeerLost = 128;
constexpr double kLeastStartTimeout = 0.001;  // seconds
constexpr auto kSignalLook = std::chrono::milliseconds(20);
constexpr std::string_view kFailed = " failed: ";  // between the role and its error

std::atomic<int> stop_signal{0};

extern "C" void OnStopSignal(int number) {
  if (stop_signal.exchange(number) != 0) ::_exit(128 + number);
}

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

Flags FlagsOf(RunConfig& config, const MainOptions& options) {
  Flags flags(options.summary);
  if (options.flags != nullptr) flags.Append(*options.flags);
  flags.Add("strategy", &config.strategy, "how training is spread: local or allreduce",
            {"local", "allreduce"});
  flags.Add("max-steps", &config.max_steps, "updates to make", 1);
  flags.Add("batch-size", &config.batch_size, "samples a worker takes for an update", 1);
  flags.Add("learning-rate", &config.learning_rate, "at the start", 0.0);
  flags.Add("scale-learning-rate", &config.scale_learning_rate,
            "multiply it by the number of workers");
  flags.Add("warmup-steps", &config.warmup_steps, "updates over which it grows", 0);
  flags.Add("seed", &config.seed, "fixes initial weights, the order of samples and dropout", 0);
  flags.Add("algorithm", &config.algorithm, "of all-reduce",
            {"auto", "exchange", "direct", "ring", "halving-doubling", "tree", "hierarchical"});
  flags.Add("wire", &config.wire, "how float32 gradients travel", {"as-is", "bf16", "fp16"});
  flags.Add("log-every", &config.log_every, "steps between two lines; 0 for one every 10 s", 0);
  flags.Add("start-timeout", &config.start_timeout, "seconds for all workers to appear",
            kLeastStartTimeout);
  flags.Add("report", &config.report, "FILE for what the training took, as JSON");
  flags.Add("trace", &config.trace, "FILE for a Chrome trace of all workers, on the first");
  return flags;
}

// The cluster's token; every task of a job has the same. Empty: there is none.
std::string JobToken() {
  const char* token = std::getenv("TUTTI_JOB_TOKEN");
  return token == nullptr ? "" : token;
}

void CheckRole(const TaskConfig& task, const RunConfig& config) {
  if (task.TrainerRank() < 0) {
    ThrowInvalidArgument(
        fmt::format("TF_CONFIG: task.type is \"{}\", which --strategy {} has no work for; expected "
                    "chief or worker",
                    task.task.job, config.strategy));
  }
  const size_t trainers = task.cluster.Trainers().size();
  if (config.strategy == "local" && trainers > 1) {
    ThrowInvalidArgument(
        fmt::format("TF_CONFIG has {} tasks that train, but --strategy is local; use --strategy "
                    "allreduce, or unset TF_CONFIG to train alone",
                    trainers));
  }
}

// What only the end of the training would find out otherwise.
void CheckFiles(const RunConfig& config) {
  for (const auto& [flag, path] : {std::pair("report", config.report), {"trace", config.trace}}) {
    if (path.empty()) continue;
    ThrowIfError(WithPrefix(CheckWritable(path), fmt::format("--{}: ", flag)));
  }
}

bool InThisHost(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("localhost:") ||
         address.starts_with("[::1]:");
}

void WarnWithoutToken(const ClusterSpec& cluster) {
  if (!JobToken().empty()) return;
  for (const TaskId& task : cluster.Trainers()) {
    const std::string& address = cluster.AddressOf(task);
    if (InThisHost(address)) continue;
    Log(LogLevel::kWarning,
        "TUTTI_JOB_TOKEN is not set: whoever reaches {} may take a place in this job; give all its "
        "tasks the same secret text",
        address);
    return;
  }
}

// Cancels, while it lives, once a signal asks for an end: the handler itself may take no lock.
class CancelledBySignal {
 public:
  CancelledBySignal() : watch_([this](const std::stop_token& stop) { Watch(stop); }) {}
  const Cancellation* get() const { return &cancellation_; }

 private:
  void Watch(const std::stop_token& stop) {
    std::mutex mutex;
    std::unique_lock lock(mutex);
    std::condition_variable_any changed;
    while (!stop.stop_requested() && !StopRequested()) {
      changed.wait_for(lock, stop, kSignalLook, [] { return false; });
    }
    if (StopRequested()) {
      cancellation_.Cancel(
          Cancelled("stopped by signal {} while workers were waited for", stop_signal.load()));
    }
  }

  Cancellation cancellation_;
  std::jthread watch_;
};

std::shared_ptr<collective::Communicator> Join(const TaskConfig& task, double timeout_seconds) {
  WarnWithoutToken(task.cluster);
  const CancelledBySignal cancelled;
  collective::CommunicatorOptions options;
  options.bootstrap.cancellation = cancelled.get();
  options.bootstrap.rank = task.TrainerRank();
  options.bootstrap.size = int(task.cluster.Trainers().size());
  options.bootstrap.address = task.cluster.AddressOf(task.cluster.Chief());
  // Tasks of another cluster that come to the same port are told so.
  options.bootstrap.job = "cluster-" + Digest(task.cluster.ToString());
  options.bootstrap.token = JobToken();
  options.bootstrap.timeout_seconds = timeout_seconds;
  return ValueOrThrow(collective::Communicator::Create(options));
}

// A cluster of this process, for --strategy allreduce without TF_CONFIG.
std::shared_ptr<collective::Communicator> JoinAlone() {
  auto alone = ValueOrThrow(collective::Communicator::CreateInProcess(1));
  return std::move(alone.front());
}

void ChooseStrategy(const std::optional<TaskConfig>& task, RunConfig& config) {
  if (task) {
    CheckRole(*task, config);
    config.role = ToString(task->task);
    config.job = task->task.job;
    config.task = task->task.index;
  }
  if (config.strategy == "local") {
    config.strategy_object = MakeLocalStrategy();
    return;
  }
  config.communicator = task ? Join(*task, config.start_timeout) : JoinAlone();
  AllReduceOptions options;
  options.algorithm = config.algorithm == "auto" ? "" : config.algorithm;
  options.wire = config.wire;
  config.strategy_object = MakeAllReduceStrategy(*config.communicator, options);
}

// Who this is, before the others are waited for.
void ShowRole(const TaskConfig& task, const RunConfig& config) {
  const size_t tasks = task.cluster.Trainers().size();
  const int rank = task.TrainerRank();
  FormatTo(stderr, "{}: {}, rank {} of {}, strategy {}\n", config.program, ToString(task.task),
           rank, tasks, config.strategy);
  if (rank != 0) return;
  const std::string cluster = task.cluster.ToString();
  for (size_t begin = 0; begin < cluster.size();) {
    const size_t end = std::min(cluster.find('\n', begin), cluster.size());
    FormatTo(stderr, "{}: {}\n", config.program, cluster.substr(begin, end - begin));
    begin = end + 1;
  }
}

int ExitCodeOf(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded ? kPeerLost : kTrainingError;
}

// Is the error but what another worker's Abort told everybody?
bool ComesFromPeer(const RunConfig& config, std::string_view error) {
  if (config.communicator == nullptr) return false;
  const absl::Status status = config.communicator->status();
  const std::string verdict(MessageOf(status));
  return !status.ok() && verdict.find(kFailed) != std::string::npos &&
         !verdict.starts_with(config.role + std::string(kFailed)) &&
         error.find(verdict) != std::string_view::npos;
}

void Tell(const RunConfig& config, std::string_view message) {
  FormatTo(stderr, "{}: {}\n", config.program, message);
}

// Says what ended the training, to the other workers too unless it came from them.
int Fail(const RunConfig& config, const absl::Status& status) {
  const std::string_view message = MessageOf(status);
  Tell(config, message);
  if (ComesFromPeer(config, message)) return kPeerLost;
  if (config.communicator != nullptr) {
    config.communicator->Abort(MakeStatus(status.code(), "{}{}{}", config.role, kFailed, message));
  }
  return ExitCodeOf(static_cast<Code>(status.code()));
}

int Run(const RunConfig& config, const std::function<void(const RunConfig&)>& body) {
  try {
    body(config);
  } catch (...) {
    return Fail(config, StatusFromCurrentException());
  }
  if (const int signal = stop_signal.load(); signal != 0) return 128 + signal;
  if (const absl::Status status = FinishStdout(); !status.ok()) {
    Tell(config, MessageOf(status));
    return kTrainingError;
  }
  return 0;
}

}  // namespace

bool StopRequested() { return stop_signal.load(std::memory_order_relaxed) != 0; }

int Main(int argc, char** argv, const std::function<void(const RunConfig&)>& body) {
  return Main(argc, argv, {}, body);
}

int Main(int argc, char** argv, const MainOptions& options,
         const std::function<void(const RunConfig&)>& body) {
  RunConfig config = options.defaults;
  config.program = argc > 0 ? argv[0] : "tutti";
  config.program = config.program.substr(config.program.rfind('/') + 1);
  KeepStandardFiles();
  CatchStopSignals();
  std::optional<TaskConfig> task;
  try {
    if (!FlagsOf(config, options).Parse(argc, argv)) return 0;
    task = ValueOrThrow(TfConfigFromEnvironment());
    if (task) CheckRole(*task, config);
    if (!task || task->TrainerRank() == 0) CheckFiles(config);
  } catch (const Error& error) {
    Tell(config, error.what());
    return kUsage;
  }
  if (task) ShowRole(*task, config);
  try {
    ChooseStrategy(task, config);
  } catch (const Error& error) {
    Tell(config, error.what());
    const int signal = stop_signal.load();
    return signal != 0 ? 128 + signal : ExitCodeOf(error.code());
  }
  return Run(config, body);
}

}  // namespace tutti
