// Metrics against plain computations over all samples at once, whatever the batches and workers.
#include "tutti/train/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tutti/client/session.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/sweep.h"
#include "tutti/train/metrics/auc.h"
#include "tutti/train/metrics/metric_states.h"
#include "tutti/train/strategies/communicator_peers.h"
#include "tutti/train/strategies/workers_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

struct Samples {
  std::vector<float> scores;
  std::vector<float> labels;
};

Samples RandomSamples(size_t count, std::mt19937& random) {
  Samples samples;
  std::normal_distribution<float> noise;
  for (size_t i = 0; i < count; ++i) {
    const bool yes = random() % 3 == 0;
    samples.labels.push_back(yes ? 1 : 0);
    samples.scores.push_back(1 / (1 + std::exp(-noise(random) - (yes ? 0.7f : 0))));
  }
  return samples;
}

// By counting every pair through a sort of all samples.
double SortedAuc(const Samples& samples) {
  std::vector<size_t> order(samples.scores.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return samples.scores[a] < samples.scores[b]; });
  double below = 0, pairs = 0, positives = 0;
  for (size_t i = 0; i < order.size();) {
    double here[2] = {};
    const float score = samples.scores[order[i]];
    for (; i < order.size() && samples.scores[order[i]] == score; ++i) {
      ++here[samples.labels[order[i]] > 0 ? 1 : 0];
    }
    pairs += here[1] * (below + here[0] / 2);
    below += here[0];
    positives += here[1];
  }
  return pairs / (below * positives);
}

class MetricsTest : public ::testing::Test {
 protected:
  MetricsTest() {
    RegisterCpuKernels();
    scores = Placeholder(graph, kFloat32, {-1}, "scores");
    labels = Placeholder(graph, kFloat32, {-1}, "labels");
  }

  // The samples in batches of random sizes.
  void AddAll(const Samples& samples, std::mt19937& random, MetricStates& states) {
    Session session(graph);
    for (size_t begin = 0; begin < samples.scores.size();) {
      const size_t size = std::min<size_t>(1 + random() % 100, samples.scores.size() - begin);
      const Shape shape{int64_t(size)};
      const Feed feeds[] = {
          {scores, Tensor::Of<float>(shape, std::span(samples.scores).subspan(begin, size))},
          {labels, Tensor::Of<float>(shape, std::span(samples.labels).subspan(begin, size))}};
      states.Add(session.Run(feeds, states.outputs()), int64_t(size));
      begin += size;
    }
  }
  std::map<std::string, Metric> All() {
    return {{"accuracy", metrics::BinaryAccuracy(scores, labels)},
            {"precision", metrics::Precision(scores, labels)},
            {"recall", metrics::Recall(scores, labels)},
            {"auc", metrics::Auc(scores, labels)},
            {"log_loss", metrics::LogLoss(scores, labels)},
            {"mean", metrics::Mean(scores)},
            {"batch_mean", Mean(scores)},
            {"rmse", metrics::RootMeanSquaredError(scores, labels)},
            {"largest", Metric(
                            {Max(scores)}, [](std::span<const double> s) { return s[0]; },
                            [](std::vector<double>& s, std::span<const double> other) {
                              if (s.empty()) s = {other[0]};
                              s[0] = std::max(s[0], other[0]);
                            })}};
  }
  static void ExpectRight(const Metrics& found, const Samples& samples) {
    double right = 0, hits = 0, predicted = 0, actual = 0, log_loss = 0, sum = 0, squares = 0;
    double largest = 0;
    for (size_t i = 0; i < samples.scores.size(); ++i) {
      const double p = samples.scores[i];
      const bool yes = samples.labels[i] > 0, said = p >= 0.5;
      right += yes == said, hits += yes && said, predicted += said, actual += yes;
      log_loss -= std::log(yes ? p : 1 - p);
      sum += p;
      squares += (p - yes) * (p - yes);
      largest = std::max(largest, p);
    }
    const auto n = double(samples.scores.size());
    EXPECT_NEAR(found.at("accuracy"), right / n, 1e-12);
    EXPECT_NEAR(found.at("precision"), hits / predicted, 1e-12);
    EXPECT_NEAR(found.at("recall"), hits / actual, 1e-12);
    EXPECT_NEAR(found.at("log_loss"), log_loss / n, 1e-6);
    EXPECT_NEAR(found.at("mean"), sum / n, 1e-6);
    EXPECT_NEAR(found.at("batch_mean"), sum / n, 1e-6);
    EXPECT_NEAR(found.at("rmse"), std::sqrt(squares / n), 1e-6);
    EXPECT_NEAR(found.at("auc"), SortedAuc(samples), 1e-12);
    EXPECT_EQ(found.at("largest"), largest);
  }

  Graph graph;
  Output scores, labels;
};

TEST_F(MetricsTest, DoNotDependOnBatches) {
  std::mt19937 random(uint32_t(testing::SweepSeed()));
  const Samples samples = RandomSamples(2000, random);
  MetricStates states(All());
  AddAll(samples, random, states);
  ExpectRight(states.Finish(), samples);
}

