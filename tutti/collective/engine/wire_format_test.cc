#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "tutti/collective/reduce/reduce.h"

namespace tutti::collective {
namespace {

// Numbers of every exponent, and the ones that rounding gets wrong: ties, the largest, the
// smallest, infinities.
std::vector<float> TellingFloats(size_t count) {
  std::vector<float> values = {0.0f,
                               -0.0f,
                               1.0f + 0x1p-8f,
                               1.0f + 3 * 0x1p-8f,
                               1.0f + 0x1p-11f,
                               1.0f + 3 * 0x1p-11f,
                               65504.0f,
                               65519.0f,
                               65520.0f,
                               0x1p-24f,
                               0x1p-25f,
                               0x1.8p-25f,
                               1e-40f,
                               std::numeric_limits<float>::max(),
                               -std::numeric_limits<float>::infinity(),
                               std::numeric_limits<float>::infinity()};
  std::mt19937 random(7);
  while (values.size() < count) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isnan(value)) values.push_back(value);
  }
  values.resize(count);
  return values;
}

uint16_t Packed(Wire wire, float value) {
  return wire == Wire::kBFloat16 ? BFloat16(value).bits : Float16(value).bits;
}

float Unpacked(Wire wire, uint16_t bits) {
  if (wire == Wire::kFloat16) return FloatFromFloat16Bits(bits);
  return std::bit_cast<float>(uint32_t{bits} << 16);
}

class WireFormatTest : public testing::TestWithParam<Wire> {};

TEST_P(WireFormatTest, PacksAndUnpacksAsTheElementTypesRound) {
  for (const size_t count : {0, 1, 3, 7, 8, 9, 16, 17, 33, 10007}) {
    const std::vector<float> values = TellingFloats(count);
    std::vector<uint16_t> packed(count + 1, 0x5a5a);
    Pack(GetParam(), values.data(), packed.data(), int64_t(count));
    std::vector<float> back(count + 1, 42.0f);
    Unpack(GetParam(), packed.data(), back.data(), int64_t(count));
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(packed[i], Packed(GetParam(), values[i])) << values[i];
      ASSERT_EQ(std::bit_cast<uint32_t>(back[i]),
                std::bit_cast<uint32_t>(Unpacked(GetParam(), packed[i])));
    }
    EXPECT_EQ(packed[count], 0x5a5a);
    EXPECT_EQ(back[count], 42.0f);
  }
}

TEST_P(WireFormatTest, NaNStaysNaN) {
  // A NaN whose telling bits lie in the half that is cut off.
  const std::vector<float> values(9, std::bit_cast<float>(0x7f800001u));
  std::vector<uint16_t> packed(values.size());
  std::vector<float> back(values.size());
  Pack(GetParam(), values.data(), packed.data(), int64_t(values.size()));
  Unpack(GetParam(), packed.data(), back.data(), int64_t(back.size()));
  for (const float value : back) EXPECT_TRUE(std::isnan(value));
}

TEST_P(WireFormatTest, UnpackReduceWorksInFloat) {
  constexpr size_t kCount = 43;
  const std::vector<float> values = TellingFloats(kCount);
  std::vector<uint16_t> packed(kCount);
  Pack(GetParam(), values.data(), packed.data(), kCount);
  for (const Reduction reduction :
       {Reduction::kSum, Reduction::kMean, Reduction::kMin, Reduction::kMax, Reduction::kProduct}) {
    std::vector<float> target(kCount + 1, 1.5f);
    UnpackReduce(reduction, GetParam(), packed.data(), target.data(), kCount);
    for (size_t i = 0; i < kCount; ++i) {
      const float other = Unpacked(GetParam(), packed[i]);
      const float expected = reduction == Reduction::kMin       ? std::min(1.5f, other)
                             : reduction == Reduction::kMax     ? std::max(1.5f, other)
                             : reduction == Reduction::kProduct ? 1.5f * other
                                                                : 1.5f + other;
      ASSERT_EQ(target[i], expected) << values[i];
    }
    EXPECT_EQ(target[kCount], 1.5f);
  }
}

INSTANTIATE_TEST_SUITE_P(All, WireFormatTest, testing::Values(Wire::kBFloat16, Wire::kFloat16),
                         [](const auto& info) {
                           return std::string(info.param == Wire::kBFloat16 ? "bfloat16"
                                                                            : "float16");
                         });

TEST(WireFormat, AsItIsCopies) {
  const std::vector<float> values = TellingFloats(19);
  std::vector<float> packed(19), back(19), sum = values;
  Pack(Wire::kAsIs, values.data(), packed.data(), 19);
  Unpack(Wire::kAsIs, packed.data(), back.data(), 19);
  UnpackReduce(Reduction::kMax, Wire::kAsIs, packed.data(), sum.data(), 19);
  EXPECT_EQ(back, values);
  EXPECT_EQ(sum, values);
}

}  // namespace
}  // namespace tutti::collective
