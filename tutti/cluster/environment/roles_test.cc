#include "tutti/cluster/environment/roles.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using testing::ElementsAre;

std::vector<std::string> NamesOf(const RoleCounts& counts) {
  std::vector<std::string> names;
  for (const TaskId& task : TasksOf(counts)) names.push_back(RoleName(task));
  return names;
}

TEST(Roles, HaveOneOrder) {
  EXPECT_THAT(NamesOf({.chief = true, .workers = 2, .ps = 1, .evaluator = true}),
              ElementsAre("chief", "worker 0", "worker 1", "ps 0", "evaluator"));
  EXPECT_THAT(NamesOf({}), ElementsAre("worker 0"));
}

TEST(Roles, ProcessesAreDivided) {
  EXPECT_EQ(ValueOrThrow(DivideRoles(8, 2, true)),
            (RoleCounts{.chief = true, .workers = 4, .ps = 2, .evaluator = true}));
  EXPECT_EQ(ValueOrThrow(DivideRoles(1, 0, false)), (RoleCounts{.chief = true, .workers = 0}));
  EXPECT_EQ(std::string(MessageOf(DivideRoles(3, 2, true).status())),
            "the job has 3 processes, and --ps 2 --evaluator leaves nobody to train; start at "
            "least 4");
}

TEST(Roles, PositionsCountTheTasksOfAHost) {
  const ClusterSpec cluster = ValueOrThrow(ClusterSpec::Make(
      {{"chief", {{0, "a:1"}}}, {"worker", {{0, "b:1"}, {1, "a:2"}}}, {"ps", {{0, "a:3"}}}}));
  EXPECT_EQ(PositionOnHost(cluster, {"chief", 0}), 0);
  EXPECT_EQ(PositionOnHost(cluster, {"worker", 0}), 0);
  EXPECT_EQ(PositionOnHost(cluster, {"worker", 1}), 1);
  EXPECT_EQ(PositionOnHost(cluster, {"ps", 0}), 2);
  EXPECT_EQ(PositionOnHost(cluster, {"evaluator", 0}), 0);
}

}  // namespace
}  // namespace tutti
