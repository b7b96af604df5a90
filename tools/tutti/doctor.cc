#include "tools/tutti/doctor.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>

#include "tutti/base/console.h"
#include "tutti/base/cores.h"
#include "tutti/base/status.h"
#include "tutti/cluster/environment/launch_environment.h"
#include "tutti/cluster/environment/pmix_client.h"
#include "tutti/cluster/environment/roles.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/kernels/libraries.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

void Line(std::string_view name, std::string_view value) {
  FormatTo(stdout, "{:<11}{}\n", name, value);
}

// What stands behind "key : " in a file of /proc; empty when it is not there.
std::string ProcValue(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    const size_t colon = line.find(':');
    const size_t begin = line.find_first_not_of(" \t", colon + 1);
    if (colon != line.npos && begin != line.npos) return line.substr(begin);
  }
  return "";
}

// The cgroup's limit in bytes, if there is one.
std::optional<double> MemoryLimit() {
  std::ifstream file("/sys/fs/cgroup/memory.max");
  double bytes = 0;
  if (file >> bytes) return bytes;
  return std::nullopt;
}

std::string Memory() {
  const auto gigabytes = [](const std::string& kilobytes) {
    return std::strtod(kilobytes.c_str(), nullptr) * 1024 * 1e-9;
  };
  std::string text = fmt::format("{:.1f} GB, {:.1f} GB of it free",
                                 gigabytes(ProcValue("/proc/meminfo", "MemTotal")),
                                 gigabytes(ProcValue("/proc/meminfo", "MemAvailable")));
  if (const auto limit = MemoryLimit()) {
    text += fmt::format("; this process may use {:.1f} GB", *limit * 1e-9);
  }
  return text;
}

std::string Libraries() {
  std::string text;
  for (const auto& [name, version] : KernelLibraries())
    text += fmt::format("{} {}, ", name, version);
  return text + fmt::format("zlib {}, fmt {}.{}.{}", zlibVersion(), FMT_VERSION / 10000,
                            FMT_VERSION / 100 % 100, FMT_VERSION % 100);
}

// A job whose processes a launcher has numbered.
bool ExplainNumbered(const LaunchEnvironment& environment) {
  Line("launch", fmt::format("{}: {}", NameOf(environment.kind), environment.found));
  const auto roles = DivideRoles(environment.size, 0, false);
  if (environment.size == 1 || !roles.ok()) {
    Line("", "one process: it trains alone");
    return true;
  }
  const TaskId task = TasksOf(*roles)[size_t(environment.rank)];
  Line("", fmt::format("{} without --ps and --evaluator, which divide the {} processes among the "
                       "chief, workers, ps and the evaluator, in this order",
                       ToString(task), environment.size));
  if (environment.kind == LaunchKind::kMpich) {
    Line("", "process 0 tells the others through mpiexec (PMI) where it is, and the job's token");
    return true;
  }
  const auto pmix = FindPmix(environment);
  if (!pmix.ok()) {
    Line("", MessageOf(pmix.status()));
    return false;
  }
  if (pmix->state == Pmix::State::kUsed) {
    Line("", "process 0 tells the others through PMIx where it is, and the job's token");
    return true;
  }
  Line("", fmt::format("not through PMIx: {}", pmix->why));
  const std::string host = environment.one_host             ? "127.0.0.1"
                           : environment.first_host.empty() ? "the host of process 0"
                                                            : environment.first_host;
  const char* const port = std::getenv("TUTTI_JOB_PORT");
  Line("",
       fmt::format("all meet at {}:{} ({})", host,
                   port != nullptr ? port : std::to_string(PortOfJob(environment.job)),
                   port != nullptr ? "TUTTI_JOB_PORT" : "made from the job, " + environment.job));
  if (std::getenv("TUTTI_JOB_TOKEN") == nullptr) {
    const char* const folder = std::getenv("TUTTI_JOB_DIR");
    Line("", fmt::format("TUTTI_JOB_TOKEN is not set: process 0 writes a token into {}, which all "
                         "hosts must share",
                         folder != nullptr ? folder : "$HOME/.tutti"));
  }
  return true;
}

