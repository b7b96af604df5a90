#include "tutti/net/tcp/frame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "tutti/base/status.h"

namespace tutti::net::tcp {
namespace {

using ::testing::HasSubstr;

std::vector<FrameHeader> OneOfEachKind() {
  return {
      {.kind = FrameKind::kShort,
       .index = 7,
       .operation = 9,
       .total = 40,
       .payload = 40,
       .payload_crc = 1},
      {.kind = FrameKind::kEager,
       .index = 7,
       .operation = 9,
       .total = 65536,
       .payload = 65536,
       .payload_crc = 1},
      {.kind = FrameKind::kAnnounce, .index = 7, .operation = 9, .total = uint64_t{1} << 40},
      {.kind = FrameKind::kReady,
       .flags = kInOrder,
       .index = 7,
       .operation = 9,
       .id = 3,
       .total = 100000},
      {.kind = FrameKind::kDiffers, .id = 3, .total = 100000},
      {.kind = FrameKind::kData,
       .flags = kAnnounced,
       .id = 3,
       .offset = uint64_t{1} << 40,
       .total = (uint64_t{1} << 40) + 5,
       .payload = 5,
       .payload_crc = 1},
      {.kind = FrameKind::kPut,
       .index = 1,
       .operation = 4096,
       .id = 3,
       .offset = 1,
       .total = 6,
       .payload = 5,
       .payload_crc = 1},
      {.kind = FrameKind::kPutDone, .id = 3},
      {.kind = FrameKind::kGet, .index = 1, .operation = 4096, .id = 3, .total = 6},
      {.kind = FrameKind::kRefused,
       .flags = kToPut,
       .id = 3,
       .total = 4,
       .payload = 4,
       .payload_crc = 1},
      {.kind = FrameKind::kTaken, .total = 8 << 20},
  };
}

// What an edit of a valid header parses to, with the checksum made right again.
absl::Status StatusOf(const FrameHeader& header) {
  return ParseHeader(EncodeHeader(header)).status();
}

std::string MessageOfEdit(const FrameHeader& header) {
  return std::string(MessageOf(StatusOf(header)));
}

TEST(FrameTest, HeadersOfEveryKindComeBack) {
  for (const FrameHeader& header : OneOfEachKind()) {
    const absl::StatusOr<FrameHeader> parsed = ParseHeader(EncodeHeader(header));
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(*parsed, header) << NameOf(header.kind);
  }
}

TEST(FrameTest, TheBytesAreThoseOfTheFormat) {
  const HeaderBytes bytes = EncodeHeader({.kind = FrameKind::kPut,
                                          .index = 0x04030201,
                                          .operation = 0x0c0b0a0908070605,
                                          .id = 0x1413121110090807,
                                          .offset = 1,
                                          .total = 6,
                                          .payload = 5,
                                          .payload_crc = 0x11223344});
  const std::vector<int> expected = {'t', 't',  7,    0,    1, 2, 3, 4,    5,    6,    7,    8,
                                     9,   0x0a, 0x0b, 0x0c, 7, 8, 9, 0x10, 0x11, 0x12, 0x13, 0x14,
                                     1,   0,    0,    0,    0, 0, 0, 0,    6,    0,    0,    0,
                                     0,   0,    0,    0,    5, 0, 0, 0,    0x44, 0x33, 0x22, 0x11};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(bytes[i]), expected[i]) << "at byte " << i;
  }
}

TEST(FrameTest, ChecksumIsCrc32c) {
  // The check value that the definition of CRC-32C gives for "123456789".
  const std::string digits = "123456789";
  const ConstBytes bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(Crc32c(bytes), 0xe3069283u);
  EXPECT_EQ(Crc32c(bytes.subspan(4), Crc32c(bytes.first(4))), 0xe3069283u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(FrameTest, EveryFlippedBitIsFound) {
  for (const FrameHeader& header : OneOfEachKind()) {
    for (size_t bit = 0; bit < 8 * kHeaderBytes; ++bit) {
      HeaderBytes bytes = EncodeHeader(header);
      bytes[bit / 8] ^= std::byte{1} << (bit % 8);
      EXPECT_FALSE(ParseHeader(bytes).ok()) << NameOf(header.kind) << " bit " << bit;
    }
  }
}

TEST(FrameTest, RefusesWhatNoKindAllows) {
  const FrameHeader data = OneOfEachKind()[5];
  FrameHeader edit = data;
  edit.kind = FrameKind{12};
  EXPECT_THAT(MessageOfEdit(edit), HasSubstr("frame kind 12, expected 1 to 11"));
  edit = data;
  edit.kind = FrameKind{0};
  EXPECT_EQ(StatusOf(edit).code(), absl::StatusCode::kInvalidArgument);
  edit = data;
  edit.flags = kToPut;
  EXPECT_THAT(MessageOfEdit(edit), HasSubstr("data frame with flags 0x4"));
  edit = data;
  edit.operation = 1;
  EXPECT_THAT(MessageOfEdit(edit), HasSubstr("a field it does not use"));
}

TEST(FrameTest, RefusesLengthsThatDoNotFit) {
  FrameHeader edit = OneOfEachKind()[5];
  edit.payload = kMaxPayload + 1;
  edit.total = edit.offset + edit.payload;
  EXPECT_THAT(MessageOfEdit(edit), HasSubstr("payload of 524289 bytes, expected at most 524288"));
  edit = OneOfEachKind()[5];
  edit.payload = 6;
  EXPECT_THAT(MessageOfEdit(edit), HasSubstr("of a message of 1099511627781 bytes"));
  edit.offset = UINT64_MAX;
  EXPECT_EQ(StatusOf(edit).code(), absl::StatusCode::kInvalidArgument);
  edit = OneOfEachKind()[1];
  edit.total = 65537;
  EXPECT_THAT(MessageOfEdit(edit), HasSubstr("expected all of them"));
  edit.total = edit.payload = 65537;
  EXPECT_EQ(StatusOf(edit).code(), absl::StatusCode::kInvalidArgument);
}

TEST(FrameTest, WhatParsesIsWrittenAsTheSameBytes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int parsed_count = 0;
  for (int round = 0; round < 100'000; ++round) {
    HeaderBytes bytes = EncodeHeader(OneOfEachKind()[random() % 10]);
    const int edits = static_cast<int>(random() % 3);
    for (int i = 0; i < edits; ++i) bytes[random() % 48] = static_cast<std::byte>(random());
    const uint32_t crc = Crc32c({bytes.data(), 48});
    std::memcpy(bytes.data() + 48, &crc, 4);
    if (const auto parsed = ParseHeader(bytes); parsed.ok()) {
      EXPECT_EQ(EncodeHeader(*parsed), bytes);
      ++parsed_count;
    }
  }
  EXPECT_GT(parsed_count, 30'000);
}

}  // namespace
}  // namespace tutti::net::tcp
