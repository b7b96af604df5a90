// Checkpoints that earlier versions wrote stay readable: those in tutti/checkpoint/testdata are
// never written anew. A format that a later version introduces gets a folder of its own there.
#include <gtest/gtest.h>

#include <filesystem>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/heads/heads.h"
#include "tutti/train/optimizers/optimizers.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::SavedCheckpoint;

// 20 steps of ps-sync with 2 servers, which have rows of each of the weights.
const std::string kFormat1 = TUTTI_SOURCE_DIR "/tutti/checkpoint/testdata/format-1";

Tensor ValueOf(const SavedCheckpoint& saved, const std::string& name) {
  const checkpoint::SavedTensor* const tensor = saved.Find(name);
  if (tensor == nullptr) return {};
  SavedCheckpoint::Request request = {name, 0, Tensor(tensor->dtype, tensor->whole)};
  const absl::Status status = saved.Read(std::span(&request, 1));
  EXPECT_TRUE(status.ok()) << status;
  return request.target;
}

TEST(GoldenCheckpointTest, Format1IsRead) {
  const auto saved = SavedCheckpoint::Open(FileSystem::System(), kFormat1 + "/checkpoint-000020");
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_TRUE(saved->Verify().ok()) << saved->Verify();
  const checkpoint::Manifest& manifest = saved->manifest();
  EXPECT_EQ(manifest.format, 1);
  EXPECT_EQ(manifest.step, 20);
  EXPECT_EQ(manifest.position, 1280);
  EXPECT_EQ(manifest.seed, 1);
  EXPECT_EQ(manifest.data.at("samples"), "6000");
  EXPECT_EQ(manifest.order.at("strategy"), "ps-sync");
  EXPECT_EQ(manifest.tensors.size(), 19u);
  EXPECT_EQ(saved->Find("dense/weights/m")->slot_of, "dense/weights");
  EXPECT_EQ(ValueOf(*saved, "global_step").scalar<int64_t>(), 20);
  const Tensor bias = ValueOf(*saved, "dense_1/bias");
  ASSERT_EQ(bias.shape(), (Shape{3}));
  EXPECT_EQ(bias.data<float>()[0], 0x1.727b3ap-4f);
  EXPECT_EQ(bias.data<float>()[1], -0x1.7cef64p-5f);
  EXPECT_EQ(bias.data<float>()[2], -0x1.3ad68ap-5f);
  const Tensor weights = ValueOf(*saved, "dense/weights");
  ASSERT_EQ(weights.shape(), (Shape{2, 16}));
  EXPECT_EQ(weights.data<float>()[0], -0x1.a2720cp-2f);
  EXPECT_EQ(weights.data<float>()[15], -0x1.a31f3ap-4f);
  EXPECT_EQ(weights.data<float>()[16], 0x1.6c903cp-3f);
  EXPECT_EQ(weights.data<float>()[31], 0x1.78094ep-2f);
  EXPECT_EQ(ValueOf(*saved, "dense_1/weights/m").data<float>()[47], 0x1.33cc08p-5f);
}

// The model of examples/guide/estimator.cc as it was then.
ModelSpec Classifier(const Features& batch, Mode mode) {
  const Output hidden = nn::Dense(batch["point"], 16, {.activation = nn::kRelu});
  return MultiClassHead(3).Spec(nn::Dense(hidden, 3), batch["sector"],
                                Adam({.learning_rate = 0.01}), mode);
}

TEST(GoldenCheckpointTest, ATrainingGoesOnFromFormat1) {
  RegisterCpuKernels();
  const testing::TemporaryDirectory folder;
  std::filesystem::copy(kFormat1, folder.path(), std::filesystem::copy_options::recursive);
  RunConfig config;
  config.quiet = true;
  config.max_steps = 21;
  config.model_dir = folder.path();
  Estimator estimator(Classifier, config);
  const TrainResult result = estimator.Train({.input = [] {
    return Dataset::FromTensors({{"point", Tensor::Zeros(kFloat32, {6000, 2})},
                                 {"sector", Tensor::Zeros(kInt32, {6000})}})
        .Repeat();
  }});
  EXPECT_EQ(result.steps, 1);
  const auto before = SavedCheckpoint::Open(FileSystem::System(), kFormat1 + "/checkpoint-000020");
  ASSERT_TRUE(before.ok()) << before.status();
  const auto values = estimator.Variables();
  EXPECT_EQ(values.at("global_step").scalar<int64_t>(), 21);
  // The points are all zero: there is no gradient of these, and Adam has its momentum alone.
  const Tensor momentum = ValueOf(*before, "dense/weights/m");
  for (int64_t i = 0; i < 32; ++i) {
    EXPECT_FLOAT_EQ(values.at("dense/weights/m").data<float>()[i],
                    0.9f * momentum.data<float>()[i]);
  }
}

}  // namespace
}  // namespace tutti
