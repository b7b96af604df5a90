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
#include "tutti/base/metrics/metrics.h"
#include "tutti/base/status.h"
#include "tutti/base/text_file.h"
#include "tutti/cluster/environment/roles.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/http/metrics_page.h"
#include "tutti/topology/quantity.h"
#include "tutti/train/checkpoints/save_schedule.h"
#include "tutti/train/export/export_format.h"
#include "tutti/train/find_task.h"
#include "tutti/train/hooks/built_in.h"
#include "tutti/train/reporting/worker_trace.h"
#include "tutti/train/stop.h"
#include "tutti/train/strategies/join.h"
#include "tutti/train/strategies/registry.h"

namespace tutti {
namespace {

constexpr int kTrainingError = 1;
constexpr int kUsage = 2;
constexpr int kPeerLost = 128;
constexpr double kLeastStartTimeout = 0.001;       // seconds
constexpr std::string_view kFailed = " failed: ";  // between the role and its error

extern "C" void OnStopSignal(int number) {
  if (!FirstStopSignal(number)) ::_exit(128 + number);
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
  std::map<std::string, std::vector<std::string>> users;  // strategies, by flag
  for (const StrategyDef* def : AllStrategies()) {
    for (const StrategyFlag& flag : def->flags) users[flag.name].push_back(def->name);
  }
  std::set<std::string> added;
  for (const StrategyDef* def : AllStrategies()) {
    for (const StrategyFlag& flag : def->flags) {
      if (!added.insert(flag.name).second) continue;
      std::string* value = &values.try_emplace(flag.name, flag.initial).first->second;
      const std::string choices =
          flag.choices.empty() ? "" : fmt::format(": {}", fmt::join(flag.choices, ", "));
      flags.Add(flag.name, value,
                fmt::format("{}{}; with {}", flag.help, choices, fmt::join(users[flag.name], ", ")),
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

// Accepts what `parse` does not throw for; its message says what was expected.
Flags::Accept AcceptedIf(std::function<void(const std::string&)> parse) {
  return [parse = std::move(parse)](std::string_view text, std::string* expected) {
    try {
      parse(std::string(text));
    } catch (const Error& error) {
      const std::string message = error.what();
      const size_t at = message.find("; expected ");
      *expected = at == std::string::npos ? message : message.substr(at + 11);
    }
    return std::string(text);
  };
}

// Accepts some of `words`, separated by commas.
Flags::Accept AcceptedWords(std::vector<std::string> words) {
  return [words = std::move(words)](std::string_view text, std::string* expected) {
    for (size_t begin = 0; begin <= text.size() && !text.empty();) {
      const size_t end = std::min(text.find(',', begin), text.size());
      if (std::find(words.begin(), words.end(), text.substr(begin, end - begin)) == words.end()) {
        *expected = fmt::format("some of {}, separated by commas", fmt::join(words, ", "));
      }
      begin = end + 1;
    }
    return std::string(text);
  };
}

// The strategies that can train on the tasks of a running cluster.
std::vector<std::string> TargetStrategies() {
  std::vector<std::string> names;
  for (const StrategyDef* def : AllStrategies()) {
    if (def->takes_target) names.push_back(SyntaxOf(*def));
  }
  return names;
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
  flags.Add("devices", &config.devices, "devices of this process, with --strategy local", 1);
  flags.Add("placement", &config.placement,
            "how nodes without a device are placed, with --strategy local: manual (first device), "
            "greedy or search",
            std::vector<std::string>{"manual", "greedy", "search"});
  flags.Add("device-memory", &config.device_memory,
            "what --placement may give each device: 512MiB; all of the host's if it is empty",
            [](std::string_view text, std::string* expected) {
              if (!text.empty() && !topology::ParseBytes(text).ok()) {
                *expected = "a number of bytes, as 512MiB";
              }
              return std::string(text);
            });
  flags.Add(
      "target", &config.target,
      fmt::format("a task of a running cluster whose tasks train the model, with --strategy {}: "
                  "tutti://host:port; this process only feeds it",
                  fmt::join(TargetStrategies(), " or ")),
      [](std::string_view text, std::string* expected) {
        if (!text.empty() && !text.starts_with("tutti://")) *expected = "tutti://host:port";
        return std::string(text);
      });
  flags.Add("max-steps", &config.max_steps, "updates to make", 1);
  flags.Add("epochs", &config.epochs, "passes over the data to make instead; 0 for --max-steps", 0);
  flags.Add("batch-size", &config.batch_size, "samples a worker takes for an update", 1);
  flags.Add("learning-rate", &config.learning_rate, "initial learning rate", 0.0);
  flags.Add("scale-learning-rate", &config.scale_learning_rate,
            "multiply the learning rate by the number of batches in an update");
  flags.Add("warmup-steps", &config.warmup_steps, "updates over which the learning rate grows", 0);
  flags.Add("seed", &config.seed, "fixes initial weights, the order of samples and dropout", 0);
  AddStrategyFlags(config.strategy_flags, flags);
  flags.Add("eval-every", &config.eval_every,
            "steps between evaluations; 0 for one at the end; with ps-async and ps-ssp worker 0 "
            "evaluates alone",
            0);
  flags.Add("early-stop", &config.early_stop,
            "METRIC:PATIENCE, to end after PATIENCE evaluations in which METRIC did not improve",
            AcceptedIf([](const std::string& text) { ParseEarlyStop(text); }));
  flags.Add("export", &config.export_dir,
            "DIRECTORY for the trained model, which `tutti predict` runs without this program");
  flags.Add("summary-every", &config.summary_every, "steps between summaries in --model-dir", 1);
  flags.Add("histograms", &config.histograms,
            "add histograms of weights and gradients to each summary");
  flags.Add("show", &config.show,
            "what log and summaries tell beside the loss: learning-rate, gradient-norm (before "
            "clipping; with a ps strategy that of worker 0's own samples), metrics, separated by "
            "commas",
            AcceptedWords({"learning-rate", "gradient-norm", "metrics"}));
  flags.Add("log-every", &config.log_every, "steps between lines of the log; 0: one every 10 s", 0);
  flags.Add("ps", &config.ps,
            "how many processes that mpirun, srun or torchrun started are parameter servers", 0);
  flags.Add("evaluator", &config.evaluator,
            "the last process that mpirun, srun or torchrun started evaluates every checkpoint in "
            "--model-dir");
  flags.Add("start-timeout", &config.start_timeout, "seconds for all workers to appear",
            kLeastStartTimeout);
  flags.Add("insecure", &config.insecure,
            "let the tasks of a cluster listen beyond their host without TUTTI_JOB_TOKEN");
  flags.Add("model-dir", &config.model_dir,
            "DIR for checkpoints and TensorBoard event files; training resumes from the newest "
            "checkpoint in it");
  flags.Add("save-every", &config.save_every, "steps (500) or seconds (60s) between checkpoints",
            [](std::string_view text, std::string* expected) {
              *expected = SaveSchedule::Check(text);
              return std::string(text);
            });
  flags.Add("keep", &config.keep, "number of newest checkpoints to keep; 0 for all", 0);
  flags.Add("keep-best", &config.keep_best, "also keep the checkpoint that is best by this METRIC");
  flags.Add("warm-start", &config.warm_start,
            "PATH of a checkpoint to load matching variables from");
  flags.Add("warm-start-map", &config.warm_start_map,
            "NEW=OLD,... names of variables for --warm-start; NEW*=OLD*");
  flags.Add("report", &config.report, "FILE for a JSON report of the training");
  flags.Add(
      "trace", &config.trace,
      "FILE, or A..B[:FILE] for steps A to B, for a Chrome trace of all workers, on the first; "
      "with ps-async and ps-ssp of that one alone",
      AcceptedIf([](const std::string& text) { ParseTraceRequest(text); }));
  flags.Add(
      "http", &config.http,
      "PORT, or HOST:PORT, where /metrics and /healthz are served; tasks of one host take one "
      "port after the other",
      [](std::string_view text, std::string* expected) {
        const auto place = http::ParseHttpPlace(std::string(text));
        if (!place.ok()) *expected = "a port from 1 to 65535, or HOST:PORT";
        return std::string(text);
      });
  flags.Add("summary", &config.summary, "show the layers of the model at the start");
  flags.Add("verbose", &config.verbose,
            "log how gradients are exchanged and where variables are placed; implies --summary");
  flags.Add("quiet", &config.quiet, "print nothing but errors");
  return flags;
}

// Strategies with several workers place what they spread themselves.
void CheckPlacement(const RunConfig& config) {
  if (!config.target.empty()) {
    if (!FindStrategy(config.strategy).takes_target) {
      ThrowInvalidArgument(
          fmt::format("--target needs --strategy {}, and that is {}; programs of other strategies "
                      "are tasks of the cluster themselves",
                      fmt::join(TargetStrategies(), " or "), config.strategy));
    }
    if (config.devices != 1 || !config.device_memory.empty()) {
      ThrowInvalidArgument(
          "--target is given, and --devices or --device-memory as well; these belong to the tasks "
          "of the cluster: give them to `tutti server`");
    }
  }
  if (config.placement == "manual" || config.strategy == "local") return;
  ThrowInvalidArgument(
      fmt::format("--placement {} needs --strategy local, and that is {}; leave it at manual",
                  config.placement, config.strategy));
}

// What only the end of the training would find out otherwise.
void CheckFiles(const RunConfig& config) {
  for (const auto& [flag, path] :
       {std::pair("report", config.report), {"trace", ParseTraceRequest(config.trace).path}}) {
    if (path.empty()) continue;
    ThrowIfError(WithPrefix(CheckWritable(path), fmt::format("--{}: ", flag)));
  }
  if (!config.export_dir.empty()) {
    CheckExportTarget(checkpoint::FileSystem::System(), config.export_dir);
  }
}

// An evaluator and the training meet in the directory, or fetch what is in it.
void CheckEvaluator(const TaskConfig& task, const RunConfig& config) {
  const bool has_evaluator = task.cluster.jobs().contains("evaluator");
  if (!config.model_dir.empty()) return;
  if (!IsEvaluator(task) && !(has_evaluator && task.TrainerRank() == 0)) return;
  ThrowInvalidArgument(
      "an evaluator evaluates the checkpoints of a training, and there is no --model-dir for them; "
      "give one to all tasks");
}

// Who this is, before the others are waited for.
void ShowRole(const TaskConfig& task, const RunConfig& config) {
  const size_t tasks = task.cluster.Trainers().size();
  const int rank = task.TrainerRank();
  const std::string place = IsEvaluator(task) ? "evaluates checkpoints"
                            : rank < 0        ? "does not train"
                                              : fmt::format("rank {} of {}", rank, tasks);
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

// The page that --http asks for; null: none. The metrics outlive it, since the config has them.
std::unique_ptr<http::MetricsPage> ServeMetrics(RunConfig& config, const TaskConfig* task) {
  if (config.http.empty()) return nullptr;
  const http::HttpPlace place = ValueOrThrow(http::ParseHttpPlace(config.http));
  const int position = task == nullptr ? 0 : PositionOnHost(task->cluster, task->task);
  config.metrics = std::make_shared<MetricsRegistry>();
  AddProcessMetrics(*config.metrics);
  const std::string role = task == nullptr ? "local" : ToString(task->task);
  config.metrics
      ->AddGauge("tutti_task_info", "1, with what this process is in its labels.",
                 {{"task", role}, {"strategy", config.strategy}})
      .Set(1);
  auto page = ValueOrThrow(http::MetricsPage::Start(
      {.host = place.host,
       .port = place.port + position,
       .metrics = config.metrics.get(),
       .health = [role] { return http::MetricsPage::Health{.text = "ok: " + role}; }}));
  FormatTo(stderr, "{}: metrics at {}/metrics\n", config.program, page->address());
  return page;
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

// Says what ended the training, to the other workers too unless it came from them. `one_code`: the
// launcher makes one code of those of all processes.
int Fail(const RunConfig& config, const absl::Status& status, bool one_code) {
  const std::string_view message = MessageOf(status);
  Tell(config, message);
  // All workers stop by the request of one.
  if (StopRequested() && absl::IsCancelled(status)) return 128 + StopSignal();
  const int code = ExitCodeOf(static_cast<Code>(status.code()));
  // Where each task's code is looked at, only the one at fault tells of it: the others may be
  // cured by another start. mpirun, srun and torchrun take the code that comes first or the highest
  // one, so all tasks give the cause's: a job must not be put back into the queue for an error that
  // another start does not cure.
  if (ComesFromPeer(config, message)) return one_code ? code : kPeerLost;
  config.strategy_object->peers().Abort(static_cast<Code>(status.code()),
                                        fmt::format("{}{}{}", config.role, kFailed, message));
  return code;
}

int Run(const RunConfig& config, const std::function<void(const RunConfig&)>& body, bool one_code) {
  try {
    body(config);
  } catch (...) {
    return Fail(config, StatusFromCurrentException(), one_code);
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
  bool meeting = false;   // what fails then may be cured by another start
  bool one_code = false;  // started by mpirun, srun or torchrun
  try {
    Flags flags = FlagsOf(config, options);
    if (!flags.ParseWithSettings(argc, argv)) return 0;
    config.settings = flags.Settings();
    // The log reads its level when it is first used, which is later.
    if (config.quiet) ::setenv("TUTTI_LOG", "error", /*overwrite=*/0);
    strategy = &FindStrategy(config.strategy);
    KeepOwnFlags(*strategy, config.strategy_flags);
    CheckPlacement(config);
    const LaunchEnvironment environment = ValueOrThrow(ReadLaunchEnvironment());
    CheckRoleFlags(environment, *strategy, config);
    one_code = environment.kind != LaunchKind::kAlone && environment.kind != LaunchKind::kTfConfig;
    meeting = true;
    task = FindTask(environment, config);
    meeting = false;
    if (task) {
      CheckRole(*strategy, *task);
      CheckEvaluator(*task, config);
      RequireToken(*task, config.insecure);
    }
    if (!task || task->TrainerRank() == 0) CheckFiles(config);
  } catch (const Error& error) {
    if (meeting && error.code() != Code::kInvalidArgument) return FailToStart(config, error);
    Tell(config, error.what());
    return kUsage;
  }
  if (task && !config.quiet) ShowRole(*task, config);
  std::unique_ptr<http::MetricsPage> page;
  try {
    page = ServeMetrics(config, task ? &*task : nullptr);
    if (task && !Trains(*strategy, *task) && !IsEvaluator(*task)) {
      config.strategy_flags = CompleteFlags(*strategy, config.strategy_flags);
      strategy->others.at(task->task.job)({config, &*task});
      return StopRequested() ? 128 + StopSignal() : 0;
    }
    config.Join();
  } catch (const Error& error) {
    return FailToStart(config, error);
  }
  return Run(config, body, one_code);
}

}  // namespace tutti
