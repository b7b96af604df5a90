// Saves that fail before anything is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/checkpoints/checkpoints.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class FailingSaveTest : public ::testing::Test {
 protected:
  FailingSaveTest() {
    RegisterCpuKernels();
    config_.model_dir = folder_.path();
    config_.save_every = "1";
    config_.program = "test";
    config_.Join();
    checkpoints_.emplace(config_, Checkpoints::Use::kTrain);
    checkpoints_->BeginTraining(graph_, {});
  }

  // Begins the save of a step and waits for its end.
  SaveEnd Save(Session& session, int64_t step) {
    ::testing::internal::CaptureStderr();
    checkpoints_->AfterStep(session, step, 0);
    std::optional<SaveEnd> end;
    while (!end) end = checkpoints_->TakeEnded();
    said_ = ::testing::internal::GetCapturedStderr();
    return *end;
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    checkpoint::FileSystem::System().List(folder_.path(), &names);
    return names;
  }

  testing::TemporaryDirectory folder_;
  Graph graph_;
  const Output weights_ = Variable(
      graph_, {kFloat32, {2}, [](Graph& graph) { return Constant(graph, Tensor(kFloat32, {2})); }},
      "w");
  RunConfig config_;
  std::optional<Checkpoints> checkpoints_;
  std::string said_;
};

TEST_F(FailingSaveTest, ASnapshotThatCannotBeTakenDoesNotEndTheTraining) {
  Session session(graph_);
  EXPECT_THAT(Save(session, 1).error, HasSubstr("variable \"w\" has no value yet"));
  EXPECT_THAT(said_, HasSubstr("test: the checkpoint of step 1 failed: "));
  EXPECT_THAT(said_, HasSubstr("; training goes on\n"));
  EXPECT_THAT(Names(), ElementsAre("lock"));
  session.Initialize();
  EXPECT_EQ(Save(session, 2).error, "");
  EXPECT_THAT(Names(), ElementsAre("checkpoint-000002", "lock"));
}

TEST_F(FailingSaveTest, TheEndOfTheSessionEndsTheTraining) {
  Session session(graph_);
  session.Initialize();
  session.Close();
  try {
    checkpoints_->AfterStep(session, 1, 0);
    FAIL() << "went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kCancelled) << error.what();
  }
  EXPECT_THAT(Names(), ElementsAre("lock"));
}

TEST_F(FailingSaveTest, ASaveThatFailsAtOnceTellsItsOwnTime) {
  Session session(graph_);
  session.Initialize();
  const double first = Save(session, 1).seconds;
  EXPECT_GT(first, 0);
  std::filesystem::remove_all(folder_.path());
  const int64_t begin = NowNanos();
  const SaveEnd end = Save(session, 2);
  EXPECT_THAT(end.error, HasSubstr("No such file or directory"));
  EXPECT_GT(end.seconds, 0);
  EXPECT_NE(end.seconds, first);
  EXPECT_LE(end.seconds, double(NowNanos() - begin) * 1e-9);
}

}  // namespace
}  // namespace tutti
