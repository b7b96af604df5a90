#include "tutti/cluster/tf_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tutti/base/status.h"
#include "tutti/cluster/cluster_file.h"
#include "tutti/testing/temporary_directory.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(TfConfig, ReadsJobsAndTask) {
  const TaskConfig config = ValueOrThrow(ParseTfConfig(
      R"({"cluster": {"chief": ["h0:1"], "worker": ["h1:1", "h2:1"], "ps": ["h3:1"]},
          "task": {"type": "worker", "index": 1}, "environment": "cloud"})"));
  EXPECT_EQ(config.cluster.AddressOf({"worker", 1}), "h2:1");
  EXPECT_EQ(config.environment, "cloud");
  EXPECT_FALSE(config.is_chief());
  EXPECT_EQ(config.TrainerRank(), 2);
  EXPECT_EQ(ToString(config.task), "/job:worker/task:1");
}

// As Kubeflow's operator writes it with enableDynamicWorker.
TEST(TfConfig, SparseClusterNamesOnlyWhatATaskUses) {
  const TaskConfig worker = ValueOrThrow(ParseTfConfig(
      R"({"sparseCluster":{"worker":{"3":"w3:2222"},"ps":["p0:2222"]},"task":{"type":"worker","index":3}})"));
  EXPECT_TRUE(worker.sparse);
  EXPECT_EQ(worker.cluster.AddressOf({"worker", 3}), "w3:2222");
  EXPECT_EQ(worker.cluster.AddressOf({"ps", 0}), "p0:2222");
  const TaskConfig ps = ValueOrThrow(ParseTfConfig(
      R"({"sparseCluster":{"worker":{},"ps":["p0:2222"]},"task":{"type":"ps","index":0}})"));
  EXPECT_TRUE(ps.sparse);
  EXPECT_EQ(ps.TrainerRank(), -1);
}

// The operator gives a ps its own address only, as a list of one.
TEST(TfConfig, SparseClusterOfAPsHasItsOwnAddress) {
  const TaskConfig ps = ValueOrThrow(ParseTfConfig(
      R"({"sparseCluster":{"worker":{},"ps":["p1:2222"]},"task":{"type":"ps","index":1}})"));
  EXPECT_EQ(ps.cluster.AddressOf({"ps", 1}), "p1:2222");
  EXPECT_EQ(ps.cluster.tasks().size(), 1U);
  EXPECT_FALSE(ps.is_chief());
  EXPECT_EQ(ps.cluster.Chief(), TaskId{});
  const TaskConfig again = ValueOrThrow(ParseTfConfig(ToTfConfig(ps)));
  EXPECT_TRUE(again.sparse);
  EXPECT_EQ(again.cluster, ps.cluster);
}

// Of tasks that are neither worker nor ps the operator tells nobody's address, and of a job without
// ps it writes null.
TEST(TfConfig, SparseClusterMayBeEmpty) {
  const TaskConfig chief = ValueOrThrow(ParseTfConfig(
      R"({"sparseCluster":{"worker":{},"ps":[]},"task":{"type":"chief","index":0}})"));
  EXPECT_TRUE(chief.sparse);
  EXPECT_TRUE(chief.cluster.tasks().empty());
  EXPECT_FALSE(chief.is_chief());
  const TaskConfig worker = ValueOrThrow(ParseTfConfig(
      R"({"sparseCluster":{"worker":{"2":"w2:2222"},"ps":null},"task":{"type":"worker","index":2}})"));
  EXPECT_EQ(worker.cluster.tasks().size(), 1U);
  EXPECT_THAT(
      std::string(MessageOf(
          ParseTfConfig(
              R"({"sparseCluster":{"worker":{"2":"w2:1"}},"task":{"type":"worker","index":1}})")
              .status())),
      HasSubstr("task.index is 1, but cluster.worker has the index 2"));
}

// As it writes the others; of one that runs alone it writes none.
TEST(TfConfig, AsKubeflowsOperatorWritesIt) {
  const TaskConfig config = ValueOrThrow(ParseTfConfig(
      R"({"cluster":{"chief":["tutti-chief-0.default.svc:2222"],"ps":["tutti-ps-0.default.svc:2222"],)"
      R"("worker":["tutti-worker-0.default.svc:2222"]},"task":{"type":"evaluator","index":0},)"
      R"("environment":"cloud"})"));
  EXPECT_FALSE(config.sparse);
  EXPECT_EQ(config.task.job, "evaluator");
  EXPECT_EQ(config.environment, "cloud");
}

