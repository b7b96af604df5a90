#include "tutti/testing/faulty_transport.h"

#include <gtest/gtest.h>

#include <bit>
#include <deque>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/loopback/loopback_transport.h"
#include "tutti/net/transport_suite.h"

namespace tutti::testing {
namespace {

using net::ConstBytes;
using net::LoopbackTransport;
using net::Pattern;
using net::Transport;
using net::TransportCase;
using net::TransportSuite;
using net::Watched;

std::vector<std::unique_ptr<Transport>> MakeFaulty(int ranks, const Faults& faults) {
  auto transports = LoopbackTransport::Make(ranks);
  for (auto& transport : transports) {
    transport = std::make_unique<FaultyTransport>(std::move(transport), faults);
  }
  return transports;
}

// Without faults, and with messages that are late, it is still a transport.
INSTANTIATE_TEST_SUITE_P(
    Faulty, TransportSuite,
    ::testing::Values(TransportCase{"sound", [](int n) { return MakeFaulty(n, {}); }},
                      TransportCase{"late",
                                    [](int n) {
                                      return MakeFaulty(n, {.delay = 0.1, .delay_nanos = 50'000});
                                    }}),
    [](const auto& info) { return info.param.name; });

// Rank 0 with faults, rank 1 without.
class FaultyTransportTest : public ::testing::Test {
 protected:
  void Make(const Faults& faults) {
    auto transports = LoopbackTransport::Make(2);
    faulty_ = std::make_unique<FaultyTransport>(std::move(transports[0]), faults);
    peer_ = std::move(transports[1]);
  }
  void Drive() {
    for (int i = 0; i < 100; ++i) {
      faulty_->Progress();
      peer_->Progress();
    }
  }

  std::unique_ptr<FaultyTransport> faulty_;
  std::unique_ptr<Transport> peer_;
};

TEST_F(FaultyTransportTest, DropsSomeMessages) {
  Make({.seed = 3, .drop = 0.5});
  const std::vector<std::byte> data = Pattern(100, 1);
  std::deque<Watched> sends;
  std::deque<Watched> receives;
  for (uint32_t i = 0; i < 200; ++i) {
    peer_->Receive(0, {1, i}, nullptr, data.size(), &receives.emplace_back());
    faulty_->Send(1, {1, i}, data, &sends.emplace_back());
  }
  Drive();
  int64_t arrived = 0;
  for (const Watched& receive : receives) arrived += receive.done();
  for (const Watched& send : sends) EXPECT_TRUE(send.done() && send.status().ok());
  EXPECT_EQ(arrived, 200 - faulty_->dropped());
  EXPECT_GT(faulty_->dropped(), 50);
  EXPECT_LT(faulty_->dropped(), 150);
}

TEST_F(FaultyTransportTest, DrawsTheSameFaultsFromTheSameSeed) {
  int64_t dropped[2];
  for (int64_t& count : dropped) {
    Make({.seed = 11, .drop = 0.3});
    for (uint32_t i = 0; i < 1000; ++i) ASSERT_TRUE(faulty_->SendShort(1, {1, i}, {}).ok());
    count = faulty_->dropped();
  }
  EXPECT_EQ(dropped[0], dropped[1]);
}

TEST_F(FaultyTransportTest, FlipsOneBit) {
  Make({.flip = 1});
  for (size_t size : {1u, 500u, 300'000u}) {
    const std::vector<std::byte> data = Pattern(size, 1);
    Watched send;
    Watched receive;
    peer_->Receive(0, {size, 0}, nullptr, size, &receive);
    faulty_->Send(1, {size, 0}, data, &send);
    Drive();
    ASSERT_TRUE(send.done() && receive.done());
    ASSERT_EQ(receive.taken().size(), size);
    int bits = 0;
    for (size_t i = 0; i < size; ++i) {
      bits += std::popcount(static_cast<unsigned char>(data[i] ^ receive.taken()[i]));
    }
    EXPECT_EQ(bits, 1);
    EXPECT_EQ(data, Pattern(size, 1)) << "the sender's bytes are its own";
  }
  EXPECT_EQ(faulty_->flipped(), 3);
}

TEST_F(FaultyTransportTest, CutsALink) {
  Make({.cut_after = 2});
  Watched open;
  faulty_->Receive(1, {9, 9}, nullptr, 1, &open);
  EXPECT_TRUE(faulty_->SendShort(1, {1, 0}, {}).ok());
  EXPECT_TRUE(faulty_->SendShort(1, {1, 1}, {}).ok());
  EXPECT_EQ(faulty_->SendShort(1, {1, 2}, {}).code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(open.done());
  EXPECT_EQ(open.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(MessageOf(open.status()).find("rank 1"), std::string_view::npos) << open.status();
  Transport::BrokenLink broken;
  ASSERT_TRUE(faulty_->NextBroken(&broken));
  EXPECT_EQ(broken.peer, 1);
  EXPECT_FALSE(faulty_->NextBroken(&broken));
}

}  // namespace
}  // namespace tutti::testing
