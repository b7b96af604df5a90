#include "tutti/train/strategies/synchronize_state.h"

#include <gtest/gtest.h>

#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/train/strategies/communicator_peers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

// A vector of `count` numbers: `value`, and last 7.
Initializer Numbers(int64_t count, float value) {
  return {kFloat32, Shape{count}, [=](Graph& graph) {
            Tensor numbers(kFloat32, {count});
            for (float& v : numbers.values<float>()) v = value;
            numbers.values<float>()[size_t(count) - 1] = 7;
            return Constant(graph, numbers);
          }};
}

int CountBroadcasts(const Graph& graph) {
  int count = 0;
  for (const auto& node : graph.nodes()) {
    if (node->op() == "Broadcast") count += node->num_inputs();
  }
  return count;
}

TEST(SynchronizeState, AllHaveTheValuesOfTheFirst) {
  RegisterCpuKernels();
  const auto errors = OnRanks(3, [](int rank, auto communicator) {
    Graph graph;
    Variable(graph, Numbers(100, 1), "alike");
    Variable(graph, Numbers(9, float(rank) + 2), "different");
    // Only the last worker has another number, in the bytes behind the last whole block.
    Variable(graph, Numbers(6, 5), "late");
    Session session(graph, {.cores_per_device = 1, .communicator = communicator});
    session.Initialize();
    const Output late = graph.Find("late")->output();
    if (rank == 2)
      session.Run(AssignAdd(late, Constant(graph, Tensor::Vector<float>({0, 0, 0, 0, 0, 1}))));
    const auto peers = MakeCommunicatorPeers(communicator);
    SynchronizeVariables(graph, session, *peers);
    EXPECT_EQ(CountBroadcasts(graph), 2) << "what is alike need not travel";
    EXPECT_EQ(session.Run(graph.Find("alike")->output()).values<float>()[0], 1);
    EXPECT_EQ(session.Run(graph.Find("different")->output()).values<float>()[0], 2);
    EXPECT_EQ(session.Run(late).values<float>()[5], 7);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace tutti
