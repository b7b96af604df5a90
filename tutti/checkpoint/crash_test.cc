// Records the calls of a save, and replays every prefix of them with what was not synced dropped,
// kept or torn: whatever a loss of power leaves, a whole checkpoint can be loaded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/testing/checkpoint/crash_model.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/testing/checkpoint/test_file_system.h"

namespace tutti::checkpoint {
namespace {

constexpr int kStates = 6000;  // at least

// The newest step whose checkpoint is whole; -1: none is. Every one that has its name must be
// whole, but for those that a save has replaced already.
int64_t NewestWhole(const std::string& path) {
  const auto steps = ListCheckpoints(FileSystem::System(), path).value();
  for (const int64_t step : steps) {
    const auto saved =
        SavedCheckpoint::Open(FileSystem::System(), path + "/" + CheckpointName(step));
    if (!saved.ok() || !saved->Verify().ok()) continue;
    std::vector<SavedCheckpoint::Request> requests = {{"global_step", 0, Tensor(kInt64, {})}};
    if (saved->Read(requests).ok() && requests[0].target.scalar<int64_t>() == step) return step;
  }
  return -1;
}

// Replays `act`, which may make a checkpoint of step 20 where there is one of step 10.
void Replay(const std::function<absl::Status(FileSystem&, ModelDirectory&)>& act,
            int64_t expected_after) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const TemporaryDirectory folder;
  testing::TestFileSystem files;
  ModelDirectory directory = ValueOrThrow(ModelDirectory::Open(files, folder.path(), "pid 1"));
  ASSERT_TRUE(SaveCheckpoint(files, directory, 10, SomeTensors(10)).ok());
  testing::CrashModel model(folder.path());
  files.calls.clear();
  ASSERT_TRUE(act(files, directory).ok());
  const size_t calls = files.calls.size();
  const int a_prefix = kStates / int(calls) + 1;
  int states = 0;
  for (size_t prefix = 0; prefix <= calls; ++prefix) {
    for (int k = 0; k < a_prefix; ++k) {
      const TemporaryDirectory state(TemporaryDirectory::kMemory);
      // First nothing, then everything that was not synced, then any part of it.
      const double keep = k == 0 ? 0 : k == 1 ? 1 : 0.5;
      model.Crash(state / "disk", random, keep);
      const int64_t step = NewestWhole(state / "disk");
      ASSERT_TRUE(step == 10 || step == expected_after)
          << "after " << prefix << " of " << calls << " calls the newest is " << step;
      if (prefix == calls) {
        ASSERT_EQ(step, expected_after);
      }
      ++states;
    }
    if (prefix < calls) model.Apply(files.calls[prefix]);
  }
  EXPECT_GE(states, 5000);
  ::testing::Test::RecordProperty("states", states);
}

TEST(CrashTest, EveryPrefixOfASaveLeavesAWholeCheckpoint) {
  Replay(
      [](FileSystem& files, ModelDirectory& directory) -> absl::Status {
        TUTTI_RETURN_IF_ERROR(SaveCheckpoint(files, directory, 20, SomeTensors(20)));
        return directory.Retain(1).status();
      },
      20);
}

TEST(CrashTest, ReplacingACheckpointOfTheSameStepIsSafe) {
  Replay(
      [](FileSystem& files, ModelDirectory& directory) {
        return SaveCheckpoint(files, directory, 10, SomeTensors(10));
      },
      10);
}

// The harness can tell: without its syncs the same save loses data.
TEST(CrashTest, TheHarnessFindsASaveThatDoesNotSync) {
  std::mt19937 random(1);
  const TemporaryDirectory folder;
  testing::TestFileSystem files;
  ModelDirectory directory = ValueOrThrow(ModelDirectory::Open(files, folder.path(), "pid 1"));
  ASSERT_TRUE(SaveCheckpoint(files, directory, 10, SomeTensors(10)).ok());
  testing::CrashModel model(folder.path());
  files.calls.clear();
  ASSERT_TRUE(SaveCheckpoint(files, directory, 20, SomeTensors(20)).ok());
  ASSERT_TRUE(directory.Retain(1).ok());
  int lost = 0;
  for (const testing::FileCall& call : files.calls) {
    if (call.kind == testing::FileCall::kSync) continue;
    model.Apply(call);
    for (int k = 0; k < 20; ++k) {
      const TemporaryDirectory state(TemporaryDirectory::kMemory);
      model.Crash(state / "disk", random, 0.5);
      lost += NewestWhole(state / "disk") < 0 ? 1 : 0;
    }
  }
  EXPECT_GT(lost, 0);
}

}  // namespace
}  // namespace tutti::checkpoint
