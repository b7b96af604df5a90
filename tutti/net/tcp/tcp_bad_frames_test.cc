// What a peer may not send, and how much it may make a rank keep: beyond that its link breaks, and
// the error names it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/net/tcp/lone_rank.h"

namespace tutti::net::tcp {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

struct BadFrames {
  std::string name;
  absl::StatusCode code;
  std::string expected;
  // Writes to a peer of whom rank 0 wants message 1.1 of 1,000,000 bytes, its receive 1.
  std::function<void(RawConnection&)> write;
};

class BadFramesTest : public ::testing::TestWithParam<BadFrames> {};

TEST_P(BadFramesTest, BreakTheLinkAndNameThePeer) {
  LoneRank lone;
  std::vector<std::byte> received(1'000'000);
  Recorder receive;
  lone.rank->Receive(1, {1, 1}, received.data(), received.size(), &receive);
  const auto peer = lone.Peer();
  GetParam().write(*peer);
  const absl::Status status = receive.Wait();
  EXPECT_EQ(status.code(), GetParam().code) << status;
  EXPECT_THAT(TextOf(status), AllOf(HasSubstr("rank 1 (" + lone.peer_endpoint + ", tcp): "),
                                    HasSubstr(GetParam().expected)));
  const auto broken = lone.rank->WaitForBroken(1);
  EXPECT_EQ(broken[0].peer, 1);
  EXPECT_EQ(broken[0].status, status);
  Recorder next;
  lone.rank->Receive(1, {1, 2}, received.data(), 1, &next);
  EXPECT_EQ(next.Wait(), status);
}

const std::string& Frameful() {
  static const std::string bytes(kMaxPayload, 'x');
  return bytes;
}

INSTANTIATE_TEST_SUITE_P(
    All, BadFramesTest,
    ::testing::Values(
        BadFrames{"NoFrame", absl::StatusCode::kInvalidArgument, "not a frame",
                  [](RawConnection& peer) { peer.Write(std::string(kHeaderBytes, 'x')); }},
        BadFrames{"FlippedHeader", absl::StatusCode::kDataLoss, "header of a frame is damaged",
                  [](RawConnection& peer) {
                    HeaderBytes bytes = EncodeHeader({.kind = FrameKind::kPutDone, .id = 1});
                    bytes[20] ^= std::byte{1};
                    peer.Write(AsText(bytes));
                  }},
        BadFrames{"BadKind", absl::StatusCode::kInvalidArgument, "frame kind 200",
                  [](RawConnection& peer) { peer.WriteFrame({.kind = FrameKind{200}}); }},
        BadFrames{"OversizedLength", absl::StatusCode::kInvalidArgument,
                  "payload of 4294967295 bytes, expected at most 524288",
                  [](RawConnection& peer) {
                    peer.Write(AsText(EncodeHeader({.kind = FrameKind::kData,
                                                    .id = 1,
                                                    .total = UINT64_MAX,
                                                    .payload = UINT32_MAX})));
                  }},
        BadFrames{"DamagedPayload", absl::StatusCode::kDataLoss,
                  "payload of a data frame is damaged",
                  [](RawConnection& peer) {
                    peer.Write(AsText(EncodeHeader({.kind = FrameKind::kData,
                                                    .id = 1,
                                                    .total = 1'000'000,
                                                    .payload = kMaxPayload,
                                                    .payload_crc = 77})));
                    peer.Write(Frameful());
                  }},
        BadFrames{"HalfAFrame", absl::StatusCode::kUnavailable,
                  "closed the connection in the middle of a frame",
                  [](RawConnection& peer) {
                    peer.Write(AsText(EncodeHeader({.kind = FrameKind::kData,
                                                    .id = 1,
                                                    .total = 1'000'000,
                                                    .payload = kMaxPayload,
                                                    .payload_crc = 77})));
                    peer.Write(std::string_view(Frameful()).substr(1));
                    peer.Close();
                  }},
        BadFrames{
            "UnknownReceive", absl::StatusCode::kInvalidArgument, "receive 2, which is not open",
            [](RawConnection& peer) {
              peer.WriteFrame({.kind = FrameKind::kData, .id = 2, .total = 1'000'000}, Frameful());
            }},
        BadFrames{"OtherTotal", absl::StatusCode::kInvalidArgument, "of 1000001 for receive 1",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kData, .id = 1, .total = 1'000'001},
                                    Frameful());
                  }},
        BadFrames{"TwiceTheSame", absl::StatusCode::kInvalidArgument, "or those already",
                  [](RawConnection& peer) {
                    const FrameHeader header = {
                        .kind = FrameKind::kData, .id = 1, .total = 1'000'000};
                    peer.WriteFrame(header, Frameful());
                    peer.WriteFrame(header, Frameful());
                  }},
        BadFrames{"OddPiece", absl::StatusCode::kInvalidArgument, "sent bytes 0 + 5",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kData, .id = 1, .total = 1'000'000},
                                    "short");
                  }},
        BadFrames{"LengthChangedInTheMiddle", absl::StatusCode::kInvalidArgument,
                  "another length in the middle of message 1.1",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kData, .id = 1, .total = 1'000'000},
                                    Frameful());
                    peer.WriteFrame({.kind = FrameKind::kDiffers, .id = 1, .total = 5});
                  }},
        BadFrames{
            "UnknownPut", absl::StatusCode::kInvalidArgument, "put 7, which is not open",
            [](RawConnection& peer) { peer.WriteFrame({.kind = FrameKind::kPutDone, .id = 7}); }},
        BadFrames{"UnknownGet", absl::StatusCode::kInvalidArgument, "get 7, which is not open",
                  [](RawConnection& peer) {
                    peer.WriteFrame({.kind = FrameKind::kRefused, .id = 7, .total = 3}, "why");
                  }},
        BadFrames{
            "TakenOfNothing", absl::StatusCode::kInvalidArgument,
            "has taken 5 bytes of messages, which were not sent",
            [](RawConnection& peer) { peer.WriteFrame({.kind = FrameKind::kTaken, .total = 5}); }}),
    [](const auto& info) { return info.param.name; });

TEST(TcpBadFramesTest, WhatAPeerCanMakeARankKeepIsBounded) {
  LoneRank lone({.max_kept_bytes = 100'000});
  const auto peer = lone.Peer();
  const std::string text(60'000, 'x');
  peer->WriteFrame({.kind = FrameKind::kEager, .index = 1, .total = text.size()}, text);
  peer->WriteFrame({.kind = FrameKind::kEager, .index = 2, .total = text.size()}, text);
  const absl::Status status = lone.rank->WaitForBroken(1)[0].status;
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(status), HasSubstr("more than 100000 bytes that nobody receives"));
}

TEST(TcpBadFramesTest, MemoryTakenBackUnderAPeerBreaksItsLink) {
  LoneRank lone;
  std::vector<std::byte> own(1'000'000);
  auto memory = lone.rank->With([&](Transport& t) { return ValueOrThrow(t.Register(own)); });
  const auto peer = lone.Peer();
  // The answer waits for a connection to the peer, which does not answer.
  peer->WriteFrame(
      {.kind = FrameKind::kGet, .index = memory->key().region, .id = 1, .total = own.size()});
  peer->WriteFrame({.kind = FrameKind::kShort});
  lone.rank->WaitForShorts(1);
  lone.rank->With([&](Transport&) { memory.reset(); });
  EXPECT_EQ(lone.rank->WaitForBroken(1)[0].status.code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace tutti::net::tcp
