#include "tutti/collective/reduce/reduce.h"

#include <gtest/gtest.h>
#include <hwy/highway.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace tutti::collective {
namespace {

constexpr DType kDTypes[] = {kFloat16, kBFloat16, kFloat32, kFloat64, kInt32, kInt64};
constexpr Reduction kReductions[] = {Reduction::kSum, Reduction::kMean, Reduction::kMin,
                                     Reduction::kMax, Reduction::kProduct};
constexpr int64_t kCounts[] = {0,  1,  2,  3,  4,  5,  7,  8,   9,   15,
                               16, 17, 31, 32, 33, 63, 65, 100, 1003};

template <typename Body>
void ForType(DType dtype, Body&& body) {
  switch (dtype) {
    case kFloat16:
      return body(Float16());
    case kBFloat16:
      return body(BFloat16());
    case kFloat32:
      return body(float());
    case kFloat64:
      return body(double());
    case kInt32:
      return body(int32_t());
    default:
      return body(int64_t());
  }
}

// Every vector instruction set that this machine has, one after the other.
template <typename Body>
void ForEachTarget(Body&& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

// What a type is computed in: 16-bit ones in float, integers without a sign so that they wrap.
template <typename T>
struct Work {
  using type = std::conditional_t<sizeof(T) == 2, float, T>;
};

template <typename W>
W Apply(Reduction reduction, W a, W b) {
  switch (reduction) {
    case Reduction::kMin:
      return b < a || b != b ? b : a;
    case Reduction::kMax:
      return b > a || b != b ? b : a;
    default:
      break;
  }
  const bool product = reduction == Reduction::kProduct;
  if constexpr (std::is_integral_v<W>) {
    const uint64_t x = static_cast<uint64_t>(a);
    const uint64_t y = static_cast<uint64_t>(b);
    return static_cast<W>(product ? x * y : x + y);
  } else {
    return product ? a * b : a + b;
  }
}

// The oracle: element by element, in the order of the sources, rounded once.
template <typename T>
T Expected(Reduction reduction, const std::vector<T>& values, int mean_of) {
  using W = typename Work<T>::type;
  W result = static_cast<W>(values[0]);
  for (size_t s = 1; s < values.size(); ++s) {
    result = Apply(reduction, result, static_cast<W>(values[s]));
  }
  if (mean_of > 1) {
    if constexpr (std::is_integral_v<W>) {
      result = static_cast<W>(result / mean_of);
    } else {
      result = result * static_cast<W>(1.0 / mean_of);
    }
  }
  return static_cast<T>(result);
}

template <typename T>
T RandomElement(std::mt19937_64& random) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(random() >> (random() % 64));  // of all magnitudes, so that some wrap
  } else {
    return static_cast<T>(std::normal_distribution<float>(0, 4)(random));
  }
}

template <typename T>
bool SameBits(const T& a, const T& b) {
  return std::memcmp(&a, &b, sizeof(T)) == 0;
}

// An array at an odd place in memory, with guards around it that nobody may touch.
template <typename T>
class Guarded {
 public:
  Guarded(int64_t count, int offset) : offset_(offset), values_(size_t(count + 2 * kGuard)) {
    std::memset(static_cast<void*>(values_.data()), 0x5a, values_.size() * sizeof(T));
  }
  T* data() { return values_.data() + offset_; }
  bool GuardsIntact(int64_t count) const {
    std::vector<T> pattern(1);
    std::memset(static_cast<void*>(pattern.data()), 0x5a, sizeof(T));
    for (int64_t i = 0; i < int64_t(values_.size()); ++i) {
      if (i >= offset_ && i < offset_ + count) continue;
      if (!SameBits(values_[size_t(i)], pattern[0])) return false;
    }
    return true;
  }

 private:
  static constexpr int kGuard = 40;
  int offset_;
  std::vector<T> values_;
};

template <typename T>
void CheckReduceToAll(Reduction reduction, int64_t count, int n_sources, int n_targets,
                      std::mt19937_64& random) {
  std::vector<Guarded<T>> arrays;
  for (int a = 0; a < std::max(n_sources, n_targets); ++a) arrays.emplace_back(count, (3 * a) % 7);
  std::vector<T> expected;
  for (int64_t i = 0; i < count; ++i) {
    std::vector<T> values;
    for (int s = 0; s < n_sources; ++s) {
      values.push_back(RandomElement<T>(random));
      arrays[size_t(s)].data()[i] = values.back();
    }
    expected.push_back(Expected(reduction, values, reduction == Reduction::kMean ? n_sources : 1));
  }
  std::vector<const void*> sources;
  std::vector<void*> targets;
  for (int s = 0; s < n_sources; ++s) sources.push_back(arrays[size_t(s)].data());
  for (int t = 0; t < n_targets; ++t) targets.push_back(arrays[size_t(t)].data());
  ReduceToAll(reduction, DTypeOf<T>(), sources.data(), n_sources, targets.data(), n_targets, count,
              reduction == Reduction::kMean ? 1.0 / n_sources : 1.0);
  for (int t = 0; t < n_targets; ++t) {
    for (int64_t i = 0; i < count; ++i) {
      ASSERT_TRUE(SameBits(arrays[size_t(t)].data()[i], expected[size_t(i)]))
          << "target " << t << ", element " << i;
    }
  }
  for (const auto& array : arrays) ASSERT_TRUE(array.GuardsIntact(count));
}

