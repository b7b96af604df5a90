// A strategy of this test's own that spreads the variables of a model over two devices of one
// session: what a strategy with parameter servers does over tasks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/registry.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using State = std::map<std::string, Tensor>;

const std::array<std::string, 2> kDevices = {"/job:local/task:0/cpu:0", "/job:local/task:0/cpu:1"};

// Where everything went, by name.
std::map<std::string, std::string> placed;
std::array<int64_t, 2> bytes_on = {};

// Gives each variable to the device with fewer bytes, counting slots, which stay with their
// variable. Variables of at least `split_rows` rows are cut in two.
class BalancedPlacer final : public VariablePlacer {
 public:
  explicit BalancedPlacer(int64_t split_rows) : split_rows_(split_rows) {}

  VariablePlacement Place(const VariableRequest& request) override {
    const int64_t bytes = request.shape.elements() * int64_t(SizeOf(request.dtype));
    if (const Output owner = request.options.slot_of) {
      return {.device = Put(request.name, owner.node->device() == kDevices[0] ? 0 : 1, bytes)};
    }
    const Shape& shape = request.shape;
    if (request.options.trainable && shape.rank() > 0 && shape[0] >= split_rows_) {
      const int64_t half = shape[0] / 2, row = bytes / shape[0];
      return {
          .parts = {{half, Put(request.name + "/part_0", 0, half * row)},
                    {shape[0] - half, Put(request.name + "/part_1", 1, (shape[0] - half) * row)}}};
    }
    return {.device = Put(request.name, bytes_on[0] <= bytes_on[1] ? 0 : 1, bytes)};
  }

 private:
  static const std::string& Put(const std::string& name, size_t device, int64_t bytes) {
    bytes_on[device] += bytes;
    return placed[name] = kDevices[device];
  }
  const int64_t split_rows_;
};

class SpreadStrategy final : public Strategy {
 public:
  explicit SpreadStrategy(int64_t split_rows) : split_rows_(split_rows) {}
  std::string_view name() const override { return "spread"; }
  void Configure(SessionOptions& options) const override {
    options.devices = 2;
    options.cores_per_device = 1;
  }
  std::unique_ptr<VariablePlacer> MakePlacer() const override {
    return std::make_unique<BalancedPlacer>(split_rows_);
  }
  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    *joint = {step.loss, step.samples, step.stop};
    return {list.begin(), list.end()};
  }

 private:
  const int64_t split_rows_;
};

Dataset Samples() {
  Tensor x(kFloat32, {40, 12}), y(kInt32, {40});
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = float((i * 7919) % 97) / 97;
  for (int64_t i = 0; i < 40; ++i) y.data<int32_t>()[i] = int32_t(i % 3);
  return Dataset::FromTensors({{"x", x}, {"y", y}});
}

ModelSpec Model(const Features& batch, Mode mode) {
  Output h = nn::Dense(batch["x"], 16, {.activation = nn::kRelu});
  h = nn::BatchNorm(h, {.training = mode == Mode::kTrain, .momentum = 0.9});
  return MultiClassHead(3).Spec(nn::Dense(h, 3), batch["y"],
                                Momentum({.learning_rate = 0.05, .momentum = 0.9}), mode);
}

struct Trained {
  State variables;
  Metrics metrics;
};
Trained Train(const RunConfig& config) {
  Estimator estimator(Model, config);
  estimator.Train({.input = [] { return Samples().Shuffle(2).Repeat(); }});
  const Metrics metrics = estimator.Evaluate({.input = Samples});
  return {estimator.Variables(), metrics};
}

RunConfig Config(const std::string& strategy) {
  return {.max_steps = 30, .batch_size = 8, .seed = 5, .strategy = strategy};
}

// Parts are joined, NAME/part_0/momentum to NAME/momentum as well.
State Joined(const State& parts) {
  State whole;
  for (const auto& [name, value] : parts) {
    const size_t at = name.find("/part_");
    if (at == std::string::npos) {
      whole[name] = value;
    } else if (name[at + 6] == '0') {
      std::string other = name;
      other[at + 6] = '1';
      const Tensor& second = parts.at(other);
      Tensor both(value.dtype(), value.shape().WithDim(0, value.shape()[0] + second.shape()[0]));
      const auto a = value.values<float>(), b = second.values<float>();
      std::copy(b.begin(), b.end(), std::copy(a.begin(), a.end(), both.values<float>().begin()));
      whole[name.substr(0, at) + name.substr(at + 7)] = both;
    }
  }
  return whole;
}

void ExpectSame(const Trained& found, const Trained& expected) {
  const State joined = Joined(found.variables);
  ASSERT_EQ(joined.size(), expected.variables.size());
  for (const auto& [name, value] : expected.variables) {
    ASSERT_TRUE(joined.contains(name)) << name;
    const Tensor& other = joined.at(name);
    ASSERT_EQ(other.shape(), value.shape()) << name;
    if (value.dtype() != kFloat32) {
      EXPECT_TRUE(other.BitwiseEquals(value)) << name;
      continue;
    }
    for (int64_t i = 0; i < value.elements(); ++i) {
      EXPECT_NEAR(other.data<float>()[i], value.data<float>()[i], 1e-5) << name;
    }
  }
  EXPECT_NEAR(found.metrics.at("loss"), expected.metrics.at("loss"), 1e-5);
}

