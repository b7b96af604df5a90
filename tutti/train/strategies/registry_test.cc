// Strategies by name: what they declare is what flags, help, errors and RunConfig know of them.
#include "tutti/train/strategies/registry.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tutti/base/error.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/dense.h"
#include "tutti/testing/temporary_directory.h"
#include "tutti/train/estimator/estimator.h"
#include "tutti/train/main.h"
#include "tutti/train/optimizers/optimizers.h"
#include "tutti/train/strategies/strategies.h"

namespace tutti {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string ErrorOf(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

ModelSpec Model(const Features& batch, Mode) {
  ModelSpec spec;
  spec.loss = Mean(Square(nn::Dense(Add(batch["x"], 1.0f), 2)));
  spec.optimizer = std::make_shared<Sgd>();
  return spec;
}

Dataset Samples() { return Dataset::FromTensors({{"x", Tensor::Zeros(kFloat32, {8, 3})}}); }

// What a program would bring: it has work for a ps, and a flag.
std::string served;
void RegisterServed() {
  static const bool once = [] {
    RegisterStrategy(
        {.name = "served",
         .summary = "with a server",
         .others = {{"ps",
                     [](const Launch& launch) {
                       served = launch.config.program + " " + launch.flag("pace");
                     }}},
         .flags =
             {{.name = "pace", .initial = "slow", .help = "how fast", .choices = {"slow", "fast"}}},
         .make = [](const Launch&) { return MakeLocalStrategy(); }});
    return true;
  }();
  (void)once;
}

struct Ended {
  int code = 0;
  bool trained = false;
  std::string out;
  std::string err;
};
Ended RunMain(std::vector<const char*> arguments, const char* tf_config = nullptr) {
  arguments.insert(arguments.begin(), "bin/program");
  arguments.push_back(nullptr);
  if (tf_config != nullptr) ::setenv("TF_CONFIG", tf_config, 1);
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Ended ended;
  ended.code = Main(int(arguments.size()) - 1, const_cast<char**>(arguments.data()),
                    [&](const RunConfig&) { ended.trained = true; });
  ended.out = ::testing::internal::GetCapturedStdout();
  ended.err = ::testing::internal::GetCapturedStderr();
  ::unsetenv("TF_CONFIG");
  return ended;
}

class RegistryTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    RegisterCpuKernels();
    RegisterServed();
  }
};

TEST_F(RegistryTest, ListsWhatThereIs) {
  EXPECT_THAT(
      ErrorOf([] { FindStrategy("magic"); }),
      HasSubstr("there is no strategy \"magic\"; expected one of allreduce, local, mirrored:N, "
                "ps-async, ps-ssp:S, ps-sync[:backup=K], served"));
  EXPECT_THAT(ErrorOf([] {
                RegisterStrategy(
                    {.name = "local", .make = [](const Launch&) { return MakeLocalStrategy(); }});
              }),
              HasSubstr("there is a strategy \"local\" already"));
}

TEST_F(RegistryTest, StrategiesWithServersSayWhichArgumentTheyWant) {
  const auto error_of = [](const std::string& name) {
    return ErrorOf([&] { FindStrategy(name); });
  };
  for (const char* wrong :
       {"ps-ssp", "ps-ssp:", "ps-ssp:-1", "ps-ssp:x", "ps-ssp:3x", "ps-ssp:99999999999999999999"}) {
    EXPECT_THAT(error_of(wrong), HasSubstr(fmt::format("the strategy is \"{}\"; expected ps-ssp:S "
                                                       "with S steps, 0 or more",
                                                       wrong)));
  }
  for (const char* wrong : {"ps-sync:1", "ps-sync:backup=", "ps-sync:backup=x", "ps-sync:backup=-1",
                            "ps-sync:backup=1x"}) {
    EXPECT_THAT(
        error_of(wrong),
        HasSubstr(fmt::format("the strategy is \"{}\"; expected ps-sync[:backup=K] with ", wrong)));
  }
  EXPECT_EQ(&FindStrategy("ps-ssp:0"), &FindStrategy("ps-ssp:3"));
  EXPECT_EQ(FindStrategy("ps-sync:backup=1").name, "ps-sync");
}

TEST_F(RegistryTest, ChecksFlags) {
  const StrategyDef& def = FindStrategy("allreduce");
  EXPECT_THAT(
      CompleteFlags(def, {{"wire", "bf16"}}),
      ElementsAre(Pair("algorithm", "auto"), Pair("transport", "auto"), Pair("wire", "bfloat16")));
  EXPECT_THAT(ErrorOf([&] {
                CompleteFlags(def, {{"wire", "int8"}});
              }),
              HasSubstr("strategy allreduce: flag \"wire\" is \"int8\"; expected one of as-is, "
                        "bfloat16, float16"));
  EXPECT_THAT(ErrorOf([&] {
                CompleteFlags(def, {{"pace", "fast"}});
              }),
              HasSubstr("strategy allreduce has no flag \"pace\"; it has algorithm, wire"));
}

TEST_F(RegistryTest, AConfigMadeByHandNeedsNoMain) {
  const RunConfig config = {.max_steps = 3,
                            .batch_size = 4,
                            .strategy = "allreduce",
                            .strategy_flags = {{"algorithm", "ring"}}};
  Estimator estimator(Model, config);
  EXPECT_EQ(estimator.Train({.input = [] { return Samples().Repeat(); }}).steps, 3);
  EXPECT_THAT(ErrorOf([] { Estimator(Model, {.strategy = "magic"}); }),
              HasSubstr("there is no strategy \"magic\""));
  // A cluster of one, as text.
  const RunConfig task = {
      .max_steps = 1, .batch_size = 4, .tf_config = R"({"cluster": {"worker": ["127.0.0.1:1"]},
                       "task": {"type": "worker", "index": 0}})"};
  RunConfig joined = task;
  joined.Join();
  EXPECT_EQ(joined.role, "/job:worker/task:0");
}

