#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/shm/introduction.h"
#include "tutti/net/shm/shm_transport.h"
#include "tutti/net/transport_suite.h"

// Ranks that are processes: rank 0 is the test, the others are forked from it.
namespace tutti::net {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

class ShmProcessTest : public testing::Test {
 protected:
  // Forks ranks 1 to ranks - 1, each of which runs `program` and ends with what it returns.
  void Start(int ranks, const std::function<int(Transport&)>& program) {
    ShmOptions options{.size = ranks, .timeout_seconds = 60};
    std::vector<std::unique_ptr<ShmEndpoint>> endpoints;
    for (int rank = 0; rank < ranks; ++rank) {
      endpoints.push_back(ValueOrThrow(ShmEndpoint::Open()));
      options.names.push_back(endpoints.back()->name());
    }
    names_ = options.names;
    for (int rank = 1; rank < ranks; ++rank) {
      const pid_t child = fork();
      ASSERT_GE(child, 0);
      if (child == 0) {
        options.rank = rank;
        auto transport =
            ShmTransport::Connect(std::move(endpoints[static_cast<size_t>(rank)]), options);
        endpoints.clear();
        _exit(transport.ok() ? program(**transport) : 99);
      }
      children_.push_back(child);
    }
    own_ = ValueOrThrow(ShmTransport::Connect(std::move(endpoints[0]), options));
  }