class ReduceTest : public testing::TestWithParam<DType> {
 private:
  uint64_t seed_ = std::random_device()();

 protected:
  std::mt19937_64 random_{seed_};

 private:
  testing::ScopedTrace trace_{__FILE__, __LINE__, "seed " + std::to_string(seed_)};
};

TEST_P(ReduceTest, ReduceToAllGivesTheBitsOfAPlainLoop) {
  const auto check = [&](auto example) {
    using T = decltype(example);
    for (const Reduction reduction : kReductions) {
      for (const int64_t count : kCounts) {
        SCOPED_TRACE(testing::Message() << "reduction " << int(reduction) << ", count " << count);
        for (const int n : {1, 2, 3, 4, 5, 8, 11}) {
          CheckReduceToAll<T>(reduction, count, n, n, random_);
        }
        CheckReduceToAll<T>(reduction, count, 2, 1, random_);
        CheckReduceToAll<T>(reduction, count, 4, 1, random_);
        CheckReduceToAll<T>(reduction, count, 2, 3, random_);
        CheckReduceToAll<T>(reduction, count, 3, 0, random_);
      }
    }
  };
  ForEachTarget([&] { ForType(GetParam(), check); });
}

TEST_P(ReduceTest, ReduceIntoAddsTheSecondToTheFirstAndMeanOnlySums) {
  ForType(GetParam(), [&](auto example) {
    using T = decltype(example);
    for (const Reduction reduction : kReductions) {
      for (const int64_t count : kCounts) {
        Guarded<T> target(count, 1), source(count, 4);
        std::vector<T> expected;
        for (int64_t i = 0; i < count; ++i) {
          target.data()[i] = RandomElement<T>(random_);
          source.data()[i] = RandomElement<T>(random_);
          expected.push_back(Expected<T>(reduction, {target.data()[i], source.data()[i]}, 1));
        }
        ReduceInto(reduction, GetParam(), target.data(), source.data(), count);
        for (int64_t i = 0; i < count; ++i) {
          ASSERT_TRUE(SameBits(target.data()[i], expected[size_t(i)])) << "element " << i;
        }
        ASSERT_TRUE(target.GuardsIntact(count));
      }
    }
  });
}

TEST_P(ReduceTest, ASplitIntoCallsChangesNoBit) {
  ForType(GetParam(), [&](auto example) {
    using T = decltype(example);
    constexpr int64_t kCount = 1537;
    for (const Reduction reduction : kReductions) {
      std::vector<std::vector<T>> whole(3, std::vector<T>(kCount));
      for (auto& array : whole) {
        for (T& element : array) element = RandomElement<T>(random_);
      }
      auto pieces = whole;
      const auto reduce = [&](std::vector<std::vector<T>>& arrays, int64_t from, int64_t to) {
        const void* sources[] = {&arrays[0][size_t(from)], &arrays[1][size_t(from)],
                                 &arrays[2][size_t(from)]};
        void* targets[] = {&arrays[0][size_t(from)], &arrays[2][size_t(from)]};
        ReduceToAll(reduction, GetParam(), sources, 3, targets, 2, to - from, 1.0 / 3);
      };
      reduce(whole, 0, kCount);
      for (int64_t from = 0; from < kCount;) {
        const int64_t to = std::min<int64_t>(kCount, from + 1 + int64_t(random_() % 90));
        reduce(pieces, from, to);
        from = to;
      }
      for (size_t a = 0; a < whole.size(); ++a) {
        EXPECT_EQ(std::memcmp(whole[a].data(), pieces[a].data(), kCount * sizeof(T)), 0);
      }
    }
  });
}

