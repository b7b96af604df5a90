#include "tutti/graph/ops/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/autodiff/gradients.h"
#include "tutti/graph/ops/source.h"
#include "tutti/kernels/philox.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/kernel_runner.h"

namespace tutti {
namespace {

using testing::KernelChoice;
using testing::KernelRunner;

// The vectors that come with the paper's own implementation.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(Philox::Mix({0, 0, 0, 0}, 0, 0),
            (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox::Mix({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, 0xffffffff, 0xffffffff),
            (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox::Mix({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

class RandomTest : public ::testing::TestWithParam<KernelChoice> {
 protected:
  RandomTest() { RegisterCpuKernels(); }

  std::vector<float> Values(Output y, int64_t step = 0, int cores = 1) {
    KernelRunner runner(GetParam(), cores);
    runner.set_random_step(step);
    const auto result = runner.Run({}, {y});
    if (!result.ok()) {
      ADD_FAILURE() << MessageOf(result.status());
      return {};
    }
    const auto values = (*result)[0].values<float>();
    return {values.begin(), values.end()};
  }

  Graph graph_;
  const std::vector<float> ones_ = std::vector<float>(10007, 1);
};

struct Moments {
  double mean = 0;
  double variance = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  for (const float v : values) m.mean += v;
  m.mean /= double(values.size());
  for (const float v : values) m.variance += (v - m.mean) * (v - m.mean);
  m.variance /= double(values.size());
  return m;
}

// The largest distance between the share of values below v and the distribution's (Kolmogorov and
// Smirnov); for n values of the distribution it is rarely more than 2 / sqrt(n).
template <typename Cumulative>
double Distance(std::vector<float> values, const Cumulative& cumulative) {
  std::sort(values.begin(), values.end());
  double distance = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    distance = std::max(distance, std::abs((double(i) + 0.5) / double(values.size()) -
                                           cumulative(double(values[i]))));
  }
  return distance;
}

double NormalCumulative(double z) { return 0.5 * std::erfc(-z / std::sqrt(2.0)); }

constexpr int64_t kMany = 100003;

TEST_P(RandomTest, UniformIsEven) {
  const auto values = Values(RandomUniform(graph_, {kMany}, {.lo = -1, .hi = 3}));
  EXPECT_LT(Distance(values, [](double v) { return (v + 1) / 4; }), 2 / std::sqrt(kMany));
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 3);
}

TEST_P(RandomTest, NormalIsNormal) {
  const auto values = Values(RandomNormal(graph_, {kMany}, {.mean = 2, .stddev = 3}));
  EXPECT_LT(Distance(values, [](double v) { return NormalCumulative((v - 2) / 3); }),
            2 / std::sqrt(kMany));
  const Moments m = MomentsOf(values);
  EXPECT_NEAR(m.mean, 2, 0.05);
  EXPECT_NEAR(m.variance, 9, 0.2);
}

TEST_P(RandomTest, TruncatedNormalHasNoTails) {
  const auto values = Values(TruncatedNormal(graph_, {kMany}, {.mean = 1, .stddev = 2}));
  const double low = NormalCumulative(-2);
  EXPECT_LT(
      Distance(values,
               [&](double v) { return (NormalCumulative((v - 1) / 2) - low) / (1 - 2 * low); }),
      2 / std::sqrt(kMany));
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -3.0001f);
  EXPECT_LE(*std::max_element(values.begin(), values.end()), 5.0001f);
}

TEST_P(RandomTest, NumbersDependOnSeedsAndStepAlone) {
  const auto uniform = [&](int64_t seed, int64_t node_seed) {
    return RandomUniform(graph_, {5001}, {.random = {.seed = seed, .node_seed = node_seed}});
  };
  const auto first = Values(uniform(1, 2));
  EXPECT_EQ(first, Values(uniform(1, 2)));
  EXPECT_EQ(first, Values(uniform(1, 2), 0, 2)) << "on two cores";
  EXPECT_NE(first, Values(uniform(1, 2), 1)) << "in another step";
  EXPECT_NE(first, Values(uniform(2, 2)));
  EXPECT_NE(first, Values(uniform(1, 3)));
  // A given step stands in place of the session's.
  const RandomUniformOptions given{
      .random = {.seed = 1, .node_seed = 2, .step = Constant(graph_, int64_t{0})}};
  EXPECT_EQ(first, Values(RandomUniform(graph_, {5001}, given), 77));
  // Nodes that are given no seed of their own differ.
  EXPECT_NE(Values(RandomUniform(graph_, {9})), Values(RandomUniform(graph_, {9})));
}

TEST_P(RandomTest, ShuffleMovesRowsAndItsInverseBringsThemBack) {
  std::vector<float> rows(200);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = float(i / 2);
  const Output x = Constant(graph_, Tensor::Of<float>({100, 2}, std::span<const float>(rows)));
  const RandomSeed seed{.seed = 5, .node_seed = 6};
  const Output shuffled = Shuffle(x, {.random = seed});
  const auto values = Values(shuffled);
  EXPECT_NE(values, rows);
  for (size_t i = 0; i < values.size(); i += 2) EXPECT_EQ(values[i], values[i + 1]);
  EXPECT_EQ(Values(Shuffle(shuffled, {.inverse = true, .random = seed})), rows);
}

TEST_P(RandomTest, DropoutIsTheSameHoweverTheBatchIsDivided) {
  const Output ones = Constant(graph_, Tensor::Of<float>({10007}, std::span<const float>(ones_)));
  const RandomSeed seed{.seed = 3, .node_seed = 4};
  const auto whole = Values(Dropout(ones, 0.3, {.random = seed}), 9);
  double dropped = 0;
  for (const float v : whole) {
    EXPECT_TRUE(v == 0 || std::abs(v - 1 / 0.7f) < 1e-6) << v;
    dropped += v == 0;
  }
  EXPECT_NEAR(dropped / 10007, 0.3, 0.02);
  // Elements 3333 to 6665, as another worker would have them.
  const Output part =
      Constant(graph_, Tensor::Of<float>({3333}, std::span<const float>(ones_).first(3333)));
  const auto middle =
      Values(Dropout(part, 0.3, {.random = seed, .offset = Constant(graph_, int64_t{3333})}), 9, 2);
  EXPECT_TRUE(std::equal(middle.begin(), middle.end(), whole.begin() + 3333));
}

TEST_P(RandomTest, DropoutsGradientHasTheSameMask) {
  const Output x =
      Constant(graph_, Tensor::Of<float>({1000}, std::span<const float>(ones_).first(1000)));
  const Output y = Dropout(x, 0.5);
  EXPECT_EQ(Values(y, 11), Values(Gradients(y, {x})[0], 11));
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomTest,
                         ::testing::Values(KernelChoice::kReference, KernelChoice::kCpu));

}  // namespace
}  // namespace tutti
