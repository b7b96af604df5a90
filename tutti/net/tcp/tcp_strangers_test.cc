// Connections of nobody in the job, and too many of them: they are refused, the job goes on.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/net/tcp/lone_rank.h"

namespace tutti::net::tcp {
namespace {

using ::testing::HasSubstr;

TEST(TcpStrangersTest, StrangersAreRefusedAndTheJobGoesOn) {
  auto ranks = StartRanks(3, {.token = "secret", .generation = 4});
  Identity fits = LoneRank::PeerIdentity();
  fits.size = 3;
  fits.rank = 2;
  fits.token = "secret";
  fits.generation = 4;
  struct Case {
    std::string expected;
    std::function<void(Identity*)> edit;
  };
  const Case cases[] = {
      {"job is 'other', expected 'tutti'", [](Identity* own) { own->job = "other"; }},
      {"wrong token", [](Identity* own) { own->token = "guess"; }},
      {"generation is 3, expected 4", [](Identity* own) { own->generation = 3; }},
      {"job of 5 ranks, expected 3", [](Identity* own) { own->size = 5; }},
      {"rank 3 is out of range", [](Identity* own) { own->rank = 3; }},
      {"rank 1 is taken", [](Identity* own) { own->rank = 1; }},
      {"connection is for control",
       [](Identity* own) { own->purpose = Identity::Purpose::kControl; }},
      {"stream 65, expected 0 to 64", [](Identity* own) { own->stream = 65; }},
  };
  for (const Case& test : cases) {
    Identity own = fits;
    test.edit(&own);
    RawConnection connection(ranks[1]->endpoint());
    EXPECT_THAT(TextOf(connection.ShakeHands(own)), HasSubstr(test.expected));
    EXPECT_TRUE(connection.EndsWithin20Seconds());
  }
  for (const std::string_view garbage : {std::string_view("GET / HTTP/1.1\r\n\r\n"),
                                         std::string_view("TUTTI\0\r\n\x63\0\0\0", 12)}) {
    RawConnection connection(ranks[1]->endpoint());
    connection.Write(garbage);
    EXPECT_TRUE(connection.EndsWithin20Seconds());
  }
  RawConnection half(ranks[1]->endpoint());
  half.Write("TUT");
  half.Close();
  ExpectThatItGoesOn(ranks);
  for (const auto& rank : ranks) EXPECT_EQ(rank->broken_count(), 0u);
}

TEST(TcpStrangersTest, AStreamThatIsThereIsNotTakenTwice) {
  LoneRank lone;
  const auto peer = lone.Peer();
  RawConnection second(lone.rank->endpoint());
  EXPECT_THAT(TextOf(second.ShakeHands(LoneRank::PeerIdentity())),
              HasSubstr("has stream 0 already"));
  const std::string text = "hello";
  peer->WriteFrame({.kind = FrameKind::kShort, .total = text.size()}, text);
  EXPECT_EQ(lone.rank->WaitForShorts(1)[0].bytes, text.size());
}

TEST(TcpStrangersTest, AThousandIdleConnectionsKeepNobodyOut) {
  auto ranks = StartRanks(2);
  std::vector<std::unique_ptr<RawConnection>> idle;
  for (int i = 0; i < 1000; ++i) {
    idle.push_back(std::make_unique<RawConnection>(ranks[1]->endpoint()));
  }
  // All but the youngest are sent away at once.
  EXPECT_TRUE(idle.front()->EndsWithin20Seconds());
  ExpectThatItGoesOn(ranks);
  EXPECT_EQ(ranks[1]->broken_count(), 0u);
}

TEST(TcpStrangersTest, ASilentConnectionIsSentAway) {
  auto ranks = StartRanks(2, {.connect_seconds = 0.2});
  RawConnection idle(ranks[1]->endpoint());
  EXPECT_TRUE(idle.EndsWithin20Seconds());
  ExpectThatItGoesOn(ranks);
}

TEST(TcpStrangersTest, WithoutDescriptorsConnectionsAreRefusedAndOthersGoOn) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizers check pointers through descriptors of their own";
#endif
  auto ranks = StartRanks(2);
  ExpectThatItGoesOn(ranks);
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit lower = {.rlim_cur = 256, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &lower), 0);
  std::vector<Socket> taken;
  for (;;) {
    Socket fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) break;
    taken.push_back(std::move(fd));
  }
  taken.pop_back();  // for this end of the connection; none is left for the other
  RawConnection connection(ranks[1]->endpoint());
  EXPECT_TRUE(connection.EndsWithin20Seconds());
  ExpectThatItGoesOn(ranks);
  taken.clear();
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

}  // namespace
}  // namespace tutti::net::tcp
