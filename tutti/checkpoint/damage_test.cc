// Damage of every kind is found, and its place is named.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"

namespace tutti::checkpoint {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

class DamageTest : public ::testing::Test {
 protected:
  DamageTest() {
    ModelDirectory directory =
        ValueOrThrow(ModelDirectory::Open(FileSystem::System(), folder_.path(), "pid 1"));
    ThrowIfError(SaveCheckpoint(FileSystem::System(), directory, 100, SomeTensors(1)));
    ThrowIfError(SaveCheckpoint(FileSystem::System(), directory, 200, SomeTensors(2)));
  }
  std::string Path(int step, const std::string& file) const {
    return folder_ / fmt::format("checkpoint-{:06}/{}", step, file);
  }
  std::string ErrorOf() const {
    const auto saved = SavedCheckpoint::Open(FileSystem::System(), folder_ / "checkpoint-000200");
    if (!saved.ok()) return std::string(MessageOf(saved.status()));
    const absl::Status status = saved->Verify();
    return status.ok() ? "no error" : std::string(MessageOf(status));
  }

  const TemporaryDirectory folder_{TemporaryDirectory::kMemory};
  const std::string shard_ = "shard-00000.safetensors";
  const std::string manifest_ = "manifest.json";
};

// Flips 20,000 bits, spread over the files by their size, but at least a quarter of them in each.
TEST_F(DamageTest, EveryFlippedBitIsFoundAndItsPlaceNamed) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  ASSERT_EQ(ErrorOf(), "no error");
  constexpr int kFlips = 20'000;
  for (const std::string& name : {shard_, manifest_}) {
    const std::string path = Path(200, name);
    const std::string whole = ContentOf(path);
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    const auto put = [&](size_t at, char value) {
      file.seekp(std::streamoff(at));
      file.put(value);
      file.flush();
    };
    const size_t header = 4096, data = whole.size() - header;
    for (int i = 0; i < kFlips / 2; ++i) {
      size_t at = random() % whole.size();
      // Half of those in the shard go to its few bytes of data.
      if (name == shard_ && i % 2 == 0) at = header + random() % data;
      put(at, char(whole[at] ^ (1 << random() % 8)));
      const std::string error = ErrorOf();
      put(at, whole[at]);
      ASSERT_THAT(error, HasSubstr(path)) << "byte " << at;
      if (name == manifest_) {
        ASSERT_THAT(error, AnyOf(HasSubstr("line "), HasSubstr("\"lines_crc32c\""))) << at;
      } else if (at >= header) {
        ASSERT_THAT(error, HasSubstr("tensor \"")) << at;
      } else {
        ASSERT_THAT(error, AnyOf(HasSubstr("the length of its header"), HasSubstr("at tensor \""),
                                 HasSubstr("is of step"), HasSubstr("header is damaged at byte")))
            << at;
      }
    }
  }
  EXPECT_EQ(ErrorOf(), "no error");
}

TEST_F(DamageTest, NamesTheTensor) {
  std::string content = ContentOf(Path(200, shard_));
  content[4096 + 25] ^= 1;
  SetContent(Path(200, shard_), content);
  EXPECT_THAT(ErrorOf(), HasSubstr("tensor \"conv/kernel/m\" is damaged: its CRC32C is "));
}

TEST_F(DamageTest, ATornShardIsFound) {
  const std::string content = ContentOf(Path(200, shard_));
  for (const size_t size : {size_t{0}, size_t{5}, size_t{100}, size_t{4096}, content.size() - 1}) {
    SetContent(Path(200, shard_), content.substr(0, size));
    EXPECT_NE(ErrorOf(), "no error") << size;
  }
  SetContent(Path(200, shard_), content + "x");
  EXPECT_THAT(ErrorOf(), HasSubstr("but there are"));
  std::filesystem::remove(Path(200, shard_));
  EXPECT_THAT(ErrorOf(), HasSubstr("No such file"));
}

TEST_F(DamageTest, ShardsOfDifferentStepsAreFound) {
  SetContent(Path(200, shard_), ContentOf(Path(100, shard_)));
  EXPECT_THAT(ErrorOf(), HasSubstr("is of step 100, but the manifest is of step 200"));
}

}  // namespace
}  // namespace tutti::checkpoint
