#include "tutti/cluster/share_of_host.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

struct Case {
  int usable, total, beside, expected;
};

TEST(ShareOfHost, OnlyCoresThatNobodyHasDividedAreDivided) {
  for (const Case& c : {Case{8, 8, 2, 4}, Case{8, 8, 3, 2}, Case{8, 8, 1, 8}, Case{8, 8, 0, 8},
                        Case{2, 2, 3, 1},  // fewer cores than tasks: they take turns
                        Case{4, 8, 2, 4},  // a launcher gave each of two its half
                        Case{1, 2, 2, 1},  // and here
                        Case{2, 8, 8, 2}, Case{1, 1, 1, 1}, Case{1, 1, 4, 1}}) {
    EXPECT_EQ(ShareOfHost({c.usable, c.total}, c.beside), c.expected)
        << c.usable << " of " << c.total << " cores, " << c.beside << " tasks";
  }
}

TEST(ShareOfHost, NamesOfTheLoopbackAreOneHost) {
  const std::vector<std::string> tasks = {"127.0.0.1:1", "localhost:2", "[::1]:3", "127.0.1.1:4",
                                          "10.0.0.1:5",  "node:6",      "node:7",  "localhost2:8"};
  EXPECT_EQ(CountOfHost(tasks, "localhost:9"), 4);
  EXPECT_EQ(CountOfHost(tasks, "127.0.0.1:9"), 4);
  EXPECT_EQ(CountOfHost(tasks, "node:6"), 2);
  EXPECT_EQ(CountOfHost(tasks, "10.0.0.1:5"), 1);
  EXPECT_EQ(CountOfHost(tasks, "other:1"), 0);
}

TEST(ShareOfHost, TheHostHasWhatThisProcessMayUse) {
  const HostCores cores = CountHostCores();
  EXPECT_GE(cores.usable, 1);
  EXPECT_GE(cores.total, cores.usable);
}

}  // namespace
}  // namespace tutti