  void TearDown() override {
    for (pid_t child : children_) {
      if (child == 0) continue;
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
    children_.clear();
  }

  pid_t child(int rank) { return children_[static_cast<size_t>(rank - 1)]; }

  // Waits for a child and gives its exit code.
  int ExitCode(int rank) {
    int status = 0;
    waitpid(child(rank), &status, 0);
    children_[static_cast<size_t>(rank - 1)] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  static bool WaitUntil(Transport& transport, const std::function<bool()>& done) {
    const int64_t end = NowNanos() + 60 * kSecond;
    while (!done()) {
      if (NowNanos() > end) return false;
      if (!transport.Progress()) transport.Wait(kSecond);
    }
    return true;
  }

  std::vector<std::string> names_;
  std::vector<pid_t> children_;
  std::unique_ptr<Transport> own_;
};

constexpr size_t kSizes[] = {0, 5, 100, 8192, 8193, 300'001, 2'000'000};

// Everybody sends a message of each size to everybody, from ordinary and from registered memory.
int ExchangeAll(Transport& transport) {
  auto memory = transport.Allocate(4 << 20);
  if (!memory.ok()) return 1;
  for (bool registered : {false, true}) {
    for (size_t size : kSizes) {
      std::vector<std::byte> data = Pattern(size, static_cast<uint64_t>(transport.rank()));
      if (registered) std::ranges::copy(data, (*memory)->bytes().begin());
      const ConstBytes source = registered ? (*memory)->bytes().first(size) : Bytes(data);
      std::deque<Watched> requests;
      std::vector<const Watched*> receives;
      const Tag tag{size, registered};
      for (int peer = 0; peer < transport.size(); ++peer) {
        if (peer == transport.rank()) continue;
        transport.Send(peer, tag, source, &requests.emplace_back());
        transport.Receive(peer, tag, nullptr, size, &requests.emplace_back());
        receives.push_back(&requests.back());
      }
      const int64_t end = NowNanos() + 60 * kSecond;
      while (!std::ranges::all_of(requests, &Watched::done)) {
        if (NowNanos() > end) return 2;
        if (!transport.Progress()) transport.Wait(kSecond);
      }
      for (int peer = 0, next = 0; peer < transport.size(); ++peer) {
        if (peer == transport.rank()) continue;
        const Watched& receive = *receives[static_cast<size_t>(next++)];
        if (!receive.status().ok()) return 3;
        if (receive.taken() != Pattern(size, static_cast<uint64_t>(peer))) return 4;
      }
    }
  }
  return 0;
}

// Waits for the end of the test.
int Idle(Transport& transport) {
  Watched never;
  transport.Receive(0, {0, 0}, nullptr, 1, &never);
  const int64_t end = NowNanos() + 60 * kSecond;
  while (!never.done() && NowNanos() < end) {
    if (!transport.Progress()) transport.Wait(kSecond);
  }
  return 0;
}

TEST_F(ShmProcessTest, MoreRanksThanCoresExchangeEverything) {
  Start(5, &ExchangeAll);
  EXPECT_EQ(ExchangeAll(*own_), 0);
  for (int rank = 1; rank < 5; ++rank) EXPECT_EQ(ExitCode(rank), 0) << "rank " << rank;
}

TEST_F(ShmProcessTest, AKilledPeerIsNamed) {
  Start(3, &Idle);
  Watched lost;
  Watched open;
  own_->Receive(1, {1, 1}, nullptr, 10, &lost);
  own_->Receive(2, {1, 1}, nullptr, 10, &open);
  own_->Progress();
  kill(child(1), SIGKILL);
  const int64_t killed = NowNanos();
  ASSERT_TRUE(WaitUntil(*own_, [&] { return lost.done(); }));
  EXPECT_LT(NowNanos() - killed, 10 * kSecond);
  EXPECT_EQ(lost.status().code(), absl::StatusCode::kUnavailable);
  const std::string message(MessageOf(lost.status()));
  EXPECT_NE(message.find("rank 1 (pid " + std::to_string(child(1))), std::string::npos) << message;
  Transport::BrokenLink broken;
  ASSERT_TRUE(own_->NextBroken(&broken));
  EXPECT_EQ(broken.peer, 1);
  EXPECT_EQ(broken.status, lost.status());
  EXPECT_FALSE(own_->NextBroken(&broken));
  EXPECT_FALSE(open.done());
}

TEST_F(ShmProcessTest, APeerKilledAmidATransferIsNamed) {
  const auto seed = std::random_device{}();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 5; ++round) {
    Start(2, [](Transport& transport) {
      const std::vector<std::byte> data(8 << 20);
      std::deque<Watched> sends;
      for (uint32_t i = 0; i < 100; ++i) transport.Send(0, {1, i}, data, &sends.emplace_back());
      return WaitUntil(transport, [&] { return sends.back().done(); }) ? 0 : 1;
    });
    std::vector<std::byte> data(8 << 20);
    absl::Status status;
    const uint32_t last = random() % 3;
    const int calls = static_cast<int>(random() % 50);
    for (uint32_t i = 0; i < 100 && status.ok(); ++i) {
      Watched receive;
      own_->Receive(1, {1, i}, data.data(), data.size(), &receive);
      for (int call = 0; i == last && call < calls; ++call) own_->Progress();
      if (i == last) kill(child(1), SIGKILL);
      ASSERT_TRUE(WaitUntil(*own_, [&] { return receive.done(); }));
      status = receive.status();
    }
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    TearDown();
  }
}

TEST_F(ShmProcessTest, LeavesNoNamesBehind) {
  Start(2, &Idle);
  kill(child(1), SIGKILL);
  Watched lost;
  own_->Receive(1, {1, 1}, nullptr, 10, &lost);
  ASSERT_TRUE(WaitUntil(*own_, [&] { return lost.done(); }));
  own_.reset();
  std::ifstream file("/proc/net/unix");
  const std::string sockets((std::istreambuf_iterator<char>(file)), {});
  for (const std::string& name : names_) {
    EXPECT_EQ(sockets.find(shm::ParseEndpointName(name)->socket), std::string::npos);
  }
}

// A sleeping rank is woken by another process.
TEST_F(ShmProcessTest, WakesASleepingProcess) {
  constexpr uint64_t kRounds = 300;
  constexpr int64_t kLongSleep = 20 * kSecond;
  auto play = [](Transport& transport) {
    const int peer = 1 - transport.rank();
    for (uint64_t round = 0; round < kRounds; ++round) {
      if (round % 2 == static_cast<uint64_t>(transport.rank())) {
        const int64_t pause = NowNanos() + static_cast<int64_t>(round * 1000 % 400'000);
        while (NowNanos() < pause) {
        }
        if (!transport.SendShort(peer, {round, 0}, {}).ok()) return 1;
        continue;
      }
      Transport::ShortMessage message;
      const auto arrived = [&] {
        transport.Progress();
        return transport.NextShort(&message);
      };
      while (!arrived()) {
        const int64_t start = NowNanos();
        transport.Wait(kLongSleep);
        if (NowNanos() - start < kLongSleep) continue;
        return arrived() ? 4 : 2;  // 4: it slept while the message was there
      }
      if (message.tag.operation != round) return 3;
    }
    return 0;
  };
  Start(2, play);
  EXPECT_EQ(play(*own_), 0);
  EXPECT_EQ(ExitCode(1), 0);
}

}  // namespace
}  // namespace tutti::net
