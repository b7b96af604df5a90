#include "tutti/checkpoint/model_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <fstream>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/testing/checkpoint/test_file_system.h"

namespace tutti::checkpoint {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

FileSystem& System() { return FileSystem::System(); }

ModelDirectory OpenedAt(const std::string& path, FileSystem& files = System()) {
  return ValueOrThrow(ModelDirectory::Open(files, path, "pid 1"));
}

std::string MessageIn(const absl::Status& status) { return std::string(MessageOf(status)); }

TEST(ModelDirectoryTest, NamesAreThoseOfSteps) {
  EXPECT_EQ(CheckpointName(123), "checkpoint-000123");
  EXPECT_EQ(CheckpointName(12345678), "checkpoint-12345678");
  EXPECT_EQ(StepOfName("checkpoint-000123"), 123);
  EXPECT_EQ(StepOfName("checkpoint-12345678"), 12345678);
  for (const char* name : {"checkpoint-123", "checkpoint-", "checkpoint-00012x", "checkpoint",
                           ".tmp-checkpoint-000123", "checkpoint--00123"}) {
    EXPECT_EQ(StepOfName(name), std::nullopt) << name;
  }
}

TEST(ModelDirectoryTest, IsLockedAgainstASecondJob) {
  const TemporaryDirectory folder;
  const std::string path = folder / "deep/er";
  {
    const ModelDirectory first = ValueOrThrow(ModelDirectory::Open(System(), path, "pid 17 on h0"));
    const auto second = ModelDirectory::Open(System(), path, "pid 18");
    EXPECT_EQ(MessageIn(second.status()),
              path +
                  " is in use by another job (pid 17 on h0); wait for it to end, or give this "
                  "one a directory of its own");
  }
  EXPECT_TRUE(ModelDirectory::Open(System(), path, "pid 18").ok());
}

TEST(ModelDirectoryTest, SavesAndListsAndReplaces) {
  const TemporaryDirectory folder;
  ModelDirectory directory = OpenedAt(folder.path());
  EXPECT_THAT(ListCheckpoints(System(), folder.path()).value(), IsEmpty());
  ASSERT_TRUE(SaveCheckpoint(System(), directory, 100, SomeTensors(1)).ok());
  ASSERT_TRUE(SaveCheckpoint(System(), directory, 200, SomeTensors(2)).ok());
  ASSERT_TRUE(SaveCheckpoint(System(), directory, 200, SomeTensors(3)).ok());
  EXPECT_THAT(ListCheckpoints(System(), folder.path()).value(), ElementsAre(200, 100));
  const auto saved = OpenCheckpoint(System(), folder.path());
  ASSERT_TRUE(saved.ok()) << saved.status();
  EXPECT_EQ(saved->manifest().step, 200);
  EXPECT_TRUE(saved->Verify().ok());
  std::vector<SavedCheckpoint::Request> requests = {{"conv/kernel", 0, Tensor(kFloat32, {2, 3})},
                                                    {"conv/kernel", 1, Tensor(kFloat32, {1, 3})}};
  ASSERT_TRUE(saved->Read(requests).ok());
  EXPECT_TRUE(requests[0].target.BitwiseEquals(SomeTensors(3)[0].value));
  EXPECT_TRUE(requests[1].target.BitwiseEquals(Tensor::Of<float>({1, 3}, {4, 5, 6})));
  requests = {{"conv/kernel", 0, Tensor(kFloat32, {3, 3})}};
  EXPECT_THAT(MessageIn(saved->Read(requests)), HasSubstr("is float32 [2, 3] in " + saved->path() +
                                                          ", but float32 [3, 3] is wanted"));
  // Nothing is left over.
  std::vector<std::string> names;
  System().List(folder.path(), &names);
  EXPECT_THAT(names, ElementsAre("checkpoint-000100", "checkpoint-000200", "lock"));
}

TEST(ModelDirectoryTest, KeepsTheNewestAndTheBestAndWhatIsRead) {
  const TemporaryDirectory folder;
  ModelDirectory directory = OpenedAt(folder.path());
  for (int64_t step = 1; step <= 6; ++step) {
    ASSERT_TRUE(SaveCheckpoint(System(), directory, step, SomeTensors(float(step))).ok());
  }
  EXPECT_THAT(directory.Retain(0).value(), IsEmpty());
  ASSERT_TRUE(WriteBest(System(), folder.path(), {2, "accuracy", 0.5}).ok());
  EXPECT_EQ(ReadBest(System(), folder.path()).value()->value, 0.5);
  {
    const auto reader = SavedCheckpoint::Open(System(), folder / "checkpoint-000003");
    ASSERT_TRUE(reader.ok());
    EXPECT_THAT(directory.Retain(2).value(), ElementsAre(4, 1));
    EXPECT_THAT(ListCheckpoints(System(), folder.path()).value(), ElementsAre(6, 5, 3, 2));
    EXPECT_TRUE(reader->Verify().ok());
  }
  EXPECT_THAT(directory.Retain(2).value(), ElementsAre(3));
  ASSERT_TRUE(WriteBest(System(), folder.path(), {6, "accuracy", 0.75}).ok());
  EXPECT_THAT(directory.Retain(1).value(), ElementsAre(5, 2));
}

// Its checkpoint cannot be told any more. Removing older ones goes on all the same.
TEST(ModelDirectoryTest, ADamagedNoteOfTheBestIsPutAside) {
  const TemporaryDirectory folder;
  ModelDirectory directory = OpenedAt(folder.path());
  int64_t step = 0;
  for (const std::string& text : {std::string("checkpoint-0000"), std::string(5000, 'x')}) {
    for (int i = 0; i < 3; ++i) {
      ASSERT_TRUE(SaveCheckpoint(System(), directory, ++step, SomeTensors(1)).ok());
    }
    SetContent(folder / "best", text);
    EXPECT_THAT(MessageIn(ReadBest(System(), folder.path()).status()), HasSubstr("is damaged"));
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(directory.Retain(1).ok());
    EXPECT_THAT(::testing::internal::GetCapturedStderr(),
                HasSubstr("/best is damaged: expected a line such as \"checkpoint-000100 accuracy "
                          "0.9\"; no checkpoint counts as the best one, and the file is now " +
                          (folder / "damaged-best")));
    EXPECT_THAT(ListCheckpoints(System(), folder.path()).value(), ElementsAre(step));
    EXPECT_EQ(ReadBest(System(), folder.path()).value(), std::nullopt);
    EXPECT_EQ(ContentOf(folder / "damaged-best"), text);
  }
}

TEST(ModelDirectoryTest, RemovesWhatAnEarlierJobLeft) {
  const TemporaryDirectory folder;
  for (const char* name : {".tmp-checkpoint-000005", ".deleted-checkpoint-000001"}) {
    std::filesystem::create_directory(folder / name);
    std::ofstream(folder / (std::string(name) + "/shard-00000.safetensors")) << "half";
  }
  std::filesystem::create_directory(folder / "my notes");
  const ModelDirectory directory = OpenedAt(folder.path());
  std::vector<std::string> names;
  System().List(folder.path(), &names);
  EXPECT_THAT(names, ElementsAre("lock", "my notes"));
}

TEST(ModelDirectoryTest, SaysWhenThereIsNoRoom) {
  const TemporaryDirectory folder;
  const ModelDirectory directory = OpenedAt(folder.path());
  EXPECT_TRUE(directory.CheckRoom(1).ok());
  EXPECT_THAT(MessageIn(directory.CheckRoom(int64_t{1} << 62)),
              HasSubstr("but a checkpoint of this model takes 4611686018427387904"));
}

// Whatever call fails, the checkpoint from before is there, the error says what failed, and the
// next save succeeds.
TEST(ModelDirectoryTest, AnyCallMayFail) {
  const TemporaryDirectory folder;
  testing::TestFileSystem files;
  ModelDirectory directory = OpenedAt(folder.path(), files);
  ASSERT_TRUE(SaveCheckpoint(files, directory, 1, SomeTensors(1)).ok());
  files.names.clear();
  ASSERT_TRUE(SaveCheckpoint(files, directory, 2, SomeTensors(2)).ok());
  const std::vector<std::string> all = files.names;
  EXPECT_GT(all.size(), 15u);
  const std::map<std::string, int> errors = {{"write", ENOSPC}, {"allocate", ENOSPC}};
  for (size_t nth = 0; nth < all.size(); ++nth) {
    const int error = errors.contains(all[nth]) ? errors.at(all[nth]) : EIO;
    size_t count = 0;
    files.fail = [&](std::string_view, const std::string&) { return count++ == nth ? error : 0; };
    const int64_t step = 10 + int64_t(nth);
    const absl::Status status = SaveCheckpoint(files, directory, step, SomeTensors(3));
    files.fail = nullptr;
    // What was already renamed is whole; closing a directory that was synced may fail.
    if (!status.ok()) {
      EXPECT_THAT(MessageIn(status), HasSubstr(std::strerror(error))) << all[nth];
      EXPECT_THAT(MessageIn(status), HasSubstr(folder.path()));
      directory.Discard(step);
    } else {
      EXPECT_EQ(all[nth], "close");
    }
    const auto saved = OpenCheckpoint(System(), folder.path());
    ASSERT_TRUE(saved.ok()) << all[nth] << ": " << saved.status();
    EXPECT_TRUE(saved->Verify().ok());
    ASSERT_TRUE(SaveCheckpoint(files, directory, 100 + step, SomeTensors(4)).ok());
    EXPECT_TRUE(directory.Retain(1).ok());
  }
}

TEST(ModelDirectoryTest, ReadOnlyAndMissingDirectoriesAreRefused) {
  const TemporaryDirectory folder;
  testing::TestFileSystem files;
  for (const int error : {EROFS, EACCES, ENOSPC}) {
    files.fail = [&](std::string_view call, const std::string&) {
      return call == "mkdir" ? error : 0;
    };
    const auto made = ModelDirectory::Open(files, folder / "new", "pid 1");
    EXPECT_THAT(MessageIn(made.status()), HasSubstr("cannot make the directory"));
    EXPECT_THAT(MessageIn(made.status()), HasSubstr(std::strerror(error)));
    files.fail = [&](std::string_view call, const std::string& path) {
      return call == "open" && path.ends_with("lock") ? error : 0;
    };
    const auto there = ModelDirectory::Open(files, folder.path(), "pid 1");
    EXPECT_THAT(MessageIn(there.status()), HasSubstr(std::strerror(error)));
  }
  SetContent(folder / "file", "");
  EXPECT_THAT(MessageIn(ModelDirectory::Open(System(), folder / "file", "pid 1").status()),
              HasSubstr("Not a directory"));
}

TEST(ModelDirectoryTest, TellsWhetherATrainingRunsOrHasEnded) {
  const TemporaryDirectory folder;
  const std::string path = folder / "model";
  EXPECT_FALSE(IsHeld(System(), path).value());
  EXPECT_EQ(ReadFinish(System(), path).value(), std::nullopt);
  {
    ModelDirectory directory = OpenedAt(path);
    EXPECT_TRUE(IsHeld(System(), path).value());
    ASSERT_TRUE(directory.RemoveFinish().ok());
    ASSERT_TRUE(directory.WriteFinish({100, "100 steps"}).ok());
  }
  EXPECT_FALSE(IsHeld(System(), path).value());
  const auto finish = ReadFinish(System(), path).value();
  ASSERT_TRUE(finish.has_value());
  EXPECT_EQ(finish->step, 100);
  EXPECT_EQ(finish->until, "100 steps");
  ModelDirectory again = OpenedAt(path);
  ASSERT_TRUE(again.RemoveFinish().ok());
  EXPECT_EQ(ReadFinish(System(), path).value(), std::nullopt);
  for (const char* text :
       {"", "checkpoint-000100", "checkpoint-1 1 steps\n", "checkpoint-000100 1"}) {
    std::ofstream(path + "/finished") << text;
    EXPECT_THAT(MessageIn(ReadFinish(System(), path).status()), HasSubstr("finished is damaged"))
        << text;
  }
}

}  // namespace
}  // namespace tutti::checkpoint