TEST_F(MetricsTest, AreRightOverUnevenWorkers) {
  std::mt19937 random(uint32_t(testing::SweepSeed()));
  const Samples samples = RandomSamples(997, random);
  const size_t ends[] = {0, 10, 10, 997};  // the second worker has none
  std::vector<MetricStates> parts;
  for (int r = 0; r < 3; ++r) {
    Samples part;
    for (size_t i = ends[r]; i < ends[r + 1]; ++i) {
      part.scores.push_back(samples.scores[i]);
      part.labels.push_back(samples.labels[i]);
    }
    parts.emplace_back(All());
    AddAll(part, random, parts.back());
  }
  std::vector<Metrics> found(3);
  const auto errors = OnRanks(3, [&](int r, std::shared_ptr<collective::Communicator> c) {
    parts[size_t(r)].Merge(*MakeCommunicatorPeers(c));
    found[size_t(r)] = parts[size_t(r)].Finish();
  });
  for (int r = 0; r < 3; ++r) {
    EXPECT_EQ(errors[size_t(r)], "");
    ExpectRight(found[size_t(r)], samples);
    EXPECT_EQ(found[size_t(r)], found[0]);
  }
}

TEST_F(MetricsTest, ClassificationCountsPositionsNotSamples) {
  const Output logits = Placeholder(graph, kFloat32, {-1, 2, 3}, "logits");
  const Output classes = Placeholder(graph, kInt32, {-1, 2}, "classes");
  MetricStates states({{"accuracy", metrics::Accuracy(logits, classes)},
                       {"top_2", metrics::TopKAccuracy(logits, classes, 2)}});
  Session session(graph);
  const Feed feeds[] = {
      {logits, Tensor::Of<float>({2, 2, 3}, {3, 2, 1, 3, 2, 1, 1, 2, 3, 3, 1, 2})},
      {classes, Tensor::Of<int32_t>({2, 2}, {0, 1, 0, 2})}};
  states.Add(session.Run(feeds, states.outputs()), 2);
  EXPECT_EQ(states.Finish().at("accuracy"), 0.25);
  EXPECT_EQ(states.Finish().at("top_2"), 0.75);
}

TEST_F(MetricsTest, NothingPredictedIsNoDivisionByZero) {
  Session session(graph);
  MetricStates states(
      {{"precision", metrics::Precision(scores, labels)}, {"auc", metrics::Auc(scores, labels)}});
  const Feed feeds[] = {{scores, Tensor::Vector<float>({0.1f, 0.2f})},
                        {labels, Tensor::Vector<float>({1, 1})}};
  states.Add(session.Run(feeds, states.outputs()), 2);
  EXPECT_EQ(states.Finish().at("precision"), 0);
  EXPECT_TRUE(std::isnan(states.Finish().at("auc")));
}

TEST_F(MetricsTest, StatesOfSeveralSizesNeedAMergeFunction) {
  Session session(graph);
  MetricStates states({{"all", Metric({scores}, [](std::span<const double> s) { return s[0]; })}});
  states.Add(std::vector<Tensor>{Tensor::Vector<float>({1, 2})}, 2);
  try {
    states.Add(std::vector<Tensor>{Tensor::Vector<float>({1})}, 1);
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("metric \"all\": the state of a batch has 1 numbers, that "
                                        "of an earlier one 2; states of several sizes need a merge "
                                        "function"));
  }
}

// Many more distinct scores than a state keeps: of several distributions, and sorted, which is the
// worst order for joining.
TEST(AucTest, StaysCloseToASortedComputation) {
  std::mt19937 random(uint32_t(testing::SweepSeed()));
  for (const int shape : {0, 1, 2, 3}) {
    Samples samples = RandomSamples(600'000, random);
    for (float& score : samples.scores) {
      if (shape == 1) score = 1 + score * 1e-5f;              // close together
      if (shape == 2) score = std::exp(40 * (score - 0.5f));  // far apart
    }
    if (shape == 3) {
      std::vector<size_t> order(samples.scores.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::sort(order.begin(), order.end(),
                [&](size_t a, size_t b) { return samples.scores[a] < samples.scores[b]; });
      Samples sorted;
      for (const size_t i : order) {
        sorted.scores.push_back(samples.scores[i]);
        sorted.labels.push_back(samples.labels[i]);
      }
      samples = std::move(sorted);
    }
    std::vector<double> state, batch;
    for (size_t i = 0; i < samples.scores.size(); ++i) {
      const double yes = samples.labels[i];
      batch.insert(batch.end(), {samples.scores[i], yes, 1 - yes});
      if (batch.size() < 3000) continue;
      metrics::MergeAuc(state, batch);
      batch.clear();
    }
    metrics::MergeAuc(state, batch);
    EXPECT_LE(state.size() / 3, 2 * metrics::kAucScores);
    const double error = std::abs(metrics::FinishAuc(state) - SortedAuc(samples));
    EXPECT_LT(error, 1e-3);
    RecordProperty("error of shape " + std::to_string(shape), std::to_string(error));
  }
}

}  // namespace
}  // namespace tutti
