#include "tutti/cluster/environment/launch_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

absl::StatusOr<LaunchEnvironment> Read(const Variables& variables) {
  return ReadLaunchEnvironment([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

std::string ErrorOf(const Variables& variables) {
  const auto read = Read(variables);
  EXPECT_TRUE(absl::IsInvalidArgument(read.status())) << read.status();
  return std::string(MessageOf(read.status()));
}

Variables Joined(Variables a, const Variables& b) {
  a.insert(b.begin(), b.end());
  return a;
}

const Variables kSlurm = {{"SLURM_JOB_ID", "12"},        {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "3"},         {"SLURM_NTASKS", "8"},
                          {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NODELIST", "n[01-02,7]"}};
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_NAMESPACE", "681443329"}};
const Variables kTorchrun = {{"RANK", "0"},
                             {"WORLD_SIZE", "2"},
                             {"MASTER_ADDR", "n01"},
                             {"MASTER_PORT", "29500"},
                             {"LOCAL_WORLD_SIZE", "1"}};
const Variables kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};

TEST(LaunchEnvironment, NothingIsAlone) {
  const auto alone = ValueOrThrow(Read({{"MASTER_ADDR", "n01"}, {"HOME", "/root"}}));
  EXPECT_EQ(alone.kind, LaunchKind::kAlone);
  EXPECT_EQ(alone.size, 1);
}

TEST(LaunchEnvironment, SlurmStep) {
  const auto found = ValueOrThrow(Read(kSlurm));
  EXPECT_EQ(found.kind, LaunchKind::kSlurm);
  EXPECT_EQ(found.rank, 3);
  EXPECT_EQ(found.size, 8);
  EXPECT_EQ(found.first_host, "n01");
  EXPECT_FALSE(found.one_host);
  EXPECT_EQ(found.job, "slurm-12.0");
  EXPECT_EQ(found.found,
            "process 3 of 8 (SLURM_PROCID, SLURM_STEP_NUM_TASKS), step 12.0 on n[01-02,7]");
}

TEST(LaunchEnvironment, OpenMpi) {
  const auto found = ValueOrThrow(Read(kOpenMpi));
  EXPECT_EQ(found.kind, LaunchKind::kOpenMpi);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.size, 4);
  EXPECT_TRUE(found.one_host);
  EXPECT_EQ(found.job, "openmpi-681443329");
}

TEST(LaunchEnvironment, Mpich) {
  const auto found = ValueOrThrow(Read(kMpich));
  EXPECT_EQ(found.kind, LaunchKind::kMpich);
  EXPECT_EQ(found.rank, 1);
  EXPECT_TRUE(found.one_host);
}

TEST(LaunchEnvironment, Torchrun) {
  const auto found = ValueOrThrow(Read(kTorchrun));
  EXPECT_EQ(found.kind, LaunchKind::kTorchrun);
  EXPECT_EQ(found.first_host, "n01");
  EXPECT_FALSE(found.one_host);
  auto restarted = kTorchrun;
  restarted["TORCHELASTIC_RESTART_COUNT"] = "1";
  EXPECT_NE(ValueOrThrow(Read(restarted)).job, found.job);
}

TEST(LaunchEnvironment, TfConfig) {
  const auto found = ValueOrThrow(Read(
      {{"TF_CONFIG",
        R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "evaluator", "index": 0}})"}}));
  EXPECT_EQ(found.kind, LaunchKind::kTfConfig);
  EXPECT_EQ(found.size, 3);
  EXPECT_THAT(ErrorOf({{"TF_CONFIG", ""}}), HasSubstr("TF_CONFIG is set but empty"));
}

TEST(LaunchEnvironment, HalfOfOneNamesWhatIsMissing) {
  EXPECT_EQ(ErrorOf({{"RANK", "1"}}),
            "the variables of torchrun are only partly set: RANK=1, but no WORLD_SIZE, "
            "MASTER_ADDR, MASTER_PORT; start the program by it, unset them, or set "
            "TUTTI_LAUNCH=alone");
  EXPECT_THAT(ErrorOf({{"PMI_SIZE", "2"}}), HasSubstr("PMI_SIZE=2, but no PMI_RANK"));
  EXPECT_THAT(ErrorOf({{"OMPI_COMM_WORLD_SIZE", "2"}}), HasSubstr("but no OMPI_COMM_WORLD_RANK"));
  auto slurm = kSlurm;
  slurm.erase("SLURM_STEP_NODELIST");
  EXPECT_THAT(ErrorOf(slurm), HasSubstr("but no SLURM_STEP_NODELIST"));
}

TEST(LaunchEnvironment, NumbersMustMakeSense) {
  auto mpich = kMpich;
  mpich["PMI_RANK"] = "2";
  EXPECT_EQ(ErrorOf(mpich), "PMI_RANK is \"2\"; expected a whole number from 0 to 1");
  mpich["PMI_RANK"] = "x";
  EXPECT_THAT(ErrorOf(mpich), HasSubstr("PMI_RANK is \"x\""));
  auto slurm = kSlurm;
  slurm["SLURM_STEP_NODELIST"] = "n[";
  EXPECT_THAT(ErrorOf(slurm), HasSubstr("SLURM_STEP_NODELIST: \"n[\" is no list of hosts"));
}

TEST(LaunchEnvironment, AnAllocationWithoutSrunSaysSo) {
  EXPECT_THAT(ErrorOf({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "8"}}), HasSubstr("use srun"));
  EXPECT_THAT(
      ErrorOf({{"SLURM_JOB_ID", "12"}, {"SLURM_JOB_NUM_NODES", "2"}}),
      HasSubstr("job 12 of 2 nodes (SLURM_JOB_ID, SLURM_JOB_NUM_NODES), but no step of it"));
  EXPECT_EQ(ValueOrThrow(Read({{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "1"}})).kind,
            LaunchKind::kAlone);
}

// As in `sbatch -n 8 --wrap 'mpirun -n 4 ./train'`.
TEST(LaunchEnvironment, OtherLaunchersWorkInsideAnAllocation) {
  const Variables allocation = {{"SLURM_JOB_ID", "12"}, {"SLURM_NTASKS", "8"}};
  for (const auto& [variables, kind] :
       {std::pair(kOpenMpi, LaunchKind::kOpenMpi), std::pair(kMpich, LaunchKind::kMpich),
        std::pair(kTorchrun, LaunchKind::kTorchrun),
        std::pair(Variables{{"TF_CONFIG",
                             R"({"cluster": {"worker": ["a:1", "b:1"]},
                                 "task": {"type": "worker", "index": 0}})"}},
                  LaunchKind::kTfConfig)}) {
    const auto found = Read(Joined(variables, allocation));
    ASSERT_TRUE(found.ok()) << NameOf(kind) << ": " << found.status();
    EXPECT_EQ(found->kind, kind);
  }
  EXPECT_THAT(ErrorOf(Joined(allocation, {{"TUTTI_LAUNCH", "slurm"}})), HasSubstr("use srun"));
}

// The shell of salloc is one, with LaunchParameters=use_interactive_step; its variables tell of one
// task.
TEST(LaunchEnvironment, AnInteractiveStepIsNoStepOfTasks) {
  const Variables shell = {{"SLURM_JOB_ID", "12"},          {"SLURM_NTASKS", "8"},
                           {"SLURM_STEP_ID", "4294967290"}, {"SLURM_STEP_NUM_TASKS", "1"},
                           {"SLURM_PROCID", "0"},           {"SLURM_STEP_NODELIST", "n01"}};
  EXPECT_THAT(ErrorOf(shell), HasSubstr("use srun"));
  EXPECT_EQ(ValueOrThrow(Read(Joined(kOpenMpi, shell))).kind, LaunchKind::kOpenMpi);
  auto one = shell;
  one["SLURM_NTASKS"] = "1";
  EXPECT_EQ(ValueOrThrow(Read(one)).kind, LaunchKind::kAlone);
}

TEST(LaunchEnvironment, AJobThatIsBackInTheQueueMeetsElsewhere) {
  auto again = kSlurm;
  again["SLURM_RESTART_COUNT"] = "1";
  EXPECT_EQ(ValueOrThrow(Read(again)).job, "slurm-12.0-1");
}

TEST(LaunchEnvironment, PmixAloneDoesNotTellTheNumberOfProcesses) {
  const Variables pmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-n01-7@1"}};
  EXPECT_EQ(ErrorOf(pmix),
            "a PMIx launcher (prun, prterun) started this process, as PMIX_RANK=1, "
            "PMIX_NAMESPACE=prterun-n01-7@1 says, but no variable tells how many processes the job "
            "has; start the program by mpirun, srun or torchrun, or set TUTTI_LAUNCH=alone to "
            "train alone");
  EXPECT_THAT(ErrorOf({{"PMIX_RANK", "0"}}), HasSubstr("as PMIX_RANK=0 says"));
  // Beside the variables of a launcher they do no harm, and the user may know better.
  EXPECT_EQ(ValueOrThrow(Read(Joined(kSlurm, pmix))).kind, LaunchKind::kSlurm);
  EXPECT_EQ(ValueOrThrow(Read(Joined(kOpenMpi, pmix))).kind, LaunchKind::kOpenMpi);
  EXPECT_EQ(ValueOrThrow(Read(Joined(pmix, {{"TUTTI_LAUNCH", "alone"}}))).kind, LaunchKind::kAlone);
}

TEST(LaunchEnvironment, ContradictionsShowBoth) {
  const std::string error = ErrorOf(Joined(kSlurm, kOpenMpi));
  EXPECT_THAT(error, HasSubstr("two launchers contradict each other: Open MPI says process 1 of 4 "
                               "(OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE), Slurm says process 3 "
                               "of 8"));
  EXPECT_THAT(error, HasSubstr("TUTTI_LAUNCH"));
}

TEST(LaunchEnvironment, LaunchersThatAgreeAreFine) {
  const Variables pmi = {{"PMI_RANK", "3"}, {"PMI_SIZE", "8"}};
  EXPECT_EQ(ValueOrThrow(Read(Joined(kSlurm, pmi))).size, 8);
}

TEST(LaunchEnvironment, OneCanBeChosen) {
  auto both = Joined(kSlurm, kOpenMpi);
  both["TUTTI_LAUNCH"] = "slurm";
  EXPECT_EQ(ValueOrThrow(Read(both)).kind, LaunchKind::kSlurm);
  both["TUTTI_LAUNCH"] = "alone";
  EXPECT_EQ(ValueOrThrow(Read(both)).kind, LaunchKind::kAlone);
  both["TUTTI_LAUNCH"] = "torchrun";
  EXPECT_THAT(ErrorOf(both), HasSubstr("no variable of torchrun is set"));
  both["TUTTI_LAUNCH"] = "mpi";
  EXPECT_THAT(ErrorOf(both), HasSubstr("expected tf-config, torchrun"));
}

TEST(LaunchEnvironment, PortsAreThoseOfTheJob) {
  EXPECT_EQ(PortOfJob("slurm-12.0"), PortOfJob("slurm-12.0"));
  EXPECT_NE(PortOfJob("slurm-12.0"), PortOfJob("slurm-13.0"));
  for (const char* job : {"", "a", "slurm-12.0"}) {
    EXPECT_GE(PortOfJob(job), 20000);
    EXPECT_LT(PortOfJob(job), 30000);
  }
}

}  // namespace
}  // namespace tutti
