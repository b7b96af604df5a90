#include "tutti/net/ucx/ucx_transport.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net {
namespace {

// Joined by those of UCX's own transports that the text names.
std::vector<std::unique_ptr<Transport>> MakeUcx(int size, const std::string& transports) {
  std::vector<std::unique_ptr<UcxTransport>> ranks;
  std::vector<std::string> endpoints;
  for (int rank = 0; rank < size; ++rank) {
    ranks.push_back(
        ValueOrThrow(UcxTransport::Open({.rank = rank, .size = size, .transports = transports})));
    endpoints.push_back(ranks.back()->endpoint());
  }
  std::vector<std::unique_ptr<Transport>> made;
  for (auto& rank : ranks) {
    ThrowIfError(rank->Connect(endpoints));
    made.push_back(std::move(rank));
  }
  return made;
}

INSTANTIATE_TEST_SUITE_P(
    Ucx, TransportSuite,
    ::testing::Values(TransportCase{"ucx, tcp", [](int size) { return MakeUcx(size, "tcp"); }},
                      TransportCase{"ucx, shared memory",
                                    [](int size) { return MakeUcx(size, "posix,sysv,cma"); }},
                      TransportCase{"ucx, its choice",
                                    [](int size) { return MakeUcx(size, "all"); }}));

class UcxTransportTest : public ::testing::Test {
 protected:
  void Drive(const std::vector<Transport*>& ranks, const std::function<bool()>& until) {
    for (int64_t i = 0; i < 20'000'000 && !until(); ++i) {
      for (Transport* rank : ranks) rank->Progress();
    }
    EXPECT_TRUE(until());
  }
};

// What is long enough to go by rendezvous is refused like what is short.
TEST_F(UcxTransportTest, PutsOutsideMemoryAreRefusedWhateverTheirSize) {
  auto ranks = MakeUcx(2, "tcp");
  auto memory = ValueOrThrow(ranks[1]->Allocate(1000));
  for (const size_t size : {size_t{1001}, size_t{5'000'000}}) {
    const std::vector<std::byte> data(size);
    Watched put;
    ranks[0]->Put(1, memory->key(), data, &put);
    Drive({ranks[0].get(), ranks[1].get()}, [&] { return put.done(); });
    EXPECT_EQ(put.status().code(), absl::StatusCode::kInvalidArgument) << put.status();
    EXPECT_NE(MessageOf(put.status()).find("rank 1 (127.0.0.1, ucx) refused a put: "),
              std::string_view::npos)
        << put.status();
  }
}

TEST_F(UcxTransportTest, AnotherJobsMessagesAreRefused) {
  auto one = ValueOrThrow(UcxTransport::Open({.rank = 0, .size = 2, .transports = "tcp"}));
  auto other = ValueOrThrow(UcxTransport::Open({.rank = 1, .size = 2, .transports = "tcp"}));
  // It has the address from somewhere, but not the key.
  std::string guessed = one->endpoint();
  char& digit = guessed[guessed.find('/') + 1];
  digit = digit == '0' ? '1' : '0';
  ThrowIfError(other->Connect(std::vector<std::string>{guessed, other->endpoint()}));
  ThrowIfError(one->Connect(std::vector<std::string>{one->endpoint(), other->endpoint()}));
  const std::vector<std::byte> data = Pattern(100, 1);
  Watched send, receive;
  one->Receive(1, {1, 1}, nullptr, data.size(), &receive);
  other->Send(0, {1, 1}, data, &send);
  EXPECT_TRUE(other->SendShort(0, {1, 1}, data).ok());
  Drive({one.get(), other.get()}, [&] { return send.done(); });
  for (int i = 0; i < 10'000; ++i) {
    one->Progress();
    other->Progress();
  }
  EXPECT_FALSE(receive.done());
  Transport::ShortMessage message;
  EXPECT_FALSE(one->NextShort(&message));
  one->Fail(1, Aborted("the test is over"));
}

TEST_F(UcxTransportTest, MistakesOfTheCallerAreErrors) {
  EXPECT_FALSE(UcxTransport::Open({.rank = 2, .size = 2}).ok());
  EXPECT_FALSE(UcxTransport::Open({.transports = "no_such_transport"}).ok());
  auto transport = ValueOrThrow(UcxTransport::Open({.rank = 0, .size = 2}));
  Watched early;
  transport->Send(1, {}, {}, &early);
  EXPECT_EQ(early.status().code(), absl::StatusCode::kFailedPrecondition);
  const std::string own = transport->endpoint();
  EXPECT_FALSE(transport->Connect(std::vector<std::string>{own}).ok());
  EXPECT_FALSE(transport->Connect(std::vector<std::string>{own, "127.0.0.1:4711"}).ok());
  // A well-formed endpoint whose address is nonsense: the link fails, the process does not.
  ASSERT_TRUE(transport->Connect(std::vector<std::string>{own, own}).ok());
  EXPECT_FALSE(transport->Map(1, {1, 0}, 1).ok());
}

}  // namespace
}  // namespace tutti::net
