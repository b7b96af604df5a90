#include "tutti/train/strategies/ps/placer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/graph/ops/state.h"
#include "tutti/nn/initializers.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

const std::vector<std::string> kServers = {"/job:ps/task:0/cpu:0", "/job:ps/task:1/cpu:0",
                                           "/job:ps/task:2/cpu:0"};

VariableRequest Of(const std::string& name, const Shape& shape, bool trainable = true) {
  return {.name = name, .dtype = kFloat32, .shape = shape, .options = {.trainable = trainable}};
}

TEST(ServerPlacer, BalancesBytes) {
  ServerPlacer placer(kServers, 1 << 30);
  EXPECT_EQ(placer.Place(Of("a", {100})).device, kServers[0]);
  EXPECT_EQ(placer.Place(Of("b", {40})).device, kServers[1]);
  EXPECT_EQ(placer.Place(Of("c", {30})).device, kServers[2]);
  EXPECT_EQ(placer.Place(Of("d", {20})).device, kServers[2]);
  EXPECT_EQ(placer.Place(Of("e", {20})).device, kServers[1]);
  EXPECT_EQ(placer.Place(Of("average", {1}, false)).device, kServers[2]);
  EXPECT_EQ(placer.Place(Of("global_step", {}, false)).device, kServers[0]);
}

TEST(ServerPlacer, SplitsLargeVariablesByRows) {
  ServerPlacer placer(kServers, 399);
  const VariablePlacement split = placer.Place(Of("table", {10, 10}));
  ASSERT_EQ(split.parts.size(), 3u);
  EXPECT_EQ(split.parts[0].rows, 3);
  EXPECT_EQ(split.parts[1].rows, 3);
  EXPECT_EQ(split.parts[2].rows, 4);
  EXPECT_EQ(split.parts[2].device, kServers[2]);
  EXPECT_EQ(placer.variables()[1].first_row, 3);
  // Too few rows, nothing to train, or small enough.
  EXPECT_TRUE(placer.Place(Of("wide", {2, 1000})).parts.empty());
  EXPECT_TRUE(placer.Place(Of("average", {1000}, false)).parts.empty());
  EXPECT_TRUE(placer.Place(Of("small", {99})).parts.empty());
  ServerPlacer alone({kServers[0]}, 1);
  EXPECT_TRUE(alone.Place(Of("table", {10, 10})).parts.empty());
}

std::string ErrorOf(ServerPlacer& placer, const VariableRequest& request) {
  try {
    placer.Place(request);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kResourceExhausted);
    return error.what();
  }
  return "no error";
}

TEST(ServerPlacer, KeepsTheMemoryOfServers) {
  // 1000 rows of 40 bytes are 13.3 KB on each server.
  ServerPlacer enough(kServers, 1000, 13360);
  EXPECT_EQ(ErrorOf(enough, Of("table", {1000, 10})), "no error");
  ServerPlacer scarce(kServers, 1000, 13350);
  EXPECT_THAT(
      ErrorOf(scarce, Of("table", {1000, 10})),
      HasSubstr("the value of variable \"table\" [1000, 10] (rows 666 to 999) needs 13.36 KB "
                "on ps 2 (/job:ps/task:2/cpu:0), which holds 0 B already; --ps-memory is "
                "13.35 KB. Use more servers"));
  // One that is not split, on a server that holds something already.
  ServerPlacer alone({kServers[0]}, 1000, 1000);
  EXPECT_EQ(ErrorOf(alone, Of("a", {200})), "no error");
  EXPECT_THAT(ErrorOf(alone, Of("b", {51})),
              HasSubstr("the value of variable \"b\" [51] (whole) needs 204 B on ps 0 "
                        "(/job:ps/task:0/cpu:0), which holds 800 B already; --ps-memory is 1 KB"));
  EXPECT_EQ(ErrorOf(alone, Of("c", {50})), "no error");
}

TEST(ServerPlacer, SlotsCountForTheMemory) {
  Graph graph;
  ServerPlacer placer({kServers[0]}, 1000, 1200);
  const VariablePlacementScope scope(
      [&](const VariableRequest& request) { return placer.Place(request); });
  const Output table = Variable(graph, Zeros({100}), "table");
  Variable(graph, Zeros({100}), "table/m", {.trainable = false, .slot_of = table});
  Variable(graph, Zeros({100}), "table/v", {.trainable = false, .slot_of = table});
  VariableRequest third = Of("table/w", {1}, false);
  third.options.slot_of = table;
  EXPECT_THAT(
      ErrorOf(placer, third),
      HasSubstr("the slot \"table/w\" of variable \"table\" [100] (whole) needs 4 B on ps 0 "
                "(/job:ps/task:0/cpu:0), which holds 1.2 KB already"));
}

TEST(ServerPlacer, RendersThePlan) {
  Graph graph;
  ServerPlacer placer({kServers[0], kServers[1]}, 1000);
  {
    const VariablePlacementScope scope(
        [&](const VariableRequest& request) { return placer.Place(request); });
    Variable(graph, Zeros({100, 4}), "table");
    const Output bias = Variable(graph, Zeros({8}), "bias");
    const Output part = graph.Find("table/part_1")->output();
    Variable(graph, Zeros({50, 4}), "table/part_1/momentum", {.trainable = false, .slot_of = part});
    Variable(graph, Zeros({8}), "bias/momentum", {.trainable = false, .slot_of = bias});
    Variable(graph, Zeros({}, kInt64), "global_step", {.trainable = false});
  }
  EXPECT_EQ(placer.Summary(), "2 servers: 3 variables, 872 B and 1.6 KB");
  const std::string plan = placer.Describe();
  EXPECT_THAT(plan, HasSubstr("ps 0  /job:ps/task:0/cpu:0  872 B, 35% of all bytes\n"
                              "  table [100, 4]  rows 0 to 49         800 B\n"
                              "  bias [8]        whole                32 B + 32 B of slots\n"
                              "  global_step []  whole                8 B\n"
                              "ps 1  /job:ps/task:1/cpu:0  1.6 KB, 65% of all bytes\n"
                              "  table [100, 4]  rows 50 to 99        800 B + 800 B of slots"));
}

}  // namespace
}  // namespace tutti