TEST(TfConfig, SparseJobKeepsItsIndices) {
  const TaskConfig config = ValueOrThrow(ParseTfConfig(
      R"({"cluster": {"worker": {"3": "h3:1", "1": "h1:1"}}, "task": {"type": "worker", "index": 3}})"));
  EXPECT_EQ(config.TrainerRank(), 1);
  EXPECT_EQ(config.cluster.Chief(), (TaskId{"worker", 1}));
}

TEST(TfConfig, WithoutChiefTheFirstWorkerLeads) {
  const TaskConfig config = ValueOrThrow(
      ParseTfConfig(R"({"cluster": {"worker": ["h:1"]}, "task": {"type": "worker", "index": 0}})"));
  EXPECT_TRUE(config.is_chief());
}

TEST(TfConfig, EvaluatorStandsInsideOrOutside) {
  for (const char* cluster :
       {R"({"worker": ["h:1"]})", R"({"worker": ["h:1"], "evaluator": ["h:2"]})"}) {
    const TaskConfig config = ValueOrThrow(ParseTfConfig(
        fmt::format(R"({{"cluster": {}, "task": {{"type": "evaluator", "index": 0}}}})", cluster)));
    EXPECT_EQ(config.TrainerRank(), -1);
  }
}

TEST(TfConfig, WhatIsWrittenReadsBack) {
  for (
      const char* text :
      {R"({"cluster":{"chief":["a:1"],"worker":["[::1]:2"]},"task":{"type":"chief","index":0}})",
       R"({"cluster":{"worker":{"2":"a:1","5":"b:1"}},"task":{"type":"worker","index":5},"environment":"x"})"}) {
    EXPECT_EQ(ToTfConfig(ValueOrThrow(ParseTfConfig(text))), text);
  }
}

