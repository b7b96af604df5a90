// Look-up tables that several workers train.
#include "tutti/train/strategies/gather_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tutti/client/session.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using State = std::map<std::string, Tensor>;

constexpr int64_t kTables = 4;

// Three features with few values, so that rows repeat in a batch and between workers; the last
// column has two values a sample.
Dataset Samples() {
  constexpr int64_t kCount = 60;
  Columns columns;
  for (int64_t t = 0; t < kTables; ++t) {
    const Shape shape = t == 3 ? Shape{kCount, 2} : Shape{kCount};
    Tensor ids(t % 2 == 0 ? kInt32 : kInt64, shape);
    for (int64_t i = 0; i < ids.elements(); ++i) {
      const int64_t id = (i * (t + 3) + i / 7) % (5 + t);
      if (t % 2 == 0) {
        ids.data<int32_t>()[i] = int32_t(id);
      } else {
        ids.data<int64_t>()[i] = id;
      }
    }
    columns.emplace("id" + std::to_string(t), ids);
  }
  Tensor y(kFloat64, {kCount, 1});
  for (int64_t i = 0; i < kCount; ++i) y.data<double>()[i] = std::sin(double(i));
  columns.emplace("y", y);
  return Dataset::FromTensors(std::move(columns));
}

// Tables 0, 1 and 3 have rows of 4 numbers, table 2 of 6.
template <typename O>
ModelSpec Model(const Features& batch, Mode, O optimizer) {
  std::vector<Output> parts;
  for (int64_t t = 0; t < kTables; ++t) {
    const std::string name = "id" + std::to_string(t);
    Output row = nn::Embedding(batch[name], 5 + t, t == 2 ? 6 : 4, {.dtype = kFloat64}, name);
    parts.push_back(t == 3 ? nn::Flatten(row) : row);
  }
  const Output h = Concat(parts, 1);
  const Output w = nn::GetVariable(h.graph(), RandomNormal({22, 1}, 0, 0.4, kFloat64), "w");
  ModelSpec spec;
  spec.loss = nn::MeanSquaredError(MatMul(Tanh(h), w), batch["y"]);
  spec.optimizer = std::make_shared<O>(optimizer);
  return spec;
}

State Train(const RunConfig& config, const ModelFunction& model) {
  Estimator estimator(model, config);
  estimator.Train({.input = [] { return Samples().Shuffle(3).Repeat(); }});
  return estimator.Variables();
}

