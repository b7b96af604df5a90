// Saving and restoring as ops of a session.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/checkpoint/register.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/client/session.h"
#include "tutti/cluster/server.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::Manifest;
using checkpoint::ModelDirectory;
using ::testing::HasSubstr;

Initializer Numbers(const Shape& shape, float first) {
  return {kFloat32, shape, [=](Graph& graph) {
            Tensor value(kFloat32, shape);
            for (float k = first; float& v : value.values<float>()) v = k++;
            return Constant(graph, value);
          }};
}

class CheckpointOpsTest : public ::testing::Test {
 protected:
  CheckpointOpsTest() {
    RegisterCpuKernels();
    RegisterCheckpointKernels();
  }

  // Saves the variables of one snapshot each as a shard, and the rows that each has of its tensor.
  void Publish(int64_t step, const std::vector<SavedVariables>& shards,
               std::vector<checkpoint::SavedTensor> tensors) {
    Manifest manifest = {.step = step};
    for (size_t i = 0; i < shards.size(); ++i) {
      manifest.shards.push_back(
          {fmt::format("shard-{:05}.safetensors", i), shards[i].file_bytes, shards[i].header_crc});
    }
    std::vector<size_t> next(shards.size(), 0);
    for (auto& tensor : tensors) {
      const auto shard = size_t(tensor.shard);
      const SavedVariable& saved = shards[shard].variables[next[shard]++];
      tensor.dtype = saved.dtype;
      tensor.shape = saved.shape;
      tensor.crc = saved.crc;
      if (tensor.whole.rank() == 0) tensor.whole = saved.shape;
    }
    manifest.tensors = std::move(tensors);
    const std::string text = FormatManifest(manifest);
    ThrowIfError(
        checkpoint::WriteAndSync(FileSystem::System(), temporary_ + "/manifest.json", text));
    ThrowIfError(directory_.Publish(step));
  }

  checkpoint::TemporaryDirectory folder_;
  ModelDirectory directory_ =
      ValueOrThrow(ModelDirectory::Open(FileSystem::System(), folder_.path(), "pid 1"));
  std::string temporary_ = ValueOrThrow(directory_.Begin(1));
};

TEST_F(CheckpointOpsTest, ASnapshotIsSavedWhileTrainingGoesOn) {
  Graph graph;
  const Output w = Variable(graph, Numbers({2, 2}, 1), "w");
  const Output b = Variable(graph, Numbers({3}, 7), "b");
  const Output path = Placeholder(graph, kUInt8, {kPathBytes}, "path");
  const std::vector<Output> variables = {w, b};
  const Node* const take = TakeSnapshot(variables, "all");
  const Output save = SaveShard(path, variables, "all");
  const Output change = AssignAdd(w, Tensor::Of<float>({2, 2}, {10, 10, 10, 10}));
  const Node* const restore = RestoreShard(path, variables, {"w", "b"}, {0, 0});
  Session session(graph);
  session.Initialize();
  session.RunTargets({}, {take});
  // The update comes between the snapshot and its save.
  session.Run(change);
  const Tensor file = PathTensor(temporary_ + "/shard-00000.safetensors");
  const SavedVariables saved = ParseSavedVariables(session.Run({{path, file}}, save));
  ASSERT_EQ(saved.variables.size(), 2u);
  Publish(1, {saved}, {{.name = "w", .key = "w"}, {.name = "b", .key = "b"}});
  const Tensor before = Tensor::Of<float>({2, 2}, {1, 2, 3, 4});
  EXPECT_TRUE(session.Run(w).BitwiseEquals(Tensor::Of<float>({2, 2}, {11, 12, 13, 14})));
  session.RunTargets({{path, PathTensor(folder_ / "checkpoint-000001")}}, {restore});
  EXPECT_TRUE(session.Run(w).BitwiseEquals(before));
  EXPECT_TRUE(session.Run(b).BitwiseEquals(Tensor::Vector<float>({7, 8, 9})));
  // The variable is its own again: an update works in place, and the file stays as it is.
  session.Run(change);
  session.RunTargets({{path, PathTensor(folder_ / "checkpoint-000001")}}, {restore});
  EXPECT_TRUE(session.Run(w).BitwiseEquals(before));
}

// The next update of a dense variable copies what the snapshot holds; of a table the snapshot has
// a copy, and an update of one row copies nothing.
TEST_F(CheckpointOpsTest, AnUpdateOfRowsCopiesNoTableThatIsBeingSaved) {
  Server server({.cores_per_device = 1});
  Graph graph;
  const Output table = Variable(graph, Numbers({1000, 4}, 0), "table");
  const Output dense = Variable(graph, Numbers({5}, 0), "dense");
  const Node* const take = TakeSnapshot(std::vector<Output>{table, dense}, "all");
  const Output path = Placeholder(graph, kUInt8, {kPathBytes}, "path");
  const Output save = SaveShard(path, std::vector<Output>{table, dense}, "all");
  const Output row = ScatterAdd(table, Tensor::Vector<int64_t>({3}),
                                Tensor::Of<float>({1, 4}, {100, 100, 100, 100}));
  const Output all = AssignAdd(dense, Tensor::Of<float>({5}, {1, 1, 1, 1, 1}));
  const Node* const restore =
      RestoreShard(path, std::vector<Output>{table, dense}, {"table", "dense"}, {0, 0});
  Session session(graph, {.server = &server});
  session.Initialize();
  session.RunTargets({}, {row.node});
  session.RunTargets({}, {take});
  session.RunTargets({}, {row.node});
  EXPECT_EQ(server.stats()[0].cloned_bytes, 0);
  session.RunTargets({}, {all.node});
  EXPECT_EQ(server.stats()[0].cloned_bytes, 5 * 4);
  const Tensor file = PathTensor(temporary_ + "/shard-00000.safetensors");
  const SavedVariables saved = ParseSavedVariables(session.Run({{path, file}}, save));
  Publish(1, {saved}, {{.name = "table", .key = "table"}, {.name = "dense", .key = "dense"}});
  session.RunTargets({{path, PathTensor(folder_ / "checkpoint-000001")}}, {restore});
  EXPECT_EQ(session.Run(table).values<float>()[3 * 4], 112) << "of the snapshot: once 100 more";
  EXPECT_EQ(session.Run(dense).values<float>()[0], 0);
}

