#include "tutti/topology/fabric.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/status.h"

namespace tutti::topology {
namespace {

constexpr std::string_view kTwoRacks = R"(name = "two racks"
[device]
count = 8
bandwidth = "400GB/s"
latency = "2us"
reduce = "200GB/s"
[host]
count = 4
bandwidth = "100Gbit/s"
latency = "5us"
[rack]
count = 2
bandwidth = "400Gbit/s"
latency = "1us"
[spine]
bandwidth = "800Gbit/s"
latency = "3us"
[model]
parameters = "175G"
dtype = "float32"
replicas = 3
)";

// The text with `from` replaced, which must be there.
std::string With(std::string_view from, std::string_view to) {
  std::string text(kTwoRacks);
  const size_t at = text.find(from);
  EXPECT_NE(at, text.npos) << from;
  return text.replace(at, from.size(), to);
}

std::string ErrorOf(std::string_view text) {
  const absl::StatusOr<Fabric> fabric = ParseFabric(text, "f.toml");
  EXPECT_FALSE(fabric.ok()) << text;
  EXPECT_EQ(fabric.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(MessageOf(fabric.status()));
}

TEST(Fabric, ReadsEveryKey) {
  const absl::StatusOr<Fabric> fabric = ParseFabric(kTwoRacks, "f.toml");
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_EQ(*fabric, (Fabric{.name = "two racks",
                             .devices_per_host = 8,
                             .device_link = {400e9, 2e-6},
                             .reduce_bytes_per_second = 200e9,
                             .hosts_per_rack = 4,
                             .host_link = {12.5e9, 5e-6},
                             .racks = 2,
                             .rack_link = {50e9, 1e-6},
                             .spine = {100e9, 3e-6},
                             .parameters = 175'000'000'000,
                             .bytes_per_parameter = 4,
                             .replicas = 3}));
  EXPECT_EQ(fabric->devices(), 64);
  EXPECT_EQ(fabric->HostOf(7), 0);
  EXPECT_EQ(fabric->HostOf(8), 1);
  EXPECT_EQ(fabric->RackOf(31), 0);
  EXPECT_EQ(fabric->RackOf(32), 1);
}

TEST(Fabric, NeedsOnlyTheHosts) {
  const absl::StatusOr<Fabric> fabric =
      ParseFabric("[host]\ncount = 3\nbandwidth = \"1GB/s\"\nlatency = \"0s\"\n", "f.toml");
  ASSERT_TRUE(fabric.ok()) << fabric.status();
  EXPECT_EQ(fabric->devices(), 3);
}

TEST(Fabric, ErrorsNameLineKeyFoundAndExpected) {
  EXPECT_EQ(ErrorOf(With("\"100Gbit/s\"", "\"fast\"")),
            "f.toml:9: host.bandwidth is \"fast\"; expected a rate such as \"25Gbit/s\" or "
            "\"400GB/s\"");
  EXPECT_EQ(ErrorOf(With("\"5us\"", "5")),
            "f.toml:10: host.latency is 5; expected a time such as \"5us\"");
  EXPECT_EQ(ErrorOf(With("count = 4", "count = 0")),
            "f.toml:8: host.count is 0; expected a whole number from 1 to 1000000");
  EXPECT_EQ(ErrorOf(With("count = 4\n", "")),
            "f.toml:7: host.count is missing; expected a whole number of 1 or more");
  EXPECT_EQ(ErrorOf(With("reduce", "reduction")),
            "f.toml:6: device.reduction is not a key of a topology; known here: count, bandwidth, "
            "latency, reduce");
  EXPECT_EQ(ErrorOf(With("[host]", "[hosts]")),
            "f.toml:7: hosts is not a key of a topology; known here: name, device, host, rack, "
            "spine, model");
  EXPECT_EQ(
      ErrorOf(With("float32", "int8")),
      "f.toml:20: model.dtype is \"int8\"; expected \"float16\", \"bfloat16\", \"float32\" or "
      "\"float64\"");
  EXPECT_EQ(ErrorOf(With("replicas = 3", "replicas = 65")),
            "f.toml:21: model.replicas is 65; expected at most 64, the devices there are");
  EXPECT_EQ(
      ErrorOf(With("\"175G\"", "\"3000P\"")),
      "f.toml:19: model.parameters is \"3000P\"; expected parameters of less than 2^63 bytes");
}

TEST(Fabric, MissingSectionsAreNamed) {
  EXPECT_EQ(ErrorOf("name = \"x\"\n"),
            "f.toml: the section [host] is missing; expected count, bandwidth and latency of the "
            "hosts of a rack");
  EXPECT_EQ(ErrorOf(With("[spine]\nbandwidth = \"800Gbit/s\"\nlatency = \"3us\"\n", "")),
            "f.toml: the section [spine] is missing; expected bandwidth and latency of what joins "
            "the 2 racks");
  EXPECT_EQ(ErrorOf("host = 3\n"), "f.toml:1: host is 3; expected a section [host]");
}

TEST(Fabric, WhatIsNoTomlIsToldWithItsLine) {
  EXPECT_EQ(ErrorOf("[host]\ncount = \n").substr(0, 19), "f.toml:2: not TOML:");
  EXPECT_EQ(ErrorOf(std::string((1 << 20) + 1, '#')),
            "f.toml: 1048577 bytes; a topology has at most 1048576");
}

TEST(Fabric, TooManyDevicesAreRefused) {
  EXPECT_EQ(ErrorOf("[device]\ncount = 1000000\nbandwidth=\"1B/s\"\nlatency=\"0s\"\n"
                    "[host]\ncount = 1000000\nbandwidth=\"1B/s\"\nlatency=\"0s\"\n"),
            "f.toml: 1000000 devices x 1000000 hosts x 1 racks are more than 100000000 devices");
}

TEST(Fabric, FilesThatCannotBeReadAreNamed) {
  EXPECT_EQ(MessageOf(ReadFabric("/nonexistent/f.toml").status()),
            "/nonexistent/f.toml: cannot be read: No such file or directory");
  EXPECT_FALSE(ReadFabric("/").ok());
}

TEST(Fabric, ShippedFilesSayWhatTheyPromise) {
  const std::string folder = TUTTI_TOPOLOGIES;
  for (const int gigabits : {25, 100, 200}) {
    const absl::StatusOr<Fabric> fabric =
        ReadFabric(fmt::format("{}/datacenter-{}g.toml", folder, gigabits));
    ASSERT_TRUE(fabric.ok()) << fabric.status();
    EXPECT_EQ(fabric->devices_per_host, 8);
    EXPECT_EQ(fabric->device_link.bytes_per_second, 400e9);
    EXPECT_EQ(fabric->host_link.bytes_per_second, gigabits * 1e9 / 8);
  }
  const absl::StatusOr<Fabric> model = ReadFabric(folder + "/model-175g.toml");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->parameters * model->bytes_per_parameter, 700'000'000'000);
  EXPECT_EQ(model->replicas, 3);
  EXPECT_EQ(1e12 / model->host_link.bytes_per_second, 40);
}

// Each of these made the parser recurse until the stack was full.
TEST(Fabric, DeepNestingIsRefusedWithItsLine) {
  std::string dotted = "a";
  for (int i = 0; i < 50'000; ++i) dotted += ".a";
  std::string tables, ends;
  for (int i = 0; i < 50'000; ++i) {
    tables += "a={";
    ends += "}";
  }
  for (const std::string& text :
       {dotted + " = 1", "[" + dotted + "]", "x = { s = \"\"\"t\"\"\"\", " + dotted + " = 1 }",
        tables + ends, "x = " + std::string(50'000, '[')}) {
    const auto fabric = ParseFabric("name = \"x\"\n" + text, "deep.toml");
    ASSERT_EQ(fabric.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(MessageOf(fabric.status()),
              "deep.toml:2: nested deeper than 16 levels; a topology has two");
  }
}

TEST(Fabric, DotsInTextsAndCommentsAreNoNesting) {
  const std::string dots(100, '.');
  for (const std::string& line : {"name = \"" + dots + "\"", "name = '" + dots + "'", "# " + dots,
                                  "name = \"\"\"\n" + dots + "\\\"\"\"\""}) {
    const auto fabric = ParseFabric(
        line + "\n[host]\ncount = 2\nbandwidth = \"25Gbit/s\"\nlatency = \"5us\"\n", "t.toml");
    EXPECT_TRUE(fabric.ok()) << fabric.status();
  }
}

}  // namespace
}  // namespace tutti::topology
