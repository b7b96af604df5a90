#include "tutti/net/ucx/frame.h"

#include <gtest/gtest.h>

#include <string>

namespace tutti::net::ucx {
namespace {

TEST(UcxFrameTest, EndpointsAreReadAsTheyWereWritten) {
  const UcxEndpoint endpoint = {
      .host = "10.0.0.7", .key = 0x0123456789abcdef, .address = std::string("\0\xff/\n", 4)};
  const std::string text = ToString(endpoint);
  EXPECT_EQ(text, "10.0.0.7/0123456789abcdef/00ff2f0a");
  const absl::StatusOr<UcxEndpoint> read = ParseUcxEndpoint(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->host, endpoint.host);
  EXPECT_EQ(read->key, endpoint.key);
  EXPECT_EQ(read->address, endpoint.address);
}

TEST(UcxFrameTest, BadEndpointsAreRefused) {
  for (const char* text :
       {"", "host", "host/", "/0123456789abcdef/00", "host/0123456789abcdef", "127.0.0.1:4711",
        "host/0123456789abcdef/", "host/0123456789abcdeg/00", "host/0123456789abcdef/0",
        "host/0123456789abcdef/0g", "host/0123/00", "host/+123456789abcdef/00"}) {
    EXPECT_EQ(ParseUcxEndpoint(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(UcxFrameTest, HeadersAreCheckedAgainstTheirData) {
  const auto read = [](const FrameHeader& header, size_t data) {
    return ReadHeader(&header, sizeof(header), data).ok();
  };
  EXPECT_TRUE(read({.kind = FrameKind::kEager, .total = 10}, 10));
  EXPECT_FALSE(read({.kind = FrameKind::kEager, .total = 10}, 9));
  EXPECT_FALSE(read({.kind = FrameKind::kEager, .total = kEagerBytes + 1}, kEagerBytes + 1));
  EXPECT_TRUE(read({.kind = FrameKind::kShort}, Transport::kShortBytes));
  EXPECT_FALSE(read({.kind = FrameKind::kShort}, Transport::kShortBytes + 1));
  EXPECT_TRUE(read({.kind = FrameKind::kData, .offset = 5, .total = 10}, 5));
  EXPECT_FALSE(read({.kind = FrameKind::kData, .offset = 5, .total = 10}, 6));
  EXPECT_FALSE(read({.kind = FrameKind::kData, .offset = 11, .total = 10}, 0));
  EXPECT_FALSE(read({.kind = FrameKind::kData, .offset = UINT64_MAX, .total = 10}, 10));
  EXPECT_FALSE(read({.kind = FrameKind::kPut, .total = UINT64_MAX}, 10));
  EXPECT_FALSE(read({.kind = FrameKind::kOffer, .total = 10}, 10));
  EXPECT_FALSE(read({.kind = static_cast<FrameKind>(0)}, 0));
  EXPECT_FALSE(read({.kind = static_cast<FrameKind>(14)}, 0));
  EXPECT_FALSE(read({.version = 2}, 0));
  const FrameHeader header;
  EXPECT_FALSE(ReadHeader(&header, sizeof(header) - 1, 0).ok());
}

}  // namespace
}  // namespace tutti::net::ucx
