#include "tutti/cluster/environment/pmix_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

absl::StatusOr<Pmix> Find(LaunchKind kind, const Variables& variables) {
  LaunchEnvironment environment;
  environment.kind = kind;
  environment.rank = 1;
  environment.size = 2;
  environment.found = "process 1 of 2";
  return FindPmix(environment, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

const Variables kServed = {
    {"PMIX_NAMESPACE", "7"}, {"PMIX_RANK", "1"}, {"PMIX_SERVER_URI4", "7.0;tcp4://127.0.0.1:1"}};

TEST(FindPmixTest, IsUsedWhereTheLauncherServesIt) {
  const Pmix pmix = ValueOrThrow(Find(LaunchKind::kOpenMpi, kServed));
  // A host without the library is well too, as long as that is told.
  EXPECT_TRUE(pmix.state == Pmix::State::kUsed ||
              (pmix.state == Pmix::State::kMissing && !pmix.why.empty()));
}

TEST(FindPmixTest, NeedsAllOfTheEnvironment) {
  for (const auto& [name, value] : kServed) {
    Variables some = kServed;
    some.erase(name);
    EXPECT_EQ(ValueOrThrow(Find(LaunchKind::kOpenMpi, some)).state, Pmix::State::kNone) << name;
  }
  EXPECT_EQ(ValueOrThrow(Find(LaunchKind::kSlurm, {})).why, "srun was not given --mpi=pmix");
}

TEST(FindPmixTest, IsOnlyForLaunchersThatHaveIt) {
  for (const LaunchKind kind : {LaunchKind::kTorchrun, LaunchKind::kMpich}) {
    EXPECT_EQ(ValueOrThrow(Find(kind, kServed)).state, Pmix::State::kNone);
  }
}

TEST(FindPmixTest, CanBeSwitchedOff) {
  Variables variables = kServed;
  variables["TUTTI_PMIX"] = "off";
  EXPECT_EQ(ValueOrThrow(Find(LaunchKind::kOpenMpi, variables)).state, Pmix::State::kOff);
  variables["TUTTI_PMIX"] = "maybe";
  EXPECT_THAT(std::string(MessageOf(Find(LaunchKind::kOpenMpi, variables).status())),
              HasSubstr("TUTTI_PMIX is \"maybe\"; expected on or off"));
}

TEST(FindPmixTest, AnotherRankIsAContradiction) {
  Variables variables = kServed;
  variables["PMIX_RANK"] = "0";
  const absl::Status status = Find(LaunchKind::kSlurm, variables).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(status)),
              HasSubstr("PMIX_RANK is 0, but Slurm says process 1 of 2"));
}

}  // namespace
}  // namespace tutti
