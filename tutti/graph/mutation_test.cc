// Damaged input to the readers of graphs: bytes flipped, cut out, doubled, made of other inputs.
// The outcome is a graph or a Status, never a crash; what is accepted must survive being written
// and read again. TUTTI_SWEEP=long runs a hundred times as many.
#include <gtest/gtest.h>

#include "tutti/graph/equality.h"
#include "tutti/graph/mutate.h"
#include "tutti/graph/random_graph.h"
#include "tutti/graph/serialize.h"
#include "tutti/graph/text/format.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

int Rounds() { return testing::SweepCount(5'000, 500'000); }

TEST(Mutation, SerializedGraphs) {
  int accepted = 0;
  for (int round = 0; round < Rounds(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(round));
    RandomGraph random(uint64_t(round) / 8);  // several mutations of each graph
    Graph graph;
    random.Fill(graph);
    RandomGraph mutations(uint64_t(round) + 1'000'000);
    const std::string bytes = Mutate(*SerializeGraph(graph), mutations);
    Graph read;
    if (!ParseSerializedGraph(bytes, &read).ok()) continue;
    ++accepted;
    Graph again;
    const absl::Status status = ParseSerializedGraph(*SerializeGraph(read), &again);
    ASSERT_TRUE(status.ok()) << MessageOf(status);
    ASSERT_TRUE(GraphsEqual(read, again));
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, Rounds());
}

TEST(Mutation, TextGraphs) {
  int accepted = 0;
  for (int round = 0; round < Rounds(); ++round) {
    SCOPED_TRACE("seed " + std::to_string(round));
    RandomGraph random(uint64_t(round) / 8);
    Graph graph;
    random.Fill(graph);
    RandomGraph mutations(uint64_t(round) + 2'000'000);
    const std::string text = Mutate(ToText(graph), mutations);
    Graph read;
    const absl::Status parsed = ParseText(text, &read);
    if (!parsed.ok()) {
      ASSERT_TRUE(MessageOf(parsed).starts_with("line ")) << MessageOf(parsed);
      continue;
    }
    ++accepted;
    Graph again;
    const absl::Status status = ParseText(ToText(read), &again);
    ASSERT_TRUE(status.ok()) << MessageOf(status) << "\n" << ToText(read);
    ASSERT_TRUE(GraphsEqual(read, again));
  }
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, Rounds());
}

}  // namespace
}  // namespace tutti
