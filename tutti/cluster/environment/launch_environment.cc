// Every launcher has a reader, which says whether its variables are there, and what they tell. A
// reader that finds some of them and not others fails: to train alone by mistake, in as many copies
// as the job has processes, is worse than not to start.
#include "tutti/cluster/environment/launch_environment.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/cluster/environment/hostlist.h"
#include "tutti/cluster/tf_config.h"

namespace tutti {
namespace {

constexpr int kMostProcesses = 1 << 20;
constexpr int kFirstPort = 20000;  // below those that systems give to outgoing connections
constexpr int kPorts = 10000;

struct Kind {
  LaunchKind kind;
  const char* word;  // in TUTTI_LAUNCH
  const char* name;
};
constexpr Kind kKinds[] = {{LaunchKind::kTfConfig, "tf-config", "TF_CONFIG"},
                           {LaunchKind::kTorchrun, "torchrun", "torchrun"},
                           {LaunchKind::kOpenMpi, "openmpi", "Open MPI"},
                           {LaunchKind::kMpich, "mpich", "MPICH"},
                           {LaunchKind::kSlurm, "slurm", "Slurm"},
                           {LaunchKind::kAlone, "alone", "nobody"}};

class Reader {
 public:
  explicit Reader(const Lookup& lookup) : lookup_(lookup) {}

  std::string Text(const char* name) const {
    const char* const value = lookup_(name);
    return value == nullptr ? "" : value;
  }
  bool Has(const char* name) const { return lookup_(name) != nullptr; }

  absl::StatusOr<int> Number(const char* name, int least, int most) const {
    const std::string text = Text(name);
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text.empty() || error != std::errc() || end != text.data() + text.size() || value < least ||
        value > most) {
      return InvalidArgument("{} is \"{}\"; expected a whole number from {} to {}", name, text,
                             least, most);
    }
    return value;
  }

  // All must be there.
  absl::Status Require(std::string_view launcher, const std::vector<const char*>& names) const {
    std::vector<std::string> found, missing;
    for (const char* name : names) {
      if (Has(name)) {
        found.push_back(fmt::format("{}={}", name, Text(name)));
      } else {
        missing.emplace_back(name);
      }
    }
    if (missing.empty()) return absl::OkStatus();
    return InvalidArgument(
        "the variables of {} are only partly set: {}, but no {}; start the program by it, unset "
        "them, or set TUTTI_LAUNCH=alone",
        launcher, fmt::join(found, ", "), fmt::join(missing, ", "));
  }

  absl::StatusOr<LaunchEnvironment> Ranked(LaunchKind kind, const char* rank,
                                           const char* size) const {
    TUTTI_RETURN_IF_ERROR(Require(NameOf(kind), {rank, size}));
    LaunchEnvironment environment;
    environment.kind = kind;
    TUTTI_ASSIGN_OR_RETURN(environment.size, Number(size, 1, kMostProcesses));
    TUTTI_ASSIGN_OR_RETURN(environment.rank, Number(rank, 0, environment.size - 1));
    environment.found =
        fmt::format("process {} of {} ({}, {})", environment.rank, environment.size, rank, size);
    return environment;
  }

