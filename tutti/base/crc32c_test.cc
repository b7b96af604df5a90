#include "tutti/base/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace tutti {
namespace {

// The check value of the catalogue of parametrised CRC algorithms.
TEST(Crc32cTest, IsThatOfCastagnoli) {
  const std::string_view digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(Crc32c(bytes), 0xe3069283u);
  EXPECT_EQ(Crc32c(bytes.subspan(4), Crc32c(bytes.first(4))), 0xe3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32cTest, PartsCombineToTheWhole) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::byte> bytes(random() % 5000);
    for (std::byte& byte : bytes) byte = std::byte(random());
    const size_t cut = bytes.empty() ? 0 : random() % (bytes.size() + 1);
    const std::span<const std::byte> all = bytes;
    EXPECT_EQ(CombineCrc32c(Crc32c(all.first(cut)), Crc32c(all.subspan(cut)), all.size() - cut),
              Crc32c(all));
  }
}

}  // namespace
}  // namespace tutti
