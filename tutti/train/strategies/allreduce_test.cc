// What workers compute together must be what one computes alone on the joined batch.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <functional>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/collective.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
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

using ::testing::HasSubstr;

class AllReduceTraining : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }
};

TEST_F(AllReduceTraining, SumsNodesOfAllRanks) {
  for (const bool optimize : {true, false}) {
    const auto errors = OnRanks(3, [&](int rank, auto communicator) {
      Graph graph;
      const Output x = Placeholder(graph, kFloat32, {4}, "x");
      const std::vector<Output> values = {Mul(x, 2.0f), Add(x, 1.0f)};
      const std::vector<Output> sums = AllReduce(values, {.key = "b"});
      const Output used = Neg(sums[0]);
      Session session(graph,
                      {.cores_per_device = 1, .communicator = communicator, .optimize = optimize});
      for (int step = 0; step < 3; ++step) {
        const float v = float(rank + step);
        const auto results =
            session.Run({{x, Tensor::Vector<float>({v, v, v, v})}}, {sums[0], sums[1], used});
        const float sum = 3.0f + 3.0f * float(step);
        EXPECT_EQ(results[0].values<float>()[3], 2 * sum) << optimize;
        EXPECT_EQ(results[1].values<float>()[0], sum + 3);
        EXPECT_EQ(results[2].values<float>()[1], -2 * sum);
      }
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
  }
}

// Every rank has numbers of its own, and each is the root once.
TEST_F(AllReduceTraining, BroadcastsTheNodesOfTheRoot) {
  const auto errors = OnRanks(3, [](int rank, auto communicator) {
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {4}, "x");
    const std::vector<Output> values = {Mul(x, 2.0f), Add(x, 1.0f)};
    std::vector<Output> fetches;
    for (int root = 0; root < 3; ++root) {
      const auto sent = Broadcast(values, root, {.key = std::to_string(root)});
      fetches.insert(fetches.end(), sent.begin(), sent.end());
    }
    Session session(graph, {.cores_per_device = 1, .communicator = communicator});
    for (int step = 0; step < 3; ++step) {
      const auto value = [&](int of) { return float(100 * step + 10 * of); };
      const float v = value(rank);
      const std::vector<Feed> feeds = {{x, Tensor::Vector<float>({v, v + 1, v, v})}};
      const auto results = session.Run(feeds, fetches);
      for (int root = 0; root < 3; ++root) {
        const float expected = value(root);
        EXPECT_THAT(
            results[size_t(2 * root)].values<float>(),
            ::testing::ElementsAre(2 * expected, 2 * expected + 2, 2 * expected, 2 * expected));
        EXPECT_THAT(results[size_t(2 * root + 1)].values<float>(),
                    ::testing::ElementsAre(expected + 1, expected + 2, expected + 1, expected + 1));
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

TEST_F(AllReduceTraining, GathersRowsOfDifferentCounts) {
  const auto errors = OnRanks(3, [](int rank, auto communicator) {
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {-1, 2}, "x");
    const Output all = AllGather(x);
    Session session(graph, {.cores_per_device = 1, .communicator = communicator});
    Tensor rows(kFloat32, {rank, 2});  // 0, 1 and 2 rows
    for (float& v : rows.values<float>()) v = float(rank);
    const Tensor result = session.Run({{x, rows}}, all);
    ASSERT_EQ(result.shape(), Shape({3, 2}));
    EXPECT_THAT(result.values<float>(), ::testing::ElementsAre(1, 1, 2, 2, 2, 2));
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The numbers of rows are gathered first: a step that ends meanwhile waits for them no longer.
TEST_F(AllReduceTraining, AStepThatEndsDoesNotWaitForTheRowsOfOthers) {
  auto communicators = ValueOrThrow(collective::Communicator::CreateInProcess(2));
  const std::shared_ptr<collective::Communicator> first = std::move(communicators[0]);
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1, 2}, "x");
  const Output all = AllGather(x);
  Session session(graph, {.cores_per_device = 1, .communicator = first});
  try {
    session.Run({{x, Tensor::Zeros(kFloat32, {3, 2})}}, {all},
                RunOptions{.timeout = std::chrono::milliseconds(50)});
    FAIL() << "the other rank has no rows yet";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kDeadlineExceeded) << error.what();
    EXPECT_THAT(error.what(), HasSubstr("has ended the communicator on every rank, so make a new "
                                        "one to go on"));
  }
  // Its end is the end of the other rank's operations too.
  int64_t rows[2] = {0, 1};
  const absl::Status status = communicators[1]->world().AllGather(rows, 1, kInt64).Wait();
  EXPECT_THAT(MessageOf(status), HasSubstr("rank 0 ended a step in the middle of an operation, "
                                           "which ends the communicator of every rank: the step "
                                           "did not finish within its timeout of 50 ms"));
}

TEST_F(AllReduceTraining, NeedsACommunicator) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {4}, "x");
  const Output sum = AllReduce(x);
  Session session(graph);
  try {
    session.Run({{x, Tensor::Zeros(kFloat32, {4})}}, sum);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("this session has no communicator"));
  }
}

// Samples of a small regression that float64 can follow closely.
Dataset Samples(DType dtype) {
  constexpr int64_t kCount = 60;
  Tensor x(kFloat64, {kCount, 6}), y(kFloat64, {kCount, 1});
  for (int64_t i = 0; i < kCount; ++i) {
    double sum = 0;
    for (int64_t k = 0; k < 6; ++k) {
      const double v = std::sin(double(i * 6 + k) * 1.7);
      x.data<double>()[i * 6 + k] = v;
      sum += v * double(k + 1) * 0.3;
    }
    y.data<double>()[i] = std::tanh(sum);
  }
  if (dtype == kFloat64) return Dataset::FromTensors({{"x", x}, {"y", y}});
  Tensor x32(kFloat32, x.shape()), y32(kFloat32, y.shape());
  for (int64_t i = 0; i < x.elements(); ++i) x32.data<float>()[i] = float(x.data<double>()[i]);
  for (int64_t i = 0; i < y.elements(); ++i) y32.data<float>()[i] = float(y.data<double>()[i]);
  return Dataset::FromTensors({{"x", x32}, {"y", y32}});
}

ModelSpec Regression(const Features& batch, Mode mode, DType dtype) {
  Graph& graph = batch["x"].graph();
  const auto dense = [&](Output h, int64_t in, int64_t out, const std::string& name) {
    const Output w = nn::GetVariable(graph, RandomNormal({in, out}, 0, 0.4, dtype), name + "/w");
    const Output b = nn::GetVariable(graph, Zeros({out}, dtype), name + "/b");
    return Add(MatMul(h, w), b);
  };
  const Output h = Tanh(dense(batch["x"], 6, 16, "a"));
  ModelSpec spec;
  spec.loss = nn::MeanSquaredError(dense(h, 16, 1, "b"), batch["y"]);
  spec.clip_norm = 1;
  if (mode == Mode::kTrain) {
    spec.optimizer =
        std::make_shared<Momentum>(MomentumConfig{.learning_rate = 0.05, .momentum = 0.9});
  }
  return spec;
}

std::map<std::string, Tensor> Train(const RunConfig& config, DType dtype) {
  Estimator estimator(
      [dtype](const Features& batch, Mode mode) { return Regression(batch, mode, dtype); }, config);
  estimator.Train({.input = [dtype] { return Samples(dtype).Shuffle(3).Repeat(); }});
  return estimator.Variables();
}

TEST_F(AllReduceTraining, FollowsOneProcessWithTheJoinedBatch) {
  const auto alone = Train(ConfigOf(nullptr, 12), kFloat64);
  for (const int ranks : {2, 3}) {
    std::vector<std::map<std::string, Tensor>> trained(static_cast<size_t>(ranks));
    const auto errors = OnRanks(ranks, [&](int rank, auto communicator) {
      trained[size_t(rank)] = Train(ConfigOf(communicator, 12 / ranks), kFloat64);
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    for (const auto& [name, expected] : alone) {
      if (expected.dtype() != kFloat64) continue;
      const Tensor& found = trained[0].at(name);
      for (int64_t i = 0; i < expected.elements(); ++i) {
        const double e = expected.data<double>()[i];
        EXPECT_NEAR(found.data<double>()[i], e, 1e-9 * std::max(1.0, std::abs(e))) << name;
      }
      for (int r = 1; r < ranks; ++r) {
        EXPECT_TRUE(trained[size_t(r)].at(name).BitwiseEquals(found)) << name << " of rank " << r;
      }
    }
  }
}

TEST_F(AllReduceTraining, TwoRunsAreTheSame) {
  std::vector<std::map<std::string, Tensor>> runs(2);
  for (auto& run : runs) {
    const auto errors = OnRanks(2, [&](int rank, auto communicator) {
      auto trained = Train(ConfigOf(communicator, 6), kFloat32);
      if (rank == 0) run = std::move(trained);
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
  }
  for (const auto& [name, value] : runs[0]) {
    EXPECT_TRUE(runs[1].at(name).BitwiseEquals(value)) << name;
  }
}

// With messages, as between hosts, gradients are rounded on their way; all workers still hold the
// same bits, near those of a training whose gradients travel as they are.
TEST_F(AllReduceTraining, GradientsMayTravelInFewerBits) {
  const auto train = [](const std::string& wire) {
    std::vector<std::map<std::string, Tensor>> trained(2);
    const auto errors = OnRanks(2, [&](int rank, auto communicator) {
      RunConfig config = ConfigOf(communicator, 6);
      config.strategy_object = MakeAllReduceStrategy(
          communicator, {.algorithm = "ring",
                         .wire = wire,
                         .buckets = BucketOptions{.first_bytes = 64, .bytes = 256}});
      trained[size_t(rank)] = Train(config, kFloat32);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    for (const auto& [name, value] : trained[0]) {
      EXPECT_TRUE(trained[1].at(name).BitwiseEquals(value)) << name;
    }
    return trained[0];
  };
  const auto exact = train("as-is");
  for (const std::string wire : {"bfloat16", "float16"}) {
    const auto rounded = train(wire);
    double largest = 0;
    for (const auto& [name, value] : exact) {
      if (value.dtype() != kFloat32) continue;
      for (int64_t i = 0; i < value.elements(); ++i) {
        largest = std::max(largest, std::abs(double(value.data<float>()[i]) -
                                             double(rounded.at(name).data<float>()[i])));
      }
    }
    EXPECT_GT(largest, 0) << wire << ": nothing was rounded";
    EXPECT_LT(largest, 0.1) << wire;
  }
}

TEST_F(AllReduceTraining, WorkersThatDoNotFitAreNamed) {
  const auto errors = OnRanks(2, [](int rank, auto communicator) {
    Train(ConfigOf(communicator, rank == 0 ? 6 : 5), kFloat32);
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: batch-size is 5, expected 6"));
  }
}

TEST_F(AllReduceTraining, WorkersWithOtherSchedulesAreNamed) {
  const auto error_of = [](const std::function<void(RunConfig&)>& change) {
    return OnRanks(2, [&](int rank, auto communicator) {
      RunConfig config = ConfigOf(communicator, 6);
      if (rank == 1) change(config);
      Train(config, kFloat32);
    })[0];
  };
  EXPECT_THAT(error_of([](RunConfig& config) { config.warmup_steps = 10; }),
              HasSubstr("worker 1 does not fit worker 0: warmup-steps is 10, expected 0"));
  EXPECT_THAT(error_of([](RunConfig& config) { config.scale_learning_rate = true; }),
              HasSubstr("worker 1 does not fit worker 0: scale-learning-rate is on, expected off"));
}

// Workers whose input or program differs would wait for each other for ever.
TEST_F(AllReduceTraining, WorkersWithOtherDataAreNamed) {
  const auto errors_of = [](const std::function<Dataset(int)>& input) {
    return OnRanks(2, [&](int rank, auto communicator) {
      Estimator estimator(
          [](const Features& batch, Mode mode) { return Regression(batch, mode, kFloat32); },
          ConfigOf(communicator, 6));
      estimator.Train({.input = [&] { return input(rank); }});
    });
  };
  for (const std::string& error : errors_of(
           [](int rank) { return rank == 0 ? Samples(kFloat32).Repeat() : Samples(kFloat32); })) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: "
                                 "epochs of the dataset is 1, expected endless"));
  }
  for (const std::string& error :
       errors_of([](int rank) { return Samples(kFloat32).Shuffle(rank == 0 ? 3 : 4).Repeat(); })) {
    EXPECT_THAT(error, HasSubstr("seed of Shuffle is 4, expected 3"));
  }
}

TEST_F(AllReduceTraining, WorkersThatEvaluateDifferentlyAreNamed) {
  const auto errors = OnRanks(2, [&](int rank, auto communicator) {
    Estimator estimator(
        [](const Features& batch, Mode mode) { return Regression(batch, mode, kFloat32); },
        ConfigOf(communicator, 6));
    estimator.Evaluate({.input = [] { return Samples(kFloat32); }, .batch_size = 20 + rank});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: batch size of the dataset is 21, "
                                 "expected 20"));
  }
}

TEST_F(AllReduceTraining, WorkersInDifferentCallsAreNamed) {
  const auto errors = OnRanks(2, [&](int rank, auto communicator) {
    RunConfig config = ConfigOf(communicator, 6);
    config.max_steps = 2;
    Estimator estimator(
        [](const Features& batch, Mode mode) { return Regression(batch, mode, kFloat32); }, config);
    const auto data = [] { return Samples(kFloat32).Repeat(); };
    estimator.Train({.input = data});
    if (rank == 1) estimator.Train({.input = data, .max_steps = 4});
    estimator.Evaluate({.input = [] { return Samples(kFloat32); }});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error,
                HasSubstr("worker 0 is in Estimator::Evaluate (call 1), but worker 1 is in "
                          "Estimator::Train (call 2); every worker must make the same calls"));
  }
}

// The same variables, another computation.
TEST_F(AllReduceTraining, WorkersWithOtherModelsAreNamed) {
  const auto errors = OnRanks(2, [](int rank, auto communicator) {
    const auto model = [&](const Features& batch, Mode mode) {
      ModelSpec spec = Regression(batch, mode, kFloat32);
      if (rank == 1) spec.loss = Mul(spec.loss, 2.0f);
      return spec;
    };
    Estimator estimator(model, ConfigOf(communicator, 6));
    estimator.Train({.input = [] { return Samples(kFloat32).Repeat(); }});
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("worker 1 does not fit worker 0: digest of the graph is "));
  }
}

TEST_F(AllReduceTraining, AGradientWithoutAShapeIsRefused) {
  auto alone = ValueOrThrow(collective::Communicator::CreateInProcess(1));
  const auto strategy = MakeAllReduceStrategy(std::move(alone[0]), {});
  Graph graph;
  const Initializer rows = {kFloat32, Shape{-1, 2}, [](Graph& g) {
                              return Constant(g, Tensor::Zeros(kFloat32, {3, 2}));
                            }};
  const Output table = Variable(graph, rows, "table");
  const WorkerStep step = {Placeholder(graph, kFloat32, Shape{}, "loss"),
                           Placeholder(graph, kFloat32, Shape{}, "samples"),
                           Placeholder(graph, kFloat32, Shape{}, "stop")};
  JointStep joint;
  const GradientAndVariable list[] = {{{.dense = Neg(table)}, table}};
  try {
    strategy->Aggregate(list, step, &joint);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"table\""));
    EXPECT_THAT(error.what(), HasSubstr("[?, 2]; expected a shape without unknown dimensions"));
  }
}

TEST_F(AllReduceTraining, UnevenAndEmptySlicesCount) {
  // 5 samples over 3 workers, batch 2 a worker: 6 positions a step, the last step has fewer.
  const auto few = [] {
    Tensor x(kFloat32, {5, 1}), y(kFloat32, {5, 1});
    for (int i = 0; i < 5; ++i) x.data<float>()[i] = y.data<float>()[i] = float(i + 1);
    return Dataset::FromTensors({{"x", x}, {"y", y}});
  };
  const auto model = [](const Features& batch, Mode) {
    const Output w = nn::GetVariable(batch["x"].graph(), Zeros({1, 1}), "w");
    ModelSpec spec;
    spec.loss = nn::MeanSquaredError(MatMul(batch["x"], w), batch["y"]);
    spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.01});
    return spec;
  };
  const auto train = [&](const RunConfig& config) {
    Estimator estimator(model, config);
    const TrainResult result = estimator.Train({.input = few});
    EXPECT_EQ(result.steps, 1);
    return estimator.Variables().at("w").scalar<float>();
  };
  const float alone = train(ConfigOf(nullptr, 24));
  for (const int64_t batch : {int64_t{2}, int64_t{8}}) {
    std::vector<float> trained(3);
    const auto errors = OnRanks(3, [&](int rank, auto communicator) {
      trained[size_t(rank)] = train(ConfigOf(communicator, batch));
    });
    for (const std::string& error : errors) ASSERT_EQ(error, "");
    for (const float w : trained) EXPECT_FLOAT_EQ(w, alone);
  }
}

TEST_F(AllReduceTraining, ABadLossNamesStepWorkerAndTensor) {
  const auto errors = OnRanks(2, [](int rank, auto communicator) {
    RunConfig config = ConfigOf(communicator, 2);
    const auto model = [](const Features& batch, Mode) {
      const Output w = nn::GetVariable(batch["x"].graph(), Zeros({1, 1}), "w");
      ModelSpec spec;
      spec.loss = nn::MeanSquaredError(MatMul(Log(batch["x"], "logarithm"), w), batch["y"]);
      spec.optimizer = std::make_shared<Sgd>(SgdConfig{.learning_rate = 0.01});
      return spec;
    };
    Estimator estimator(model, config);
    estimator.Train({.input = [] {
      // Sample 6 of 8 is bad: step 2, worker 1.
      Tensor x(kFloat32, {8, 1}), y(kFloat32, {8, 1});
      for (int i = 0; i < 8; ++i) x.data<float>()[i] = y.data<float>()[i] = i == 6 ? -1.0f : 1.0f;
      return Dataset::FromTensors({{"x", x}, {"y", y}});
    }});
    (void)rank;
  });
  for (const std::string& error : errors) {
    EXPECT_THAT(error, HasSubstr("step 2: the loss of worker 1 is not finite"));
    EXPECT_THAT(error, HasSubstr("logarithm"));
  }
}

// The first worker writes, so it decides. A training that is over soon has its last step traced.
TEST_F(AllReduceTraining, TheFirstWorkerDecidesWhetherToTrace) {
  const std::string path = ::testing::TempDir() + "first_worker_trace.json";
  for (const bool first : {true, false}) {
    std::remove(path.c_str());
    const auto errors = OnRanks(2, [&](int rank, auto communicator) {
      RunConfig config = ConfigOf(communicator, 6);
      config.max_steps = 3;
      if ((rank == 0) == first) config.trace = path;
      Train(config, kFloat32);
    });
    for (const std::string& error : errors) EXPECT_EQ(error, "");
    std::FILE* const file = std::fopen(path.c_str(), "r");
    EXPECT_EQ(file != nullptr, first);
    if (file != nullptr) std::fclose(file);
  }
  std::remove(path.c_str());
}

}  // namespace
}  // namespace tutti
