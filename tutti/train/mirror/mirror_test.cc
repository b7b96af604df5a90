// A chief and an evaluator, each with a directory of its own, in one process.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>

#include "tutti/net/address.h"
#include "tutti/testing/checkpoint/sample_checkpoint.h"
#include "tutti/train/mirror/checkpoint_feed.h"
#include "tutti/train/mirror/directory_mirror.h"

namespace tutti {
namespace {

using checkpoint::CheckpointName;
using checkpoint::ContentOf;
using checkpoint::FileSystem;
using checkpoint::ModelDirectory;
using checkpoint::SomeTensors;
using ::testing::HasSubstr;

FileSystem& Files() { return FileSystem::System(); }

TEST(FeedBodies, ComeBackAsTheyWere) {
  const DirectoryState state = {"a job\n12", checkpoint::Finish{40, "40 steps"}, {40, 30, 5}};
  EXPECT_EQ(ParseState(BodyOf(state)).value(), state);
  const DirectoryState empty;
  EXPECT_EQ(ParseState(BodyOf(empty)).value(), empty);
  const std::vector<FeedFile> files = {{"manifest.json", 17}, {"shard-00000.safetensors", 1 << 30}};
  EXPECT_EQ(ParseFiles(BodyOf(files)).value(), files);
  const FeedRead read = {"shard-00000.safetensors", 1 << 20, 99};
  EXPECT_EQ(ParseRead(BodyOf(read)).value(), read);
  EXPECT_EQ(ParseStep(BodyOfStep(7)).value(), 7);
}

TEST(FeedBodies, RefuseWhatLeadsElsewhere) {
  for (const std::string name : {"../manifest.json", "/etc/passwd", "a/b.safetensors", "lock", "",
                                 "..safetensors", ".tmp.safetensors"}) {
    EXPECT_FALSE(ParseFiles(BodyOf(std::vector<FeedFile>{{name, 1}})).ok()) << name;
    EXPECT_FALSE(ParseRead(BodyOf(FeedRead{name, 0, 1})).ok()) << name;
  }
  EXPECT_FALSE(ParseRead(BodyOf(FeedRead{"manifest.json", -1, 1})).ok());
  EXPECT_FALSE(ParseRead(BodyOf(FeedRead{"manifest.json", 0, kMostReadBytes + 1})).ok());
  EXPECT_FALSE(ParseFiles(BodyOf(std::vector<FeedFile>{{"manifest.json", -1}})).ok());
  EXPECT_FALSE(ParseState(BodyOf(DirectoryState{"", {}, {10, 20}})).ok()) << "not in order";
  EXPECT_FALSE(ParseState(BodyOf(DirectoryState{"", checkpoint::Finish{1, "a\nb"}, {}})).ok());
}

TEST(FeedBodies, TakeAnyBytes) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  const std::string bodies[] = {BodyOf(DirectoryState{"a\nb", checkpoint::Finish{4, "x"}, {9, 4}}),
                                BodyOf(std::vector<FeedFile>{{"manifest.json", 17}}),
                                BodyOf(FeedRead{"manifest.json", 2, 3})};
  for (int i = 0; i < 20'000; ++i) {
    std::string body = bodies[random() % 3];
    for (int k = int(random() % 4); k >= 0; --k) body[random() % body.size()] = char(random());
    body.resize(random() % (body.size() + 1));
    (void)ParseState(body);
    if (const auto files = ParseFiles(body); files.ok()) {
      for (const FeedFile& file : *files) ASSERT_TRUE(IsFileOfCheckpoint(file.name));
    }
    (void)ParseRead(body);
    (void)ParseStep(body);
  }
}

class MirrorTest : public ::testing::Test {
 protected:
  MirrorTest() {
    // Bound but not listening: nobody else gets the port, and the evaluator can listen there.
    held_ = net::Socket(::socket(AF_INET, SOCK_STREAM, 0));
    const int reuse = 1;
    ::setsockopt(held_.fd(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    const auto any = net::Resolve({"127.0.0.1", 0}).value().front();
    EXPECT_EQ(::bind(held_.fd(), any.get(), any.length), 0);
    const std::string address = ToString(net::LocalAddress(held_.fd()).value());
    const auto config = [&](const std::string& job, const std::string& path) {
      RunConfig made;
      made.program = job;
      made.job = job;
      made.role = fmt::format("/job:{}/task:0", job);
      made.has_evaluator = true;
      made.keep = 3;
      made.model_dir = path;
      made.tf_config =
          fmt::format(R"({{"cluster": {{"chief": ["127.0.0.1:1"], "evaluator": ["{}"]}},)"
                      R"( "task": {{"type": "{}", "index": 0}}}})",
                      address, job);
      return made;
    };
    chief_ = config("chief", folder_ / "chief");
    evaluator_ = config("evaluator", folder_ / "evaluator");
    directory_ = ValueOrThrow(ModelDirectory::Open(Files(), chief_.model_dir, "the chief"));
  }

  void Save(ModelDirectory& directory, int64_t step, float first) {
    ThrowIfError(SaveCheckpoint(Files(), directory, step, SomeTensors(first)));
  }
  void Save(int64_t step) { Save(*directory_, step, float(step)); }

  static std::vector<int64_t> Steps(const RunConfig& config) {
    return ValueOrThrow(checkpoint::ListCheckpoints(Files(), config.model_dir));
  }
  static bool Finished(const RunConfig& config) {
    return ValueOrThrow(checkpoint::ReadFinish(Files(), config.model_dir)).has_value();
  }
  static void Await(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  void ExpectSame(int64_t step) {
    for (const std::string file : {"manifest.json", "shard-00000.safetensors"}) {
      const std::string name = fmt::format("/{}/{}", CheckpointName(step), file);
      EXPECT_EQ(ContentOf(chief_.model_dir + name), ContentOf(evaluator_.model_dir + name)) << name;
    }
  }

  const testing::TemporaryDirectory folder_;
  net::Socket held_;
  RunConfig chief_, evaluator_;
  std::optional<ModelDirectory> directory_;
};

TEST_F(MirrorTest, FollowsATrainingOnAnotherDiskToItsEnd) {
  Save(10);
  const auto mirror = DirectoryMirror::Start(evaluator_);
  ASSERT_NE(mirror, nullptr);
  CheckpointFeed feed(chief_);
  Await([&] { return Steps(evaluator_) == std::vector<int64_t>{10}; });
  EXPECT_TRUE(checkpoint::IsHeld(Files(), evaluator_.model_dir).value());
  EXPECT_FALSE(Finished(evaluator_));
  for (const int64_t step : {20, 30, 40}) Save(step);
  ThrowIfError(directory_->WriteFinish({40, "40 steps"}));
  feed.Finish();
  EXPECT_EQ(Steps(evaluator_), (std::vector<int64_t>{40, 30, 20})) << "keep is 3";
  for (const int64_t step : {20, 30, 40}) ExpectSame(step);
  EXPECT_TRUE(Finished(evaluator_));
  Await([&] { return !checkpoint::IsHeld(Files(), evaluator_.model_dir).value(); });
  EXPECT_TRUE(mirror->status().ok()) << mirror->status();
}

TEST_F(MirrorTest, AnEvaluatorThatComesLateAndAgainGetsWhatIsNew) {
  Save(10);
  CheckpointFeed feed(chief_);
  {
    const auto mirror = DirectoryMirror::Start(evaluator_);
    Await([&] { return Steps(evaluator_) == std::vector<int64_t>{10}; });
  }
  Save(20);
  EXPECT_EQ(Steps(evaluator_), (std::vector<int64_t>{10}));
  const auto mirror = DirectoryMirror::Start(evaluator_);
  Await([&] { return Steps(evaluator_) == std::vector<int64_t>{20, 10}; });
  ThrowIfError(directory_->WriteFinish({20, "20 steps"}));
  feed.Finish();
  EXPECT_TRUE(Finished(evaluator_));
}

TEST_F(MirrorTest, NobodyWaitsForAnEvaluatorThatIsNotThere) {
  Save(10);
  CheckpointFeed feed(chief_);
  ThrowIfError(directory_->WriteFinish({10, "10 steps"}));
  feed.Finish(/*patience_seconds=*/60);
}

TEST_F(MirrorTest, ADirectoryThatBothSeeIsLeftAlone) {
  Save(10);
  evaluator_.model_dir = chief_.model_dir;
  const std::string holder = checkpoint::HolderOf(Files(), chief_.model_dir).value();
  const auto mirror = DirectoryMirror::Start(evaluator_);
  CheckpointFeed feed(chief_);
  ThrowIfError(directory_->WriteFinish({10, "10 steps"}));
  feed.Finish(/*patience_seconds=*/60);
  EXPECT_TRUE(mirror->status().ok()) << mirror->status();
  EXPECT_EQ(checkpoint::HolderOf(Files(), chief_.model_dir).value(), holder);
}

TEST_F(MirrorTest, WhatAnEarlierTrainingLeftGoes) {
  {
    ModelDirectory before =
        ValueOrThrow(ModelDirectory::Open(Files(), evaluator_.model_dir, "an earlier evaluator"));
    for (const int64_t step : {10, 20, 30, 99}) Save(before, step, step == 10 ? 10 : -1);
    ThrowIfError(before.WriteFinish({99, "99 steps"}));
  }
  for (const int64_t step : {10, 20, 30}) Save(step);
  const auto mirror = DirectoryMirror::Start(evaluator_);
  CheckpointFeed feed(chief_);
  Await([&] { return Steps(evaluator_) == std::vector<int64_t>{30, 20, 10}; });
  for (const int64_t step : {10, 20, 30}) ExpectSame(step);
  EXPECT_FALSE(Finished(evaluator_));
  EXPECT_TRUE(mirror->status().ok()) << mirror->status();
}

TEST_F(MirrorTest, ADirectoryOfAnotherJobIsRefused) {
  Save(10);
  ModelDirectory other =
      ValueOrThrow(ModelDirectory::Open(Files(), evaluator_.model_dir, "another training"));
  const auto mirror = DirectoryMirror::Start(evaluator_);
  CheckpointFeed feed(chief_);
  Await([&] { return !mirror->status().ok(); });
  EXPECT_THAT(std::string(MessageOf(mirror->status())),
              HasSubstr("is in use by another job (another training)"));
}

}  // namespace
}  // namespace tutti