TEST(TfConfig, DeepNestingIsRefused) {
  const auto config = ParseTfConfig(std::string(100'000, '['));
  EXPECT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  const std::string closed = std::string(50'000, '[') + std::string(50'000, ']');
  EXPECT_THAT(std::string(MessageOf(ParseTfConfig(closed).status())), HasSubstr("nested deeper"));
}

TEST(ClusterFile, DeepNestingIsRefused) {
  const testing::TemporaryDirectory folder;
  const std::string path = folder.path() + "/cluster.toml";
  std::string tables;
  for (int i = 0; i < 50'000; ++i) tables += "a={";
  std::ofstream(path) << tables << std::string(50'000, '}');
  EXPECT_THAT(std::string(MessageOf(ReadClusterFile(path).status())),
              HasSubstr("cluster.toml:1: nested deeper than 32"));
}

TEST(ClusterSpec, FingerprintHasALineATask) {
  const ClusterSpec cluster = ValueOrThrow(
      ClusterSpec::Make({{"worker", {{0, "a:1"}, {2, "b:1"}}}, {"chief", {{0, "c:1"}}}}));
  EXPECT_EQ(cluster.Fingerprint(),
            (std::vector<std::string>{"cluster.chief[0]=c:1", "cluster.worker[0]=a:1",
                                      "cluster.worker[2]=b:1"}));
}

TEST(ClusterSpec, FingerprintOfVeryManyTasksIsShort) {
  const auto of = [](const std::string& last) {
    ClusterSpec::Jobs jobs;
    for (int i = 0; i < 20'000; ++i) jobs["worker"][i] = fmt::format("host{}:2222", i);
    jobs["worker"][20'000] = last;
    return ValueOrThrow(ClusterSpec::Make(std::move(jobs))).Fingerprint();
  };
  EXPECT_EQ(of("a:1"), of("a:1"));
  EXPECT_NE(of("a:1"), of("a:2"));
  EXPECT_EQ(of("a:1").front(), "cluster.tasks=20001");
}

struct Mistake {
  const char* text;
  const char* message;
};

class TfConfigMistake : public ::testing::TestWithParam<Mistake> {};

TEST_P(TfConfigMistake, NamesKeyFoundAndExpected) {
  const auto config = ParseTfConfig(GetParam().text);
  ASSERT_EQ(config.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(MessageOf(config.status())), HasSubstr(GetParam().message));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, TfConfigMistake,
    ::testing::Values(
        Mistake{"", "TF_CONFIG is set but empty"}, Mistake{" \n", "TF_CONFIG is set but empty"},
        Mistake{"{", "TF_CONFIG is not JSON: it ends too early, at byte 1: "},
        Mistake{"{} x", "TF_CONFIG is not JSON: at byte 4 of 4: "},
        Mistake{"\xff", "TF_CONFIG is not JSON"},
        Mistake{"[]", "TF_CONFIG is []; expected an object"},
        Mistake{"{}", "TF_CONFIG has no \"cluster\"; found nothing"},
        Mistake{R"({"clutser": {}})", "has no \"cluster\"; found \"clutser\""},
        Mistake{R"({"cluster": 3})", "cluster is 3; expected an object of jobs"},
        Mistake{R"({"cluster": {}})", "cluster is empty"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "cluster": {}})", "\"cluster\" twice"},
        Mistake{R"({"cluster": {"worker": "a:1"}})", "cluster.worker is \"a:1\"; expected a list"},
        Mistake{R"({"cluster": {"worker": []}})", "cluster.worker has no task"},
        Mistake{R"({"cluster": {"worker": [1]}})", "cluster.worker[0] is 1; expected a string"},
        Mistake{R"({"cluster": {"worker": ["a"]}})", "cluster.worker[0]: "},
        Mistake{R"({"cluster": {"worker": [""]}})", "cluster.worker[0]: "},
        Mistake{R"({"cluster": {"worker": ["a:0"]}})", "expected a port from 1 to 65535"},
        Mistake{R"({"cluster": {"worker": ["a:65536"]}})", "cluster.worker[0]: "},
        Mistake{R"({"cluster": {"worker": ["a:1", "a:1"]}})",
                "which is /job:worker/task:0 already"},
        Mistake{R"({"cluster": {"worker": ["a:1"], "ps": ["a:1"]}})", "every task needs its own"},
        Mistake{R"({"cluster": {"worker": {"x": "a:1"}}})",
                "has the key \"x\"; expected a task index"},
        Mistake{R"({"cluster": {"worker": {"01": "a:1"}}})", "has the key \"01\""},
        Mistake{R"({"cluster": {"worker": {"-1": "a:1"}}})", "has the key \"-1\""},
        Mistake{R"({"cluster": {"boss": ["a:1"]}})", "has the job \"boss\"; expected chief"},
        Mistake{R"({"cluster": {"master": ["a:1"]}})", "is called \"chief\" here"},
        Mistake{R"({"cluster": {"chief": ["a:1", "b:1"]}})",
                "cluster.chief has 2 tasks; expected one"},
        Mistake{R"({"cluster": {"worker": ["a:1"], "evaluator": ["b:1", "c:1"]}})",
                "cluster.evaluator has 2 tasks"},
        Mistake{R"({"cluster": {"ps": ["a:1"]}})", "neither chief nor worker"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}})", "TF_CONFIG has no \"task\""},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": 1})", "task is 1; expected an object"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"index": 0}})",
                "task has no \"type\""},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": 1, "index": 0}})",
                "task.type is 1; expected a string"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker"}})",
                "task has no \"index\"; found \"type\""},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": "0"}})",
                "task.index is \"0\"; expected an integer"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": -1}})",
                "task.index is -1; expected an integer"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0.5}})",
                "task.index is 0.5; expected an integer"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": true}})",
                "task.index is true"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 1}})",
                "task.index is 1, but cluster.worker has the index 0"},
        Mistake{R"({"cluster": {"worker": ["a:1"]}, "task": {"type": "chief", "index": 0}})",
                "task.type is \"chief\", which cluster does not have; it has worker"},
        Mistake{
            R"({"cluster": {"worker": ["a:1"]}, "environment": 1, "task": {"type": "worker", "index": 0}})",
            "environment is 1; expected a string"}));

}  // namespace
}  // namespace tutti