class Placement : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterCpuKernels();
    RegisterStrategy({.name = "spread", .make = [](const Launch&) {
                        return std::make_shared<SpreadStrategy>(1 << 30);
                      }});
    RegisterStrategy({.name = "split",
                      .make = [](const Launch&) { return std::make_shared<SpreadStrategy>(12); }});
  }
  Placement() { placed.clear(), bytes_on = {}; }
};

TEST_F(Placement, VariablesSlotsAndTheGlobalStepAreSpread) {
  const Trained alone = Train(Config("local"));
  const Trained spread = Train(Config("spread"));
  ExpectSame(spread, alone);
  // Slots and the averages of BatchNorm are variables like others.
  EXPECT_EQ(placed.size(), spread.variables.size());
  ASSERT_TRUE(placed.contains("global_step"));
  EXPECT_GT(bytes_on[0], 0);
  EXPECT_GT(bytes_on[1], 0);
  const int64_t largest = 12 * 16 * 4 * 2;  // the kernel of the first layer, and its slot
  EXPECT_LE(std::abs(bytes_on[0] - bytes_on[1]), largest);
}

TEST_F(Placement, AVariableMayBeSplitByRows) {
  const Trained alone = Train(Config("local"));
  const Trained split = Train(Config("split"));
  int parts = 0;
  for (const auto& [name, value] : split.variables) {
    parts += name.find("/part_1") != std::string::npos ? 1 : 0;
  }
  // The kernels of both layers, a bias, BatchNorm's scale and offset; each has a slot.
  EXPECT_EQ(parts, 10);
  ExpectSame(split, alone);
}

// A model function splits its layers by scopes: slots and updates follow the variables, and the
// result is that of one device.
TEST_F(Placement, AModelMayBeSplitByScopes) {
  PlacementReport report;  // of the last training's step
  const auto train = [&](bool scopes) -> Trained {
    const auto model = [scopes](const Features& batch, Mode mode) {
      Graph& graph = batch["x"].graph();
      Output h;
      {
        const DeviceScope first(graph, scopes ? "/cpu:0" : "");
        h = nn::Dense(batch["x"], 16, {.activation = nn::kRelu}, "first");
      }
      const DeviceScope second(graph, scopes ? "/cpu:1" : "");
      return MultiClassHead(3).Spec(nn::Dense(h, 3, {}, "second"), batch["y"],
                                    Adam({.learning_rate = 0.01}), mode);
    };
    RunConfig config = Config("local");
    config.devices = scopes ? 2 : 1;
    Estimator estimator(model, config);
    const auto explain = AfterSteps(config.max_steps, [&](const StepEnd& end, TrainingControl&) {
      report = end.session.Explain();
    });
    estimator.Train({.input = [] { return Samples().Shuffle(2).Repeat(); }, .hooks = {explain}});
    const Metrics metrics = estimator.Evaluate({.input = Samples});
    return {estimator.Variables(), metrics};
  };
  const Trained alone = train(false);
  const Trained split = train(true);
  ExpectSame(split, alone);
  // Weights and bias of two layers, each with two slots; the reason of an update's place is its
  // variable.
  int variables = 0, updates = 0;
  for (const PlacementReport::NodeLine& node : report.nodes) {
    const bool update = node.op == "ApplyAdam";
    if ((node.op != "Variable" || node.name == "global_step") && !update) continue;
    ++(update ? updates : variables);
    const std::string& of = update ? node.why : node.name;
    const bool first = of.find("first/") != std::string::npos;
    EXPECT_NE(first, of.find("second/") != std::string::npos) << of;
    EXPECT_EQ(node.device, kDevices[first ? 0 : 1]) << node.op << ' ' << node.name;
  }
  EXPECT_EQ(variables, 12) << report.ToText(100);
  EXPECT_EQ(updates, 4) << report.ToText(100);
}

TEST_F(Placement, RefusesPartsThatDoNotFit) {
  const auto error_of = [](const VariablePlacement& placement, const VariableOptions& options) {
    Graph graph;
    const VariablePlacementScope scope([&](const VariableRequest&) { return placement; });
    try {
      Variable(graph, Zeros({4, 2}), "w", options);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(error_of({.parts = {{1}, {2}}}, {}),
              HasSubstr("variable \"w\" [4, 2] was placed in 2 parts of 3 rows together"));
  EXPECT_THAT(error_of({.parts = {{0}, {4}}}, {}), HasSubstr("at least one row"));
  EXPECT_THAT(error_of({.parts = {{2}, {2}}}, {.trainable = false}),
              HasSubstr("only a trainable variable"));
  EXPECT_EQ(error_of({.parts = {{2}, {2}}}, {}), "no error");
}

TEST_F(Placement, ASlotStaysWithItsVariable) {
  Graph graph;
  const Output w = Variable(graph, Zeros({4}), "w");
  const VariablePlacementScope scope(
      [&](const VariableRequest&) { return VariablePlacement{.device = kDevices[1]}; });
  try {
    Variable(graph, Zeros({4}), "w/momentum", {.trainable = false, .slot_of = w});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("the slot \"w/momentum\" was placed on "));
    EXPECT_THAT(error.what(), HasSubstr("expected the device of its variable"));
  }
}

}  // namespace
}  // namespace tutti