 private:
  const Lookup& lookup_;
};

using Found = std::optional<LaunchEnvironment>;

absl::StatusOr<Found> ReadTfConfig(const Reader& reader) {
  if (!reader.Has("TF_CONFIG")) return Found();
  TUTTI_ASSIGN_OR_RETURN(const TaskConfig config, ParseTfConfig(reader.Text("TF_CONFIG")));
  LaunchEnvironment environment;
  environment.kind = LaunchKind::kTfConfig;
  environment.size = config.cluster.Has(config.task) ? 0 : 1;  // an evaluator outside
  for (const auto& [job, tasks] : config.cluster.jobs()) environment.size += int(tasks.size());
  environment.found =
      fmt::format("{} of {} tasks (TF_CONFIG)", ToString(config.task), environment.size);
  return environment;
}

// torchrun's own agent listens at MASTER_PORT, so that one is not used.
absl::StatusOr<Found> ReadTorchrun(const Reader& reader) {
  if (!reader.Has("RANK") && !reader.Has("WORLD_SIZE")) return Found();
  TUTTI_RETURN_IF_ERROR(
      reader.Require("torchrun", {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}));
  TUTTI_ASSIGN_OR_RETURN(LaunchEnvironment environment,
                         reader.Ranked(LaunchKind::kTorchrun, "RANK", "WORLD_SIZE"));
  environment.first_host = reader.Text("MASTER_ADDR");
  environment.one_host = reader.Text("LOCAL_WORLD_SIZE") == reader.Text("WORLD_SIZE");
  environment.job =
      fmt::format("torchrun-{}-{}-{}-{}", environment.first_host, reader.Text("MASTER_PORT"),
                  reader.Text("TORCHELASTIC_RUN_ID"), reader.Text("TORCHELASTIC_RESTART_COUNT"));
  return environment;
}

absl::StatusOr<Found> ReadOpenMpi(const Reader& reader) {
  if (!reader.Has("OMPI_COMM_WORLD_RANK") && !reader.Has("OMPI_COMM_WORLD_SIZE")) return Found();
  TUTTI_ASSIGN_OR_RETURN(
      LaunchEnvironment environment,
      reader.Ranked(LaunchKind::kOpenMpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"));
  environment.one_host =
      reader.Text("OMPI_COMM_WORLD_LOCAL_SIZE") == reader.Text("OMPI_COMM_WORLD_SIZE");
  const char* const names =
      reader.Has("PMIX_NAMESPACE") ? "PMIX_NAMESPACE" : "OMPI_MCA_ess_base_jobid";
  environment.job = fmt::format("openmpi-{}", reader.Text(names));
  return environment;
}

// The name of the job comes from PMI itself (pmi_client.h).
absl::StatusOr<Found> ReadMpich(const Reader& reader) {
  if (!reader.Has("PMI_RANK") && !reader.Has("PMI_SIZE")) return Found();
  TUTTI_ASSIGN_OR_RETURN(LaunchEnvironment environment,
                         reader.Ranked(LaunchKind::kMpich, "PMI_RANK", "PMI_SIZE"));
  environment.one_host = reader.Text("MPI_LOCALNRANKS") == reader.Text("PMI_SIZE");
  return environment;
}

// Steps from this number on are not of srun's tasks: the batch script, or the shell of salloc where
// Slurm is configured to run it on the first node (LaunchParameters=use_interactive_step).
constexpr uint64_t kFirstSpecialStep = 0xfffffff0;

bool IsInSlurmStep(const Reader& reader) {
  if (!reader.Has("SLURM_STEP_ID")) return reader.Has("SLURM_STEP_NUM_TASKS");
  const std::string text = reader.Text("SLURM_STEP_ID");
  uint64_t step = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  return error != std::errc() || end != text.data() + text.size() || step < kFirstSpecialStep;
}

absl::StatusOr<Found> ReadSlurm(const Reader& reader) {
  if (!reader.Has("SLURM_JOB_ID") || !IsInSlurmStep(reader)) return Found();
  TUTTI_RETURN_IF_ERROR(reader.Require("a Slurm step", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                                                        "SLURM_STEP_ID", "SLURM_STEP_NODELIST"}));
  TUTTI_ASSIGN_OR_RETURN(LaunchEnvironment environment,
                         reader.Ranked(LaunchKind::kSlurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"));
  auto hosts = ExpandHostlist(reader.Text("SLURM_STEP_NODELIST"));
  if (!hosts.ok()) return WithPrefix(hosts.status(), "SLURM_STEP_NODELIST: ");
  environment.first_host = hosts->front();
  environment.one_host = hosts->size() == 1;
  environment.job =
      fmt::format("slurm-{}.{}", reader.Text("SLURM_JOB_ID"), reader.Text("SLURM_STEP_ID"));
  // A job that was put back into the queue keeps its id, and its steps are numbered anew.
  if (const std::string restarts = reader.Text("SLURM_RESTART_COUNT"); !restarts.empty()) {
    environment.job += fmt::format("-{}", restarts);
  }
  environment.found +=
      fmt::format(", step {}.{} on {}", reader.Text("SLURM_JOB_ID"), reader.Text("SLURM_STEP_ID"),
                  reader.Text("SLURM_STEP_NODELIST"));
  return environment;
}

// Whoever starts processes inside an allocation, such as mpirun, leaves its variables as they are:
// they are an error only where nobody else has numbered the processes.
absl::Status RefuseAllocationWithoutStep(const Reader& reader) {
  if (!reader.Has("SLURM_JOB_ID") || IsInSlurmStep(reader)) return absl::OkStatus();
  // Without --ntasks there is no SLURM_NTASKS, and a task a node.
  const bool counted = reader.Has("SLURM_NTASKS");
  const char* const name = counted ? "SLURM_NTASKS" : "SLURM_JOB_NUM_NODES";
  const std::string count = reader.Text(name);
  if (count.empty() || count == "1") return absl::OkStatus();
  return InvalidArgument(
      "this is Slurm job {} of {} {} (SLURM_JOB_ID, {}), but no step of it: use "
      "srun to start the program, or set TUTTI_LAUNCH=alone to train alone",
      reader.Text("SLURM_JOB_ID"), count, counted ? "tasks" : "nodes", name);
}

// Open MPI and Slurm set PMIx's variables beside their own. Where they stand alone, as under prun
// and prterun, they do not tell the number of processes.
absl::Status RefusePmixAlone(const Reader& reader) {
  std::vector<std::string> found;
  for (const char* name : {"PMIX_RANK", "PMIX_NAMESPACE"}) {
    if (reader.Has(name)) found.push_back(fmt::format("{}={}", name, reader.Text(name)));
  }
  if (found.empty()) return absl::OkStatus();
  return InvalidArgument(
      "a PMIx launcher (prun, prterun) started this process, as {} says, but no variable tells how "
      "many processes the job has; start the program by mpirun, srun or torchrun, or set "
      "TUTTI_LAUNCH=alone to train alone",
      fmt::join(found, ", "));
}

using Read = absl::StatusOr<Found> (*)(const Reader&);
// In the order of kKinds.
constexpr Read kReaders[] = {ReadTfConfig, ReadTorchrun, ReadOpenMpi, ReadMpich, ReadSlurm};

bool Agree(const LaunchEnvironment& a, const LaunchEnvironment& b) {
  // TF_CONFIG has no order of all tasks.
  const bool ranked = a.kind != LaunchKind::kTfConfig;
  return a.size == b.size && (!ranked || a.rank == b.rank);
}

absl::StatusOr<LaunchEnvironment> ReadWanted(const Reader& reader) {
  const std::string wanted = reader.Text("TUTTI_LAUNCH");
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (wanted != kKinds[i].word) continue;
    if (kKinds[i].kind == LaunchKind::kAlone)
      return LaunchEnvironment{.found = "TUTTI_LAUNCH=alone"};
    TUTTI_ASSIGN_OR_RETURN(Found found, kReaders[i](reader));
    if (found) return *std::move(found);
    if (kKinds[i].kind == LaunchKind::kSlurm) {
      TUTTI_RETURN_IF_ERROR(RefuseAllocationWithoutStep(reader));
    }
    return InvalidArgument("TUTTI_LAUNCH is {}, but no variable of {} is set", wanted,
                           kKinds[i].name);
  }
  return InvalidArgument(
      "TUTTI_LAUNCH is \"{}\"; expected tf-config, torchrun, openmpi, mpich, slurm or alone",
      wanted);
}

}  // namespace

std::string_view NameOf(LaunchKind kind) {
  return std::find_if(std::begin(kKinds), std::end(kKinds),
                      [kind](const Kind& known) { return known.kind == kind; })
      ->name;
}

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment(const Lookup& lookup) {
  const Reader reader(lookup);
  if (!reader.Text("TUTTI_LAUNCH").empty()) return ReadWanted(reader);
  Found chosen;
  for (const Read read : kReaders) {
    TUTTI_ASSIGN_OR_RETURN(Found found, read(reader));
    if (!found) continue;
    if (!chosen) {
      chosen = std::move(found);
    } else if (!Agree(*chosen, *found)) {
      return InvalidArgument(
          "two launchers contradict each other: {} says {}, {} says {}; start the program by one "
          "of "
          "them, or say which counts by TUTTI_LAUNCH",
          NameOf(chosen->kind), chosen->found, NameOf(found->kind), found->found);
    }
  }
  if (chosen) return *std::move(chosen);
  TUTTI_RETURN_IF_ERROR(RefusePmixAlone(reader));
  TUTTI_RETURN_IF_ERROR(RefuseAllocationWithoutStep(reader));
  return LaunchEnvironment{.found = "no variable of a launcher is set"};
}

absl::StatusOr<LaunchEnvironment> ReadLaunchEnvironment() {
  return ReadLaunchEnvironment([](const char* name) { return std::getenv(name); });
}

int PortOfJob(std::string_view job) {
  uint64_t sum = 0xcbf29ce484222325;  // FNV-1a: the same in every process
  for (const char c : job) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  return kFirstPort + int(sum % kPorts);
}

}  // namespace tutti
