// Variables that are split over devices are saved in a shard for each device, and restored onto
// another number of devices, onto workers with mirrors, and back: equal values, equal slots.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "tutti/base/error.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/client/session.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/nn.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::SavedCheckpoint;

std::string DeviceNamed(int64_t device) { return fmt::format("/job:local/task:0/cpu:{}", device); }

// Cuts every trainable variable with enough rows into a part for each device; the others go to the
// first, but for slots, which follow their variables.
class SplitPlacer final : public VariablePlacer {
 public:
  explicit SplitPlacer(int64_t devices) : devices_(devices) {}
  VariablePlacement Place(const VariableRequest& request) override {
    if (request.options.slot_of) return {.device = request.options.slot_of.node->device()};
    const Shape& shape = request.shape;
    if (!request.options.trainable || shape.rank() == 0 || shape[0] < devices_) {
      return {.device = DeviceNamed(0)};
    }
    VariablePlacement placement;
    for (int64_t d = 0; d < devices_; ++d) {
      const int64_t begin = shape[0] * d / devices_, end = shape[0] * (d + 1) / devices_;
      placement.parts.push_back({end - begin, DeviceNamed(d)});
    }
    return placement;
  }

 private:
  const int64_t devices_;
};

class SplitStrategy final : public Strategy {
 public:
  explicit SplitStrategy(int devices) : devices_(devices) {}
  std::string_view name() const override { return "split"; }
  void Configure(SessionOptions& options) const override {
    options.devices = devices_;
    options.cores_per_device = 1;
  }
  std::unique_ptr<VariablePlacer> MakePlacer() const override {
    return std::make_unique<SplitPlacer>(devices_);
  }
  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    *joint = {step.loss, step.samples, step.stop};
    return {list.begin(), list.end()};
  }

 private:
  const int devices_;
};

Dataset Samples() {
  Tensor x(kFloat32, {40, 13}), y(kInt32, {40});
  for (int64_t i = 0; i < x.elements(); ++i) x.data<float>()[i] = float((i * 7919) % 97) / 97;
  for (int64_t i = 0; i < 40; ++i) y.data<int32_t>()[i] = int32_t(i % 3);
  return Dataset::FromTensors({{"x", x}, {"y", y}}).Shuffle(2).Repeat();
}

ModelSpec Model(const Features& batch, Mode mode) {
  Output h = nn::Dense(batch["x"], 17, {.activation = nn::kRelu});
  h = nn::BatchNorm(h, {.training = mode == Mode::kTrain});
  return MultiClassHead(3).Spec(nn::Dense(h, 3), batch["y"], Adam({.learning_rate = 1e-2}), mode);
}

class SplitTest : public ::testing::Test {
 protected:
  SplitTest() { RegisterCpuKernels(); }

  // Trains up to `max_steps`; devices 0: mirrors on two workers; 1: strategy local.
  void Train(int devices, int64_t max_steps) {
    const auto train = [&](int rank, std::shared_ptr<collective::Communicator> communicator) {
      RunConfig config = ConfigOf(std::move(communicator), 4);
      config.max_steps = max_steps;
      config.model_dir = rank == 0 ? folder_.path() : "";
      config.keep = 0;
      if (devices > 1) {
        config.strategy = "split";
        config.strategy_object = std::make_shared<SplitStrategy>(devices);
      }
      Estimator(Model, config).Train({.input = Samples});
    };
    if (devices > 0) return train(0, nullptr);
    for (const std::string& error : OnRanks(2, train)) EXPECT_EQ(error, "");
  }

  // All tensors of a checkpoint, whole.
  std::map<std::string, Tensor> Values(int64_t step, size_t shards) const {
    const auto saved = ValueOrThrow(
        SavedCheckpoint::Open(FileSystem::System(), folder_ / checkpoint::CheckpointName(step)));
    EXPECT_EQ(saved.manifest().shards.size(), shards);
    EXPECT_TRUE(saved.Verify().ok());
    std::map<std::string, Tensor> values;
    for (const auto& tensor : saved.manifest().tensors) {
      if (values.contains(tensor.name)) continue;
      std::vector<SavedCheckpoint::Request> request = {
          {tensor.name, 0, Tensor(tensor.dtype, tensor.whole)}};
      ThrowIfError(saved.Read(request));
      values[tensor.name] = request[0].target;
    }
    return values;
  }

  checkpoint::TemporaryDirectory folder_;
};

TEST_F(SplitTest, RestoresOntoOtherDevicesAndStrategiesAndBack) {
  Train(3, 5);
  std::map<std::string, Tensor> before = Values(5, 3);
  EXPECT_EQ(before.size(), 4u + 2u + 2u + 12u + 1u);  // dense, norm, averages, slots, global step
  EXPECT_EQ(before.at("dense/weights").shape(), (Shape{13, 17}));
  EXPECT_EQ(before.at("dense/weights/m").shape(), (Shape{13, 17}));
  int64_t step = 5;
  struct Case {
    int devices;
    size_t shards;
  };
  for (const auto& [devices, shards] : {Case{2, 2}, Case{1, 1}, Case{0, 1}, Case{3, 3}}) {
    SCOPED_TRACE(devices);
    // First nothing is trained, and what was restored is compared; then a step is made, and saved.
    RunConfig config = ConfigOf(nullptr, 4);
    config.model_dir = folder_.path();
    config.max_steps = step;
    if (devices > 1) {
      config.strategy = "split";
      config.strategy_object = std::make_shared<SplitStrategy>(devices);
    }
    {
      Estimator estimator(Model, config);
      EXPECT_EQ(estimator.Train({.input = Samples}).steps, 0);
      std::map<std::string, Tensor> joined;
      for (const auto& [name, value] : estimator.Variables()) {
        const size_t part = name.find("/part_");
        const std::string whole =
            part == name.npos ? name : name.substr(0, part) + name.substr(part + 7);
        if (part == name.npos) {
          EXPECT_TRUE(value.BitwiseEquals(before.at(name))) << name;
          continue;
        }
        // Parts come in order, since names are sorted.
        Tensor& target = joined[whole];
        const Tensor& expected = before.at(whole);
        const int64_t rows = target.valid() ? target.shape()[0] : 0;
        EXPECT_TRUE(value.BitwiseEquals(expected.Rows(rows, rows + value.shape()[0]))) << name;
        target = expected.Rows(0, rows + value.shape()[0]);
      }
      for (const auto& [name, value] : joined) {
        EXPECT_EQ(value.shape(), before.at(name).shape()) << name;
      }
    }
    Train(devices, ++step);
    before = Values(step, shards);
  }
}

}  // namespace
}  // namespace tutti
