#include "tutti/topology/link_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/status.h"

namespace tutti::topology {
namespace {

using ::testing::ElementsAre;

std::vector<Place> PlacesOf(const Route& route) {
  std::vector<Place> places;
  for (const Hop& hop : route.hops) places.push_back(hop.place);
  return places;
}

TEST(LinkCosts, UniformRanksHaveHostsOfTheirOwn) {
  const LinkCosts costs = UniformCosts(3, {1e9, 5e-6}, 10e9);
  EXPECT_THAT(costs.hosts, ElementsAre(0, 1, 2));
  EXPECT_EQ(costs.reduce, 1e-10);
  const Route& route = costs.Between(2, 0);
  EXPECT_EQ(route.latency, 5e-6);
  EXPECT_THAT(PlacesOf(route), ElementsAre(Place::kHostOut, Place::kHostIn));
  EXPECT_EQ(route.hops[0].seconds_per_byte, 1e-9);
}

TEST(LinkCosts, RanksOfAHostShareItsLink) {
  const int hosts[] = {7, 7, -1, -1};
  const LinkCosts costs = TwoLevelCosts(hosts, {10e9, 1e-6}, {1e9, 5e-6});
  EXPECT_THAT(costs.hosts, ElementsAre(0, 0, 1, 1));
  EXPECT_THAT(PlacesOf(costs.Between(0, 1)), ElementsAre(Place::kRankOut, Place::kRankIn));
  EXPECT_THAT(PlacesOf(costs.Between(1, 2)), ElementsAre(Place::kHostOut, Place::kHostIn));
  EXPECT_EQ(costs.memory, 1e-10);
}

TEST(LinkCosts, PairsKeepTheirOwnLinks) {
  const int hosts[] = {0, 0, 1};
  std::vector<Link> links(9);
  for (int i = 0; i < 9; ++i) links[static_cast<size_t>(i)] = {1e9, i * 1e-6};
  const LinkCosts costs = PairCosts(hosts, links);
  EXPECT_EQ(costs.Between(0, 1).latency, 1e-6);
  EXPECT_EQ(costs.Between(1, 0).latency, 3e-6);
  EXPECT_EQ(costs.Between(2, 1).latency, 7e-6);
  EXPECT_THAT(PlacesOf(costs.Between(0, 1)), ElementsAre(Place::kRankOut, Place::kRankIn));
  EXPECT_THAT(PlacesOf(costs.Between(2, 1)), ElementsAre(Place::kHostOut, Place::kHostIn));
}

TEST(LinkCosts, AFabricsRoutesPassAllThatLiesBetween) {
  const Fabric fabric{.name = "f",
                      .devices_per_host = 2,
                      .device_link = {400e9, 2e-6},
                      .hosts_per_rack = 2,
                      .host_link = {25e9, 5e-6},
                      .racks = 2,
                      .rack_link = {50e9, 1e-6},
                      .spine = {80e9, 3e-6}};
  const absl::StatusOr<LinkCosts> costs = FabricCosts(fabric, 8);
  ASSERT_TRUE(costs.ok());
  EXPECT_DOUBLE_EQ(costs->Between(0, 1).latency, 2e-6);
  EXPECT_DOUBLE_EQ(costs->Between(1, 2).latency, 11e-6);
  EXPECT_DOUBLE_EQ(costs->Between(3, 4).latency, 15e-6);
  EXPECT_THAT(
      PlacesOf(costs->Between(3, 4)),
      ElementsAre(Place::kHostOut, Place::kRackOut, Place::kSpine, Place::kRackIn, Place::kHostIn));
  EXPECT_EQ(MessageOf(FabricCosts(fabric, 9).status()),
            "9 ranks do not fit on the topology \"f\": it has 8 devices (2 a host, 2 hosts a rack, "
            "2 racks); ask for 1 to 8");
}

}  // namespace
}  // namespace tutti::topology