void ExpectFollowsOneProcess(const ModelFunction& model) {
  const State alone = Train(ConfigOf(nullptr, 12), model);
  for (const int ranks : {2, 3}) {
    std::vector<State> trained(static_cast<size_t>(ranks));
    const auto errors = OnRanks(ranks, [&](int rank, auto communicator) {
      trained[size_t(rank)] = Train(ConfigOf(communicator, 12 / ranks), model);
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    for (const auto& [name, expected] : alone) {
      if (expected.dtype() != kFloat64) continue;
      const Tensor& found = trained[0].at(name);
      for (int64_t i = 0; i < expected.elements(); ++i) {
        EXPECT_NEAR(found.data<double>()[i], expected.data<double>()[i], 1e-9) << name;
      }
      for (size_t r = 1; r < trained.size(); ++r) {
        EXPECT_TRUE(trained[r].at(name).BitwiseEquals(found)) << name << " of rank " << r;
      }
    }
  }
}

class GatherRowsTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
};

TEST_F(GatherRowsTest, TablesFollowOneProcessWithTheJoinedBatch) {
  ExpectFollowsOneProcess([](const Features& batch, Mode mode) {
    return Model(batch, mode, Sgd({.learning_rate = 0.1}));
  });
  ExpectFollowsOneProcess([](const Features& batch, Mode mode) {
    return Model(batch, mode, Adagrad({.learning_rate = 0.1}));
  });
}

// One AllGather for all tables, whatever their rows are.
TEST_F(GatherRowsTest, TablesTravelTogether) {
  Graph graph;
  std::vector<GradientAndVariable> list;
  for (int64_t t = 0; t < 26; ++t) {
    const int64_t width = t < 20 ? 8 : 16;
    const std::string name = std::to_string(t);
    const Output table = Variable(graph, Zeros({10 + t, width}), "table" + name);
    const Output ids = Placeholder(graph, kInt64, {-1}, "ids" + name);
    const Output rows = Placeholder(graph, kFloat32, {-1, width}, "rows" + name);
    list.push_back({{.indices = ids, .rows = rows}, table});
  }
  GatherRows("as-is", list);
  int gathers = 0;
  for (const auto& node : graph.nodes()) gathers += node->op() == "AllGather" ? 1 : 0;
  EXPECT_EQ(gathers, 1);
  for (const GradientAndVariable& entry : list) {
    EXPECT_EQ(entry.gradient.rows.shape(), entry.variable.shape().WithDim(0, kUnknownDim));
  }
}

// A step with 26 tables takes two operations for them: the sizes of the messages, and the messages.
TEST_F(GatherRowsTest, AStepTakesTwoOperations) {
  const auto errors = OnRanks(2, [](int, auto communicator) {
    Graph graph;
    std::vector<GradientAndVariable> list;
    std::vector<Feed> feeds;
    std::vector<Output> fetches;
    for (int64_t t = 0; t < 26; ++t) {
      const std::string name = std::to_string(t);
      const Output table = Variable(graph, Zeros({10, 1}), "table" + name);
      const Output ids = Placeholder(graph, kInt64, {-1}, "ids" + name);
      const Output rows = Placeholder(graph, kFloat32, {-1, 1}, "rows" + name);
      feeds.push_back({ids, Tensor::Vector<int64_t>({t % 10})});
      feeds.push_back({rows, Tensor::Of<float>({1, 1}, {float(t)})});
      list.push_back({{.indices = ids, .rows = rows}, table});
    }
    GatherRows("as-is", list);
    for (const GradientAndVariable& entry : list) fetches.push_back(entry.gradient.rows);
    Session session(graph, {.cores_per_device = 1, .communicator = communicator});
    const int64_t before = communicator->stats().operations;
    const std::vector<Tensor> results = session.Run(feeds, fetches);
    EXPECT_EQ(communicator->stats().operations - before, 2);
    for (size_t t = 0; t < 26; ++t) EXPECT_EQ(results[t].values<float>()[0], 2 * float(t));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// A worker sums what it has several times for one row before it sends it, and what several workers
// have before it applies it.
TEST_F(GatherRowsTest, EachRowIsThereOnce) {
  const auto errors = OnRanks(2, [](int rank, auto communicator) {
    Graph graph;
    const Output table = Variable(graph, Zeros({10, 1}), "table");
    const Output ids = Placeholder(graph, kInt64, {-1}, "ids");
    const Output rows = Placeholder(graph, kFloat32, {-1, 1}, "rows");
    std::vector<GradientAndVariable> list = {{{.indices = ids, .rows = rows}, table}};
    GatherRows("as-is", list);
    Session session(graph, {.cores_per_device = 1, .communicator = communicator});
    const auto results = session.Run({{ids, Tensor::Vector<int64_t>({7, 2, 7})},
                                      {rows, Tensor::Of<float>({3, 1}, {1, 2, float(rank) + 4})}},
                                     {list[0].gradient.indices, list[0].gradient.rows});
    EXPECT_EQ(std::vector<int64_t>(results[0].values<int64_t>().begin(),
                                   results[0].values<int64_t>().end()),
              (std::vector<int64_t>{2, 7}));
    EXPECT_EQ(
        std::vector<float>(results[1].values<float>().begin(), results[1].values<float>().end()),
        (std::vector<float>{4, 11}));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

}  // namespace
}  // namespace tutti
