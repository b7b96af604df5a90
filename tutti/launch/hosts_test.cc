#include "tutti/launch/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using testing::ElementsAre;

TEST(Hosts, AListOnTheCommandLine) {
  EXPECT_THAT(ValueOrThrow(ParseHosts("a:2,user@b,[fd77::1]:3")),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"user@b", 1}, HostSlots{"fd77::1", 3}));
  for (const char* text :
       {"", "a,", "a:", "a:0", "a:x", "a:5000", "-oProxyCommand=x", "a b", "a'"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseHosts(text).status())) << text;
  }
}

TEST(Hosts, AFileAsMpiHasIt) {
  const std::string path = testing::TempDir() + "hosts_test.txt";
  std::ofstream(path) << "# two hosts\na slots=2\n\n  b:3   # fast\nc\n";
  EXPECT_THAT(ValueOrThrow(ReadHostfile(path)),
              ElementsAre(HostSlots{"a", 2}, HostSlots{"b", 3}, HostSlots{"c", 1}));
  std::ofstream(path) << "a\nb max=3\n";
  EXPECT_EQ(std::string(MessageOf(ReadHostfile(path).status())),
            path + ":2: \"b max=3\": expected slots=N behind the host");
  std::ofstream(path) << "# nothing\n";
  EXPECT_FALSE(ReadHostfile(path).ok());
  std::remove(path.c_str());
  EXPECT_FALSE(ReadHostfile(path).ok());
}

TEST(Hosts, TasksFillThemInOrder) {
  const std::vector<HostSlots> hosts = {{"a", 2}, {"b", 2}};
  EXPECT_THAT(ValueOrThrow(AssignHosts(hosts, 3)), ElementsAre("a", "a", "b"));
  EXPECT_EQ(std::string(MessageOf(AssignHosts(hosts, 5).status())),
            "the job has 5 tasks, and the hosts take 4; name more, or b:5 for 5 tasks on host b");
}

}  // namespace
}  // namespace tutti