TEST_P(ReduceTest, ScaleMultipliesAndDividesIntegers) {
  ForType(GetParam(), [&](auto example) {
    using T = decltype(example);
    for (const int64_t count : kCounts) {
      Guarded<T> data(count, 3);
      std::vector<T> expected;
      for (int64_t i = 0; i < count; ++i) {
        data.data()[i] = RandomElement<T>(random_);
        expected.push_back(Expected<T>(Reduction::kSum, {data.data()[i]}, 49));
      }
      Scale(GetParam(), data.data(), count, 1.0 / 49);
      for (int64_t i = 0; i < count; ++i) {
        ASSERT_TRUE(SameBits(data.data()[i], expected[size_t(i)])) << "element " << i;
      }
      ASSERT_TRUE(data.GuardsIntact(count));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, ReduceTest, testing::ValuesIn(kDTypes),
                         [](const auto& info) { return std::string(NameOf(info.param)); });

TEST(Reduce, KnowsWhichTypesItCan) {
  for (const DType dtype : kAllDTypes) {
    EXPECT_EQ(CanReduce(dtype), std::ranges::find(kDTypes, dtype) != std::end(kDTypes));
  }
  EXPECT_FALSE(CanReduce(DType::kInvalid));
}

template <typename T>
T ReduceOne(Reduction reduction, std::vector<T> values, double scale = 1) {
  std::vector<const void*> sources;
  for (const T& value : values) sources.push_back(&value);
  T result{};
  void* target = &result;
  ReduceToAll(reduction, DTypeOf<T>(), sources.data(), int(sources.size()), &target, 1, 1, scale);
  return result;
}

TEST(Reduce, MinAndMaxPassNaNOnWhereverItStands) {
  for (const DType dtype : {kFloat16, kBFloat16, kFloat32, kFloat64}) {
    ForType(dtype, [&](auto example) {
      using T = decltype(example);
      if constexpr (!std::is_integral_v<T>) {
        const T nan = T(std::numeric_limits<float>::quiet_NaN());
        const T infinity = T(std::numeric_limits<float>::infinity());
        for (const Reduction reduction : {Reduction::kMin, Reduction::kMax}) {
          for (size_t place = 0; place < 3; ++place) {
            std::vector<T> values(3, T(1.0f));
            values[place] = nan;
            EXPECT_TRUE(std::isnan(double(float(ReduceOne(reduction, values)))));
          }
        }
        EXPECT_EQ(float(ReduceOne<T>(Reduction::kMax, {T(1.0f), infinity})),
                  std::numeric_limits<float>::infinity());
        EXPECT_EQ(float(ReduceOne<T>(Reduction::kMin, {infinity, T(-2.0f)})), -2.0f);
        EXPECT_TRUE(std::isnan(
            double(float(ReduceOne<T>(Reduction::kSum, {infinity, T(-float(infinity))})))));
      }
    });
  }
}

TEST(Reduce, SixteenBitSumsAreMadeInFloatAndRoundedOnce) {
  // One by one, each quarter unit in the last place would be lost.
  EXPECT_EQ(
      float(ReduceOne<Float16>(
          Reduction::kSum, std::vector<Float16>{Float16(1.0f), Float16(0x1p-12f), Float16(0x1p-12f),
                                                Float16(0x1p-12f), Float16(0x1p-12f)})),
      1.0f + 0x1p-10f * 1.0f);
  EXPECT_EQ(float(ReduceOne<BFloat16>(Reduction::kSum,
                                      std::vector<BFloat16>{BFloat16(1.0f), BFloat16(0x1p-9f),
                                                            BFloat16(0x1p-9f), BFloat16(0x1p-9f)})),
            1.0f + 0x1p-7f);
  // The sum of the mean may be larger than the type can hold.
  EXPECT_EQ(
      float(ReduceOne<Float16>(Reduction::kMean, {Float16(60000.0f), Float16(60000.0f)}, 0.5)),
      float(Float16(60000.0f)));
  EXPECT_TRUE(std::isinf(
      float(ReduceOne<Float16>(Reduction::kSum, {Float16(60000.0f), Float16(60000.0f)}))));
}

TEST(Reduce, IntegersWrapAndTheirMeanTruncatesTowardsZero) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  EXPECT_EQ(ReduceOne<int64_t>(Reduction::kSum, {kMost, 1}), kLeast);
  EXPECT_EQ(ReduceOne<int64_t>(Reduction::kProduct, {kMost, 3}), kMost - 2);
  EXPECT_EQ(ReduceOne<int64_t>(Reduction::kMin, {kMost, kLeast}), kLeast);
  EXPECT_EQ(ReduceOne<int32_t>(Reduction::kSum, {INT32_MAX, 1}), INT32_MIN);
  EXPECT_EQ(ReduceOne<int32_t>(Reduction::kProduct, {1 << 20, 1 << 12}), 0);
  EXPECT_EQ(ReduceOne<int32_t>(Reduction::kMean, {-4, -3}, 0.5), -3);
  EXPECT_EQ(ReduceOne<int32_t>(Reduction::kMean, {4, 3}, 0.5), 3);
  // No quotient passes through a fraction: 49 * (1.0 / 49) is below 1, and 2^53 + 1 is no double.
  EXPECT_EQ(ReduceOne<int64_t>(Reduction::kMean, {49}, 1.0 / 49), 1);
  EXPECT_EQ(ReduceOne<int64_t>(Reduction::kMean, {(int64_t{1} << 54) + 2, 0}, 0.5),
            (int64_t{1} << 53) + 1);
}

TEST(Reduce, SumsComeCloseToThoseInDouble) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int n = 1; n <= 16; ++n) {
    std::vector<float> values;
    double sum = 0, magnitude = 0;
    for (int s = 0; s < n; ++s) {
      values.push_back(RandomElement<float>(random));
      sum += double(values.back());
      magnitude += std::abs(double(values.back()));
    }
    const float mean = ReduceOne<float>(Reduction::kMean, values, 1.0 / n);
    EXPECT_NEAR(mean, sum / n, n * 0x1p-23 * magnitude / n);
  }
}

}  // namespace
}  // namespace tutti::collective
