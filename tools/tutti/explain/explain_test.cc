#include "tools/tutti/explain/explain.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tools/tutti/explain/story.h"
#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"

namespace tutti::tools {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string Shown(const ExplainOptions& options, const Screen& screen = {}) {
  const absl::StatusOr<std::string> text = Explain(options, screen);
  return text.ok() ? *text : "error: " + std::string(MessageOf(text.status()));
}

std::string Costed(const CostOptions& options) {
  const absl::StatusOr<std::string> text = ExplainCost(options);
  return text.ok() ? *text : "error: " + std::string(MessageOf(text.status()));
}

std::string TemporaryFile() {
  return (std::filesystem::temp_directory_path() / fmt::format("explain_{}.svg", ::getpid()))
      .string();
}

TEST(Explain, FollowsRealNumbersAroundTheRing) {
  EXPECT_EQ(Shown({.algorithm = "ring", .values = "2,4,6/1,2,3/4,8,12"}),
            R"(ring: chunks go around the circle of ranks: the fewest bytes per link
all-reduce among 3 ranks, 3 chunks
cells: the numbers a rank holds; + added, = stored, · nothing

start      chunk 0  chunk 1  chunk 2
  rank 0   2        4        6
  rank 1   1        2        3
  rank 2   4        8        12

round 1    chunk 0  chunk 1  chunk 2
  rank 0   2       +12       6        chunk 2 → rank 1
  rank 1   1        2       +9        chunk 0 → rank 2
  rank 2  +5        8        12       chunk 1 → rank 0

round 2    chunk 0  chunk 1  chunk 2
  rank 0  +7        12       6        chunk 1 → rank 1
  rank 1   1       +14       9        chunk 2 → rank 2
  rank 2   5        8       +21       chunk 0 → rank 0

round 3    chunk 0  chunk 1  chunk 2
  rank 0   7        12      =21       chunk 0 → rank 1
  rank 1  =7        14       9        chunk 1 → rank 2
  rank 2   5       =14       21       chunk 2 → rank 0

round 4    chunk 0  chunk 1  chunk 2
  rank 0   7       =14       21       chunk 2 → rank 1
  rank 1   7        14      =21       chunk 0 → rank 2
  rank 2  =7        14       21       chunk 1 → rank 0

4 rounds; the busiest rank sends 1.333 K in 4 messages and receives 1.333 K (K: the whole data)
)");
}

TEST(Explain, ShowsWhoseDataIsWhere) {
  const std::string text = Shown({.algorithm = "ring", .ranks = 5});
  EXPECT_THAT(text, HasSubstr("\nstart      chunk 0  chunk 1  chunk 2  chunk 3  chunk 4\n"
                              "  rank 0   0····    0····    0····    0····    0····\n"));
  EXPECT_THAT(text, HasSubstr("\nround 4    chunk 0  chunk 1  chunk 2  chunk 3  chunk 4\n"
                              "  rank 0  +01234    0·234    0··34    0···4    0····    "
                              "chunk 1 → rank 1\n"));
  EXPECT_THAT(text, HasSubstr("8 rounds; the busiest rank sends 1.6 K in 8 messages"));
}

TEST(Explain, GoesToTheLeft) {
  EXPECT_THAT(Shown({.algorithm = "ring", .ranks = 3, .direction = "left"}),
              HasSubstr("\nround 1    chunk 0  chunk 1  chunk 2\n"
                        "  rank 0   0··      0··     +01·      chunk 1 → rank 2\n"));
}

TEST(Explain, ShowsHostsMemoryAndServers) {
  EXPECT_THAT(
      Shown({.algorithm = "direct", .ranks = 2}),
      HasSubstr(
          "  rank 0  +01      =01       chunk 0 ← rank 1; chunk 0 → rank 1\n"
          "  rank 1  =01      +01       chunk 1 ← rank 0; chunk 1 → rank 0\n\n"
          "1 round of data, 2 of signals; the busiest rank loads and stores 1 K in peers' memory"));
  EXPECT_THAT(Shown({.algorithm = "hierarchical", .hosts = {0, 0, 1, 1}}),
              HasSubstr("  rank 2 host 1  ··2·     ··2·     ··2·     ··2·\n"));
  EXPECT_THAT(Shown({.algorithm = "central", .ranks = 3, .own_hosts = true}),
              HasSubstr("round 1    chunk 0\n"
                        "  rank 0   0··      chunk 0 → rank 2\n"
                        "  rank 1   ·1·      chunk 0 → rank 2\n"
                        "  rank 2  +01·\n"));
}

TEST(Explain, TellsOfScratchAndOfTheRanksOwnWork) {
  EXPECT_THAT(Shown({.algorithm = "exchange", .ranks = 2}, {.width = 200}),
              HasSubstr("chunk 0 → rank 1 as scratch 0; chunk 0 + scratch 0\n"));
}

TEST(Explain, FitsIntoTheWidth) {
  const ExplainOptions options{.algorithm = "ring", .ranks = 12};
  const std::string text = Shown(options, {.width = 60});
  std::istringstream lines(text.substr(text.find("start")));
  for (std::string line; std::getline(lines, line) && line.find("rounds;") == line.npos;) {
    size_t columns = 0;
    for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
    EXPECT_LE(columns, 60u) << line;
  }
  EXPECT_THAT(text, HasSubstr("\n  rank 0: chunk 11 → rank 1\n"));
  EXPECT_THAT(text, HasSubstr("+2/12"));
  EXPECT_THAT(Shown(options, {.width = 200}), HasSubstr("chunk 11 → rank 1\n"));
}

TEST(Explain, ColoursOnlyWhenAsked) {
  const ExplainOptions options{.algorithm = "ring", .ranks = 3};
  EXPECT_THAT(Shown(options), Not(HasSubstr("\033")));
  EXPECT_THAT(Shown(options, {.color = true}), HasSubstr("\033[1;33m+01·     \033[0m"));
}

TEST(Explain, PrintsTheScheduleAndWhatWasProved) {
  const std::string text = Shown({.algorithm = "ring", .ranks = 2, .verify = true, .text = true});
  EXPECT_TRUE(text.starts_with("schedule ring all-reduce ranks=2 chunks=2 segments=1 root=0\n"))
      << text;
  EXPECT_THAT(text,
              HasSubstr("verified, for every order in which the steps may overlap: every rank "
                        "ends with what it should\nhold; every contribution is in it exactly "
                        "once; every step runs; no two steps race for a piece\n"));
}

TEST(Explain, DrawsAPicture) {
  const std::string path = TemporaryFile();
  EXPECT_EQ(Shown({.algorithm = "ring", .values = "2,4,6/1,2,3/4,8,12", .svg = path}),
            "wrote " + path + "\n");
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  std::filesystem::remove(path);
  const std::string svg = file.str();
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=")) << svg;
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  EXPECT_THAT(svg, HasSubstr("prefers-color-scheme: dark"));
  for (const char* text : {">start<", ">round 4<", ">21<", ">rank 2<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  size_t arrows = 0;
  for (size_t at = svg.find("\"arrow\""); at != svg.npos; at = svg.find("\"arrow\"", at + 1)) {
    ++arrows;
  }
  EXPECT_EQ(arrows, 12u);  // three in each of four rounds
  EXPECT_EQ(Shown({.algorithm = "ring", .svg = "/nonexistent/x.svg"}),
            "error: --svg: cannot write /nonexistent/x.svg: No such file or directory");
}

TEST(Explain, RefusesOptionsThatMakeNoSense) {
  EXPECT_EQ(Shown({.algorithm = "ring", .root = 9}), "error: --root is 9; expected 0 to 3");
  EXPECT_EQ(Shown({.algorithm = "tree", .direction = "left"}),
            "error: --direction left: only a ring has a direction; this is tree");
  const auto cost = [](int segments, std::vector<int> servers) {
    CostOptions options{.bytes = "1G", .ranks = 4, .link = "1GB/s"};
    options.segments = segments;
    options.servers = std::move(servers);
    return std::string(MessageOf(ExplainCost(options).status()));
  };
  EXPECT_EQ(cost(-4, {}), "--segments is -4; expected 1 or more, or 0 for what is best");
  for (const int servers : {0, -1, 5}) {
    EXPECT_THAT(cost(0, {1, servers}), HasSubstr("expected 1 to 4, the number of ranks"));
  }
}

// docs/algorithms.md shows them.
TEST(Explain, ThePicturesInTheDocumentsAreThoseOfTheAlgorithms) {
  const auto contents = [](const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  };
  const ExplainOptions pictures[] = {
      {.algorithm = "exchange", .ranks = 3},
      {.algorithm = "direct", .ranks = 3},
      {.algorithm = "ring", .ranks = 4},
      {.algorithm = "halving-doubling", .ranks = 5},
      {.algorithm = "tree", .ranks = 6},
      {.algorithm = "hierarchical", .hosts = {0, 0, 1, 1}},
      {.algorithm = "central", .ranks = 4, .own_hosts = true},
  };
  const std::string path = TemporaryFile();
  for (ExplainOptions options : pictures) {
    options.svg = path;
    EXPECT_EQ(Shown(options), "wrote " + path + "\n");
    EXPECT_TRUE(contents(path) ==
                contents(fmt::format("{}/{}.svg", TUTTI_PICTURES, options.algorithm)))
        << "docs/algorithms/" << options.algorithm << ".svg is not what tutti explain "
        << options.algorithm << " --svg draws for these options; draw it again";
  }
  std::filesystem::remove(path);
}

TEST(Explain, EveryAlgorithmEndsWithTheSumOnEveryRank) {
  for (const collective::Algorithm& algorithm : collective::Algorithms()) {
    if (!algorithm.supports(collective::Operation::kAllReduce)) continue;
    for (const int ranks : {1, 2, 3, 4, 5, 7, 8}) {
      std::vector<std::vector<double>> values;
      std::vector<double> sum(11, 0);
      for (int rank = 0; rank < ranks; ++rank) {
        values.emplace_back();
        for (size_t i = 0; i < sum.size(); ++i) {
          values.back().push_back(rank * 100 + static_cast<double>(i * i));
          sum[i] += values.back().back();
        }
      }
      absl::StatusOr<collective::Schedule> schedule = algorithm.make({.ranks = ranks});
      ASSERT_TRUE(schedule.ok()) << schedule.status();
      const absl::StatusOr<Story> story = TellStory(*std::move(schedule), values);
      ASSERT_TRUE(story.ok()) << story.status();
      for (const std::vector<Holding>& memory : story->rounds.back().memory) {
        std::vector<double> held;
        for (int piece = 0; piece < story->schedule.data_pieces(); ++piece) {
          const Holding& holding = memory[static_cast<size_t>(piece)];
          EXPECT_TRUE(IsComplete(story->schedule, holding)) << algorithm.name << " " << ranks;
          held.insert(held.end(), holding.values.begin(), holding.values.end());
        }
        EXPECT_EQ(held, sum) << algorithm.name << " " << ranks;
      }
    }
  }
}

TEST(Explain, EveryOperationCanBeShown) {
  for (const collective::Algorithm& algorithm : collective::Algorithms()) {
    for (int number = 1; number <= 9; ++number) {
      const auto operation = static_cast<collective::Operation>(number);
      if (!algorithm.supports(operation)) continue;
      EXPECT_THAT(Shown({.algorithm = std::string(algorithm.name),
                         .operation = std::string(NameOf(operation)),
                         .ranks = 5,
                         .root = 2}),
                  Not(HasSubstr("error")));
    }
  }
}

TEST(Explain, MistakesAreNamed) {
  EXPECT_THAT(Shown({.algorithm = "fly"}), HasSubstr("error: there is no algorithm \"fly\""));
  EXPECT_THAT(Shown({.algorithm = "ring", .operation = "fly"}),
              HasSubstr("error: there is no operation \"fly\""));
  EXPECT_EQ(Shown({.algorithm = "ring", .direction = "up"}),
            "error: --direction is \"up\"; expected left or right");
  EXPECT_EQ(Shown({.algorithm = "ring", .ranks = 3, .hosts = {0, 1}}),
            "error: --hosts names 2 hosts, but there are 3 ranks; expected one for each");
  EXPECT_EQ(Shown({.algorithm = "ring", .ranks = 5, .values = "1,2/3,4"}),
            "error: --values \"1,2/3,4\" has numbers for 2 ranks, but there are 5 ranks; expected "
            "one list for each, with / between them");
  EXPECT_EQ(Shown({.algorithm = "ring", .values = "1,2/3"}),
            "error: --values \"1,2/3\": rank 1 has 1 numbers, rank 0 has 2; expected the same of "
            "every rank");
  EXPECT_EQ(Shown({.algorithm = "ring", .values = "1,x"}),
            "error: --values \"1,x\": \"x\" does not begin with a number; expected numbers with "
            "commas between them, and a slash between ranks: 2,4,6/1,2,3");
  EXPECT_EQ(Shown({.algorithm = "ring", .values = "1;2"}),
            "error: --values \"1;2\": ';' stands behind a number; expected , or /");
  EXPECT_EQ(Shown({.algorithm = "ring", .ranks = 200}),
            "error: 398 rounds of 200 ranks with 200 pieces each are too much to show; ask for "
            "fewer ranks or segments, or for the schedule itself with --text");
  // Decided before the schedule is made, which takes minutes for so many.
  EXPECT_EQ(Shown({.algorithm = "ring", .ranks = 4096}),
            "error: 4096 ranks are too much to show; ask for at most 512, or for the schedule "
            "itself with --text");
}

TEST(ExplainCost, ComparesTheRingWithCentral) {
  const std::string text = Costed({.bytes = "1.2G", .ranks = 10, .link = "1GB/s"});
  EXPECT_TRUE(text.starts_with(R"(all-reduce of 1.2 GB among 10 ranks
each rank has a link of 1 GB/s (8 Gbit/s) each way, latency 0 s; sums take no time

algorithm            rounds     sends  receives    reduce     share    in all
)")) << text;
  EXPECT_THAT(text, HasSubstr(R"(
ring                     18   2.16 GB   2.16 GB    1.08 s    1.08 s    2.16 s
)"));
  EXPECT_THAT(text, HasSubstr(R"(
central, 10 servers       2   2.16 GB   2.16 GB    1.08 s    1.08 s    2.16 s
)"));
  EXPECT_THAT(text, HasSubstr(R"(
central, 1 server         2   10.8 GB   10.8 GB    10.8 s    10.8 s    21.6 s
direct               needs memory that all ranks share; these are on several hosts

sends, receives: the busiest rank. reduce: until the last sum is made (to a server: the push);
share: from there until every rank has it all (from a server: the pull).
ring: 2(N-1)/N K = 2.16 GB per rank, whatever N
one server beside a worker: (N-1) K = 10.8 GB in and 10.8 GB out; (N-1) K/B = 10.8 s to push and 10.8 s to pull
)"));
}

TEST(ExplainCost, TheModelOf175GParametersOnThreeReplicas) {
  const std::string text = Costed({.topology = TUTTI_TOPOLOGIES "/model-175g.toml"});
  EXPECT_THAT(text, HasSubstr("175 G parameters of 4 bytes: 700 GB in each of 3 replicas\n"));
  EXPECT_THAT(text, HasSubstr("\n1 TB takes 40 s at 200 Gbit/s\n"));
  EXPECT_THAT(text, HasSubstr("\nall-reduce of 700 GB among 3 ranks\nsums take no time\n"));
  EXPECT_THAT(text, HasSubstr("one server beside a worker: (N-1) K = 1.4 TB in and 1.4 TB out; "
                              "(N-1) K/B = 56 s to push and 56 s to pull\n"));
}

TEST(ExplainCost, CostsEveryAlgorithmOnAFabric) {
  for (const char* name : {"datacenter-25g", "datacenter-100g", "datacenter-200g"}) {
    const std::string text =
        Costed({.bytes = "1.2G",
                .ranks = 32,
                .topology = fmt::format("{}/{}.toml", TUTTI_TOPOLOGIES, name)});
    for (const collective::Algorithm& algorithm : collective::Algorithms()) {
      if (!algorithm.supports(collective::Operation::kAllReduce)) continue;
      EXPECT_THAT(text, HasSubstr(fmt::format("\n{}", algorithm.name))) << name;
    }
    EXPECT_THAT(text, HasSubstr("between devices       400 GB/s (3.2 Tbit/s), 2 us\n"));
  }
}

TEST(ExplainCost, MistakesAreNamed) {
  EXPECT_EQ(Costed({}),
            "error: --bytes, --ranks and --link are needed, such as --bytes 1.2G --ranks 10 --link "
            "1GB/s; or --topology FILE");
  EXPECT_EQ(Costed({.bytes = "lots", .ranks = 2, .link = "1GB/s"}),
            "error: --bytes: \"lots\" is not a number of bytes such as 4, 64K, 1.2GB or 16MiB");
  EXPECT_THAT(Costed({.bytes = "1", .ranks = 2, .link = "1G"}), HasSubstr("error: --link: \"1G\""));
  EXPECT_THAT(Costed({.bytes = "1", .ranks = 2, .link = "1GB/s", .latency = "5"}),
              HasSubstr("error: --latency: \"5\""));
  EXPECT_EQ(Costed({.bytes = "1", .ranks = 2000, .link = "1GB/s"}),
            "error: --ranks is 2000; expected 1 to 1024");
  EXPECT_EQ(Costed({.link = "1GB/s", .topology = "x.toml"}),
            "error: --link and --topology were both given; expected one of them");
  EXPECT_THAT(Costed({.topology = TUTTI_TOPOLOGIES "/datacenter-25g.toml"}),
              HasSubstr("has no [model]; say --bytes and --ranks"));
  EXPECT_THAT(Costed({.bytes = "1", .ranks = 2, .link = "1GB/s", .servers = {3}}),
              HasSubstr("error: --servers is 3; expected 1 to 2"));
}

}  // namespace
}  // namespace tutti::tools