TEST_F(RegistryTest, HelpHasStrategiesAndTheirFlags) {
  const Ended ended = RunMain({"--help"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out,
              HasSubstr("how training is spread: allreduce (workers that sum their gradients), "
                        "local (one process), mirrored:N ("));
  EXPECT_THAT(ended.out, HasSubstr("), served (with a server)"));
  EXPECT_THAT(ended.out, HasSubstr("; with ps-async, ps-ssp, ps-sync (1048576)"));
  EXPECT_THAT(ended.out, HasSubstr("how fast: slow, fast; with served (slow)"));
  EXPECT_THAT(ended.out,
              HasSubstr("how float32 gradients travel: as-is, bfloat16, float16; with allreduce"));
}

TEST_F(RegistryTest, MainKnowsRoles) {
  constexpr const char* kPs =
      R"({"cluster": {"worker": ["127.0.0.1:1"], "ps": ["127.0.0.1:2"]},
          "task": {"type": "ps", "index": 0}})";
  const Ended ended = RunMain({"--strategy", "served", "--pace", "fast"}, kPs);
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_FALSE(ended.trained);
  EXPECT_EQ(served, "program fast");
  const Ended refused = RunMain({"--strategy", "allreduce"}, kPs);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("task.type is \"ps\", which --strategy allreduce has no work "
                                     "for; expected one of chief, worker"));
  const Ended crowded = RunMain({}, R"({"cluster": {"worker": ["127.0.0.1:1", "127.0.0.1:2"]},
                                        "task": {"type": "worker", "index": 0}})");
  EXPECT_EQ(crowded.code, 2);
  EXPECT_THAT(crowded.err, HasSubstr("TF_CONFIG has 2 tasks that train, but --strategy is local; "
                                     "use one of allreduce, ps-async, ps-ssp, ps-sync, served"));
}

TEST_F(RegistryTest, EveryStrategyNeedsTheAddressesOfAllTasks) {
  for (const StrategyDef* def : AllStrategies()) {
    const std::string strategy = def->name == "mirrored" ? "mirrored:2"
                                 : def->name == "ps-ssp" ? "ps-ssp:1"
                                                         : def->name;
    for (const char* task :
         {R"({"sparseCluster":{"worker":{"1":"127.0.0.1:3"},"ps":["127.0.0.1:1","127.0.0.1:2"]},
              "task":{"type":"worker","index":1}})",
          R"({"sparseCluster":{"worker":{},"ps":["127.0.0.1:1"]},"task":{"type":"ps","index":0}})",
          R"({"sparseCluster":{"worker":{},"ps":["127.0.0.1:2"]},"task":{"type":"ps","index":1}})",
          R"({"sparseCluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}})",
          R"({"sparseCluster":{"worker":{},"ps":[]},"task":{"type":"evaluator","index":0}})"}) {
      const Ended refused = RunMain({"--strategy", strategy.c_str()}, task);
      EXPECT_EQ(refused.code, 2) << strategy << " " << task;
      EXPECT_FALSE(refused.trained);
      EXPECT_THAT(refused.err, HasSubstr("TF_CONFIG has a sparseCluster, as that of a TFJob with "
                                         "enableDynamicWorker, which does not name all tasks"));
      EXPECT_THAT(refused.err, HasSubstr("set enableDynamicWorker to false in the TFJob"));
    }
  }
}

TEST_F(RegistryTest, NoTaskListensBeyondItsHostWithoutAToken) {
  ::unsetenv("TUTTI_JOB_TOKEN");
  constexpr const char* kPs =
      R"({"cluster": {"worker": ["127.0.0.1:1"], "ps": ["192.0.2.1:2"]},
          "task": {"type": "ps", "index": 0}})";
  const Ended refused = RunMain({"--strategy", "served"}, kPs);
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("program: TUTTI_JOB_TOKEN is not set, and whoever reaches /job:ps/task:0 "
                        "(192.0.2.1:2) could take a place in this job: give all its tasks the same "
                        "secret text there, use addresses of loopback, or say --insecure"));
  EXPECT_EQ(RunMain({"--strategy", "served", "--insecure"}, kPs).code, 0);
  ::setenv("TUTTI_JOB_TOKEN", "secret", 1);
  EXPECT_EQ(RunMain({"--strategy", "served"}, kPs).code, 0);
  ::unsetenv("TUTTI_JOB_TOKEN");
  // Nobody listens: a task alone, and one whose checkpoints another evaluates.
  const testing::TemporaryDirectory folder;
  EXPECT_EQ(RunMain({"--model-dir", folder.path().c_str()},
                    R"({"cluster": {"chief": ["192.0.2.1:1"], "evaluator": ["192.0.2.2:1"]},
                            "task": {"type": "chief", "index": 0}})")
                .code,
            0);
}

TEST_F(RegistryTest, SaysThatAFlagOfAnotherStrategyIsNotUsed) {
  const Ended ended = RunMain({"--wire", "bf16"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_TRUE(ended.trained);
  EXPECT_THAT(ended.err, HasSubstr("--wire bfloat16 is not used: it is for --strategy allreduce"));
}

}  // namespace
}  // namespace tutti
