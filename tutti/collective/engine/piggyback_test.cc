// An engine and a peer that is played by hand: short data goes and comes with the envelope.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/collective/engine/engine.h"
#include "tutti/net/loopback/loopback_transport.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

struct Sent final : net::Request {
  void Done(const absl::Status& status) override { result = status; }
  std::optional<absl::Status> result;
};

// Rank 0 is an engine, rank 1 the test.
class Piggyback : public ::testing::Test {
 protected:
  Piggyback() : transports_(net::LoopbackTransport::Make(2)), engine_(Take(0), nullptr, 5) {
    peer_ = Take(1);
    group_ = *engine_.AddGroup(std::make_unique<GroupState>("world", std::vector<int>{0, 1}, 0,
                                                            std::vector<int>{0, 0}, nullptr));
  }

  std::unique_ptr<net::Transport> Take(int rank) { return std::move(transports_[rank]); }

  Handle AllReduce(std::vector<float>& data) {
    return engine_.Start(*group_,
                         {.operation = Operation::kAllReduce,
                          .data = data.data(),
                          .count = static_cast<int64_t>(data.size()),
                          .dtype = kFloat32},
                         {.algorithm = "exchange"});
  }

  // What the engine has said. Loopback delivers at once.
  net::Transport::ShortMessage Envelope() {
    net::Transport::ShortMessage message;
    peer_->Progress();
    EXPECT_TRUE(peer_->NextShort(&message));
    return message;
  }

  std::vector<std::unique_ptr<net::Transport>> transports_;
  Engine engine_;
  std::unique_ptr<net::Transport> peer_;
  GroupState* group_ = nullptr;
};

TEST_F(Piggyback, ShortDataIsOneMessageEachWay) {
  std::vector<float> data = {1, 2, 3};
  const Handle handle = AllReduce(data);
  net::Transport::ShortMessage message = Envelope();
  ASSERT_EQ(message.bytes, kEnvelopeBytes + 12);
  const float theirs[] = {10, 20, 30};
  EXPECT_EQ(std::memcmp(message.data + kEnvelopeBytes, data.data(), 12), 0);
  std::memcpy(message.data + kEnvelopeBytes, theirs, 12);
  ASSERT_TRUE(peer_->SendShort(0, message.tag, {message.data, message.bytes}).ok());
  EXPECT_TRUE(handle.Wait().ok());
  EXPECT_THAT(data, ::testing::ElementsAre(11, 22, 33));
}

TEST_F(Piggyback, LongDataGoesByItself) {
  std::vector<float> data(kPiggybackBytes / 4 + 1, 1);
  const Handle handle = AllReduce(data);
  EXPECT_EQ(Envelope().bytes, kEnvelopeBytes);
}

TEST_F(Piggyback, WhatIsNotPiggybackedComesByItself) {
  std::vector<float> data = {1, 2, 3};
  const Handle handle = AllReduce(data);
  const net::Transport::ShortMessage message = Envelope();
  const float theirs[] = {10, 20, 30};
  Sent sent;
  ASSERT_TRUE(peer_->SendShort(0, message.tag, {message.data, kEnvelopeBytes}).ok());
  peer_->Send(0, message.tag, std::as_bytes(std::span(theirs)), &sent);
  EXPECT_TRUE(handle.Wait().ok());
  EXPECT_THAT(data, ::testing::ElementsAre(11, 22, 33));
}

TEST_F(Piggyback, AnotherLengthIsRefused) {
  std::vector<float> data = {1, 2, 3};
  const Handle handle = AllReduce(data);
  const net::Transport::ShortMessage message = Envelope();
  ASSERT_TRUE(peer_->SendShort(0, message.tag, {message.data, message.bytes - 1}).ok());
  const absl::Status status = handle.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(MessageOf(status)),
              HasSubstr("rank 1 sent 11 bytes with its envelope; expected 12"));
}

}  // namespace
}  // namespace tutti::collective