// The strategies that have work for every task of the cluster: "ps-async, ps-sync".
std::string StrategiesFor(const TaskConfig& task) {
  std::string names;
  for (const StrategyDef* def : AllStrategies()) {
    try {
      CheckRole(*def, task);
      for (const auto& [job, tasks] : task.cluster.jobs()) {
        TaskConfig other = task;
        other.task = {job, tasks.begin()->first};
        CheckRole(*def, other);
      }
      names += (names.empty() ? "" : ", ") + SyntaxOf(*def);
    } catch (const Error&) {
      continue;
    }
  }
  return names;
}

std::string RoleOf(const TaskConfig& task, std::string_view strategies) {
  if (IsEvaluator(task)) return "which evaluates the checkpoints of --model-dir";
  const int rank = task.TrainerRank();
  if (rank < 0) {
    return strategies.empty() ? "which no --strategy has work for"
                              : "which keeps variables and trains nothing";
  }
  return fmt::format("rank {} of {}{}", rank, task.cluster.Trainers().size(),
                     rank == 0 ? ", where the others come to" : "");
}

bool ExplainTfConfig(const TaskConfig& task, std::string_view device) {
  const std::string strategies = StrategiesFor(task);
  const size_t trainers = task.cluster.Trainers().size();
  Line("launch", fmt::format("TF_CONFIG: {}, {}", ToString(task.task), RoleOf(task, strategies)));
  Line("", fmt::format("device {}{}", ToString(task.task), device));
  const std::string cluster = task.cluster.ToString();
  for (size_t begin = 0; begin < cluster.size();) {
    const size_t end = std::min(cluster.find('\n', begin), cluster.size());
    Line("", "cluster: " + cluster.substr(begin, end - begin));
    begin = end + 1;
  }
  if (task.sparse) {
    Line("",
         "TF_CONFIG has a sparseCluster, which does not name all tasks, and every --strategy needs "
         "them: set enableDynamicWorker to false in the TFJob");
    return false;
  }
  if (strategies.empty()) {
    Line("", "no --strategy has work for all tasks of this cluster");
    return false;
  }
  if (trainers > 1) {
    const TaskId chief = task.cluster.Chief();
    Line("", fmt::format("train with --strategy {}; all tasks must reach {} at {}", strategies,
                         ToString(chief), task.cluster.AddressOf(chief)));
    if (std::getenv("TUTTI_JOB_TOKEN") == nullptr) {
      Line("",
           "TUTTI_JOB_TOKEN is not set: training refuses to start where other hosts reach a "
           "task, unless --insecure is given");
    }
  }
  return true;
}

// What this process would be: the task that a launcher describes, or a training of its own.
bool ExplainLaunch(int cores) {
  const std::string device = fmt::format("/cpu:0 with {} core{}", cores, cores == 1 ? "" : "s");
  const auto environment = ReadLaunchEnvironment();
  if (!environment.ok()) {
    Line("launch", MessageOf(environment.status()));
    return false;
  }
  if (environment->kind == LaunchKind::kAlone) {
    Line("launch", fmt::format("{}: one process, device {}",
                               std::getenv("TUTTI_LAUNCH") == nullptr ? "no TF_CONFIG, torchrun, "
                                                                        "mpirun or srun"
                                                                      : environment->found,
                               device));
    return true;
  }
  if (environment->kind != LaunchKind::kTfConfig) return ExplainNumbered(*environment);
  return ExplainTfConfig(**TfConfigFromEnvironment(), device);
}

}  // namespace

bool Doctor() {
  bool well = true;
  const int cores = UsableCores();
  const std::string model = ProcValue("/proc/cpuinfo", "model name");
  Line("cores", model.empty() ? fmt::format("{}", cores) : fmt::format("{} ({})", cores, model));
  Line("SIMD", SimdTarget());
  Line("memory", Memory());
  Line("libraries", Libraries());
  try {
    Line("data", fmt::format("Fashion-MNIST in {}", FindFashionMnist()));
  } catch (const Error& error) {
    Line("data", error.what());
    well = false;
  }
  return ExplainLaunch(cores) && well;
}

}  // namespace tutti::tools
