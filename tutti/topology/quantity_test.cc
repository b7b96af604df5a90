#include "tutti/topology/quantity.h"

#include <gtest/gtest.h>

#include "tutti/base/status.h"

namespace tutti::topology {
namespace {

TEST(Quantity, ReadsBytesInPowersOf1000And1024) {
  EXPECT_EQ(*ParseBytes("4"), 4);
  EXPECT_EQ(*ParseBytes("0"), 0);
  EXPECT_EQ(*ParseBytes("64K"), 64'000);
  EXPECT_EQ(*ParseBytes("64k"), 64'000);
  EXPECT_EQ(*ParseBytes("1.2G"), 1'200'000'000);
  EXPECT_EQ(*ParseBytes("1.2 GB"), 1'200'000'000);
  EXPECT_EQ(*ParseBytes("16MiB"), 16 << 20);
  EXPECT_EQ(*ParseBytes("1Ki"), 1024);
  EXPECT_EQ(*ParseBytes("0.7TB"), 700'000'000'000);
}

TEST(Quantity, RefusesWhatIsNoNumberOfBytes) {
  for (const char* text : {"", "G", "-1", "1.5", "1.2345K5", "1e400", "nan", "inf", "4 bytes",
                           "1KBB", "1  K", "10Gbit", "1.0001K"}) {
    EXPECT_FALSE(ParseBytes(text).ok()) << text;
  }
  EXPECT_EQ(MessageOf(ParseBytes("fast").status()),
            "\"fast\" is not a number of bytes such as 4, 64K, 1.2GB or 16MiB");
  EXPECT_EQ(MessageOf(ParseBytes("1.5").status()),
            "\"1.5\" is not a whole number; expected a number of bytes such as 4, 64K, 1.2GB or "
            "16MiB");
  EXPECT_EQ(MessageOf(ParseBytes("10000P").status()),
            "\"10000P\" is too large; at most 2^63 - 1 can be counted");
}

TEST(Quantity, ReadsCounts) {
  EXPECT_EQ(*ParseCount("175G"), 175'000'000'000);
  EXPECT_EQ(MessageOf(ParseCount("4B").status()), "\"4B\" is not a count such as 1000 or 175G");
}

TEST(Quantity, ReadsRatesInBitsAndBytes) {
  EXPECT_DOUBLE_EQ(*ParseRate("25Gbit/s"), 25e9 / 8);
  EXPECT_DOUBLE_EQ(*ParseRate("400GB/s"), 400e9);
  EXPECT_DOUBLE_EQ(*ParseRate("1 MiB/s"), 1048576);
  EXPECT_DOUBLE_EQ(*ParseRate("9bit/s"), 9.0 / 8);
  for (const char* text : {"25", "25G", "25Gb", "0GB/s", "-1GB/s", "25gbit/s", "GB/s"}) {
    EXPECT_FALSE(ParseRate(text).ok()) << text;
  }
  EXPECT_EQ(MessageOf(ParseRate("25G").status()),
            "\"25G\" is not a rate above 0 such as 25Gbit/s (bits) or 400GB/s (bytes a second)");
}

TEST(Quantity, ReadsTimes) {
  EXPECT_DOUBLE_EQ(*ParseSeconds("100ns"), 100e-9);
  EXPECT_DOUBLE_EQ(*ParseSeconds("5us"), 5e-6);
  EXPECT_DOUBLE_EQ(*ParseSeconds("1.5 ms"), 1.5e-3);
  EXPECT_DOUBLE_EQ(*ParseSeconds("0s"), 0);
  EXPECT_EQ(MessageOf(ParseSeconds("5").status()),
            "\"5\" is not a time such as 100ns, 5us, 1.5ms or 2s");
  EXPECT_FALSE(ParseSeconds("-1s").ok());
}

TEST(Quantity, WritesThemWithFourDigits) {
  EXPECT_EQ(FormatBytes(0), "0 B");
  EXPECT_EQ(FormatBytes(999), "999 B");
  EXPECT_EQ(FormatBytes(2.16e9), "2.16 GB");
  EXPECT_EQ(FormatBytes(1.4e12), "1.4 TB");
  EXPECT_EQ(FormatBytes(999'960), "1 MB");
  EXPECT_EQ(FormatRate(25e9), "25 GB/s");
  EXPECT_EQ(FormatBitRate(25e9), "200 Gbit/s");
  EXPECT_EQ(FormatCount(175e9), "175 G");
  EXPECT_EQ(FormatCount(12), "12");
  EXPECT_EQ(FormatSeconds(0), "0 s");
  EXPECT_EQ(FormatSeconds(10.8), "10.8 s");
  EXPECT_EQ(FormatSeconds(5e-6), "5 us");
  EXPECT_EQ(FormatSeconds(0.5e-9), "0.5 ns");
  EXPECT_EQ(FormatSeconds(12345.6), "12346 s");
}

}  // namespace
}  // namespace tutti::topology
