#include "tutti/cluster/environment/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using testing::ElementsAre;

std::vector<std::string> Expand(std::string_view list) {
  return ValueOrThrow(ExpandHostlist(list));
}

TEST(Hostlist, PlainNames) {
  EXPECT_THAT(Expand("login"), ElementsAre("login"));
  EXPECT_THAT(Expand("a,b-2.site,c"), ElementsAre("a", "b-2.site", "c"));
}

TEST(Hostlist, Ranges) {
  EXPECT_THAT(Expand("n[1-3]"), ElementsAre("n1", "n2", "n3"));
  EXPECT_THAT(Expand("n[01-03,7]"), ElementsAre("n01", "n02", "n03", "n7"));
  EXPECT_THAT(Expand("n[098-101]x"), ElementsAre("n098x", "n099x", "n100x", "n101x"));
  EXPECT_THAT(Expand("n[5],login,m[1-2]"), ElementsAre("n5", "login", "m1", "m2"));
}

TEST(Hostlist, SeveralBracketsMultiply) {
  EXPECT_THAT(Expand("r[1-2]n[1-2]"), ElementsAre("r1n1", "r1n2", "r2n1", "r2n2"));
}

TEST(Hostlist, MistakesAreErrors) {
  for (const char* list :
       {"", ",", "a,", "n[", "n[]", "n[1-", "n[a]", "n[3-1]", "n]", "n[1,]", "n[0-999999999]",
        "n[1-10000]m[1-10000]", "n[99999999999]", "[", "a,,b"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ExpandHostlist(list).status())) << list;
  }
  EXPECT_EQ(std::string(MessageOf(ExpandHostlist("n[3-1]").status())),
            "\"n[3-1]\" is no list of hosts such as n[01-03,7]: 3-1 goes down");
}

}  // namespace
}  // namespace tutti
