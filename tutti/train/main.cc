#include "tutti/train/main.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>

#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/text_file.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

constexpr int kTrainingError = 1;
constexpr int kUsage = 2;
constexpr int kPeerLost = 128;
constexpr double kLeastStartTimeout = 0.001;       // seconds
constexpr std::string_view kFailed = " failed: ";  // between the role and its error

extern "C" void OnStopSignal(int number) {
  if (!FirstStopRequest(number)) ::_exit(128 + number);
}

void CatchStopSignals() {
  struct sigaction action = {};
  action.sa_handler = OnStopSignal;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
}

// The flags of every strategy; one that several have is there once.
void AddStrategyFlags(std::map<std::string, std::string>& values, Flags& flags) {
  std::set<std::string> added;
  for (const StrategyDef* def : AllStrategies()) {
    for (const StrategyFlag& flag : def->flags) {
      if (!added.insert(flag.name).second) continue;
      std::string* value = &values.try_emplace(flag.name, flag.initial).first->second;
      const std::string choices =
          flag.choices.empty() ? "" : fmt::format(": {}", fmt::join(flag.choices, ", "));
      flags.Add(flag.name, value, fmt::format("{}{}; with {}", flag.help, choices, def->name),
                [&flag](std::string_view text, std::string* expected) {
                  return CheckedFlag(flag, text, expected);
                });
    }
  }
}

// Keeps of the values those that the chosen strategy has a flag for.
void KeepOwnFlags(const StrategyDef& chosen, std::map<std::string, std::string>& values) {
  std::set<std::string> own;
  for (const StrategyFlag& flag : chosen.flags) own.insert(flag.name);
  for (const StrategyDef* def : AllStrategies()) {
    for (const StrategyFlag& flag : def->flags) {
      const auto value = values.find(flag.name);
      if (own.contains(flag.name) || value == values.end()) continue;
      if (value->second != flag.initial) {
        Log(LogLevel::kWarning, "--{} {} is not used: it is for --strategy {}, but that is {}",
            flag.name, value->second, def->name, chosen.name);
      }
      values.erase(value);
    }
  }
}

Flags FlagsOf(RunConfig& config, const MainOptions& options) {
  std::vector<std::string> summaries;
  for (const StrategyDef* def : AllStrategies()) {
    summaries.push_back(fmt::format("{} ({})", SyntaxOf(*def), def->summary));
  }
  Flags flags(options.summary);
  if (options.flags != nullptr) flags.Append(*options.flags);
  flags.Add("strategy", &config.strategy,
            fmt::format("how training is spread: {}", fmt::join(summaries, ", ")),
            [](std::string_view text, std::string* expected) {
              *expected = ExpectedStrategy(text);
              return std::string(text);
            });
  flags.Add("max-steps", &config.max_steps, "updates to make", 1);
  flags.Add("batch-size", &config.batch_size, "samples a worker takes for an update", 1);
  flags.Add("learning-rate", &config.learning_rate, "at the start", 0.0);
  flags.Add("scale-learning-rate", &config.scale_learning_rate,
            "multiply it by the number of batches that an update is made from");
  flags.Add("warmup-steps", &config.warmup_steps, "updates over which it grows", 0);
  flags.Add("seed", &config.seed, "fixes initial weights, the order of samples and dropout", 0);
  AddStrategyFlags(config.strategy_flags, flags);
  flags.Add("log-every", &config.log_every, "steps between two lines; 0 for one every 10 s", 0);
  flags.Add("start-timeout", &config.start_timeout, "seconds for all workers to appear",
            kLeastStartTimeout);
  flags.Add("report", &config.report, "FILE for what the training took, as JSON");
  flags.Add("trace", &config.trace, "FILE for a Chrome trace of all workers, on the first");
  flags.Add("verbose", &config.verbose, "tell how gradients travel");
  return flags;
}

// What only the end of the training would find out otherwise.
void CheckFiles(const RunConfig& config) {
  for (const auto& [flag, path] : {std::pair("report", config.report), {"trace", config.trace}}) {
    if (path.empty()) continue;
    ThrowIfError(WithPrefix(CheckWritable(path), fmt::format("--{}: ", flag)));
  }
}

// Who this is, before the others are waited for.
void ShowRole(const TaskConfig& task, const RunConfig& config) {
  const size_t tasks = task.cluster.Trainers().size();
  const int rank = task.TrainerRank();
  const std::string place = rank < 0 ? "does not train" : fmt::format("rank {} of {}", rank, tasks);
  FormatTo(stderr, "{}: {}, {}, strategy {}\n", config.program, ToString(task.task), place,
           config.strategy);
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
  const std::string told = config.strategy_object->peers().Failure();
  return told.find(kFailed) != std::string::npos &&
         !told.starts_with(config.role + std::string(kFailed)) &&
         error.find(told) != std::string_view::npos;
}

void Tell(const RunConfig& config, std::string_view message) {
  FormatTo(stderr, "{}: {}\n", config.program, message);
}

// Says what ended the training, to the other workers too unless it came from them.
int Fail(const RunConfig& config, const absl::Status& status) {
  const std::string_view message = MessageOf(status);
  Tell(config, message);
  // All workers stop by the request of one.
  if (StopRequested() && absl::IsCancelled(status)) return 128 + StopSignal();
  if (ComesFromPeer(config, message)) return kPeerLost;
  config.strategy_object->peers().Abort(static_cast<Code>(status.code()),
                                        fmt::format("{}{}{}", config.role, kFailed, message));
  return ExitCodeOf(static_cast<Code>(status.code()));
}

int Run(const RunConfig& config, const std::function<void(const RunConfig&)>& body) {
  try {
    body(config);
  } catch (...) {
    return Fail(config, StatusFromCurrentException());
  }
  if (StopRequested()) return 128 + StopSignal();
  if (const absl::Status status = FinishStdout(); !status.ok()) {
    Tell(config, MessageOf(status));
    return kTrainingError;
  }
  return 0;
}

// An error before the training: of joining the others, or of the work of a role that does not
// train.
int FailToStart(const RunConfig& config, const Error& error) {
  Tell(config, error.what());
  return StopRequested() ? 128 + StopSignal() : ExitCodeOf(error.code());
}

}  // namespace

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
  const StrategyDef* strategy = nullptr;
  try {
    if (!FlagsOf(config, options).Parse(argc, argv)) return 0;
    strategy = &FindStrategy(config.strategy);
    KeepOwnFlags(*strategy, config.strategy_flags);
    task = ValueOrThrow(TfConfigFromEnvironment());
    if (task) {
      config.tf_config = std::getenv("TF_CONFIG");
      CheckRole(*strategy, *task);
    }
    if (!task || task->TrainerRank() == 0) CheckFiles(config);
  } catch (const Error& error) {
    Tell(config, error.what());
    return kUsage;
  }
  if (task) ShowRole(*task, config);
  try {
    if (task && !Trains(*strategy, *task)) {
      config.strategy_flags = CompleteFlags(*strategy, config.strategy_flags);
      strategy->others.at(task->task.job)({config, &*task});
      return StopRequested() ? 128 + StopSignal() : 0;
    }
    config.Join();
  } catch (const Error& error) {
    return FailToStart(config, error);
  }
  return Run(config, body);
}

}  // namespace tutti