// What one has saved in parts of 3 and 2 rows, another restores in parts of 1 and 4.
TEST_F(CheckpointOpsTest, RowsAreRestoredFromPartsOfOthers) {
  Graph graph;
  const Output a = Variable(graph, Numbers({3, 2}, 0), "t/part_0");
  const Output b = Variable(graph, Numbers({2, 2}, 6), "t/part_1");
  const Output path = Placeholder(graph, kUInt8, {kPathBytes}, "path");
  Session session(graph);
  session.Initialize();
  std::vector<SavedVariables> shards;
  for (const Output& part : {a, b}) {
    const std::string name = fmt::format("snapshot {}", shards.size());
    const Node* const take = TakeSnapshot({&part, 1}, name);
    const Output save = SaveShard(path, {&part, 1}, name);
    session.RunTargets({}, {take});
    const Tensor file =
        PathTensor(fmt::format("{}/shard-{:05}.safetensors", temporary_, shards.size()));
    shards.push_back(ParseSavedVariables(session.Run({{path, file}}, save)));
  }
  Publish(1, shards,
          {{.name = "t", .key = "t/part_0", .whole = {5, 2}},
           {.name = "t", .key = "t/part_1", .whole = {5, 2}, .first_row = 3, .shard = 1}});

  Graph other;
  const Output c = Variable(other, Numbers({1, 2}, -9), "c");
  const Output d = Variable(other, Numbers({4, 2}, -9), "d");
  const Output whole = Variable(other, Numbers({5, 2}, -9), "whole");
  const Output where = Placeholder(other, kUInt8, {kPathBytes}, "path");
  const std::vector<Output> variables = {c, d, whole};
  const Node* const restore = RestoreShard(where, variables, {"t", "t", "t"}, {0, 1, 0});
  Session restored(other);
  restored.Initialize();
  restored.RunTargets({{where, PathTensor(folder_ / "checkpoint-000001")}}, {restore});
  EXPECT_TRUE(restored.Run(c).BitwiseEquals(Tensor::Of<float>({1, 2}, {0, 1})));
  EXPECT_TRUE(restored.Run(d).BitwiseEquals(Tensor::Of<float>({4, 2}, {2, 3, 4, 5, 6, 7, 8, 9})));
  EXPECT_TRUE(
      restored.Run(whole).BitwiseEquals(Tensor::Of<float>({5, 2}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9})));
}

TEST_F(CheckpointOpsTest, SaysWhatDoesNotFit) {
  Graph graph;
  const Output w = Variable(graph, Numbers({2, 2}, 1), "w");
  const Output v = Variable(graph, Numbers({3, 2}, 1), "v");
  const Output path = Placeholder(graph, kUInt8, {kPathBytes}, "path");
  const Node* const take = TakeSnapshot({&w, 1}, "all");
  const Output save = SaveShard(path, {&w, 1}, "all");
  const Node* const wrong_shape = RestoreShard(path, {&v, 1}, {"w"}, {0});
  const Node* const wrong_name = RestoreShard(path, {&w, 1}, {"u"}, {0});
  Session session(graph);
  session.Initialize();
  const auto error_of = [&](const std::string& at, auto fetch) {
    try {
      if constexpr (std::is_same_v<decltype(fetch), Output>) {
        session.Run({{path, PathTensor(at)}}, fetch);
      } else {
        session.RunTargets({{path, PathTensor(at)}}, {fetch});
      }
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  const std::string file = temporary_ + "/shard-00000.safetensors";
  EXPECT_THAT(error_of(file, save), HasSubstr("run TakeSnapshot before each SaveShard"));
  for (const std::string& elsewhere :
       {std::string("/etc/passwd"), folder_ / "a.safetensors", temporary_ + "/shard.txt",
        std::string("a.safetensors"), std::string()}) {
    session.RunTargets({}, {take});
    EXPECT_THAT(error_of(elsewhere, save), HasSubstr("is no shard of a checkpoint"));
  }
  session.RunTargets({}, {take});
  const SavedVariables saved = ParseSavedVariables(session.Run({{path, PathTensor(file)}}, save));
  session.RunTargets({}, {take});
  EXPECT_THAT(error_of(file, save), HasSubstr("File exists"));
  Publish(1, {saved}, {{.name = "w", .key = "w"}});
  const std::string at = folder_ / "checkpoint-000001";
  EXPECT_THAT(error_of(at, wrong_shape),
              HasSubstr("tensor \"w\" is float32 [2, 2] in " + at + ", but float32 [3, 2]"));
  EXPECT_THAT(error_of(at, wrong_name), HasSubstr("has no tensor \"u\""));
  EXPECT_THAT(error_of(folder_ / "nowhere", wrong_name), HasSubstr("No such file"));
}

}  // namespace
}  // namespace tutti
