// Communicators that meet at a star, over shared memory and over sockets: the ranks are threads of
// this process, but nothing between them knows.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <cmath>
#include <filesystem>
#include <functional>
#include <set>

#include "tutti/base/status.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/net/address.h"
#include "tutti/net/socket.h"
#include "tutti/testing/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

using ::testing::HasSubstr;

class CreateTest : public testing::TestWithParam<const char*> {
 protected:
  CreateTest() {
    folder_ = std::filesystem::temp_directory_path() /
              ("tutti-create-" + std::to_string(::getpid()) + "-" + std::to_string(++made_));
    std::filesystem::create_directory(folder_);
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
  }
  ~CreateTest() override { std::filesystem::remove_all(folder_); }

  CommunicatorOptions Options(int rank, int size, const std::string& transport) const {
    return {.bootstrap = {.rank = rank,
                          .size = size,
                          .address = "",
                          .file = (folder_ / "meeting").string(),
                          .endpoints = {},
                          .token = "secret"},
            .transport = transport};
  }

  std::vector<absl::StatusOr<std::unique_ptr<Communicator>>> Create(
      int size, const std::function<CommunicatorOptions(int)>& options) const {
    std::vector<absl::StatusOr<std::unique_ptr<Communicator>>> made(size);
    std::vector<std::thread> threads;
    for (int r = 0; r < size; ++r) {
      threads.emplace_back([&, r] { made[r] = Communicator::Create(options(r)); });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
  }

  RanksUnderTest Ranks(int size, const std::string& transport) const {
    auto made = Create(size, [&](int r) { return Options(r, size, transport); });
    std::vector<std::unique_ptr<Communicator>> ranks;
    for (auto& one : made) {
      EXPECT_TRUE(one.ok()) << one.status();
      ranks.push_back(*std::move(one));
    }
    return RanksUnderTest(std::move(ranks));
  }

 private:
  static inline int made_ = 0;
  std::filesystem::path folder_;

 protected:
  std::string first_reason_;
};

TEST_P(CreateTest, AllAlgorithmsSum) {
  for (int size : {1, 2, 3, 5}) {
    RanksUnderTest ranks = Ranks(size, GetParam());
    ranks.Run([&](Communicator& communicator) {
      auto memory = communicator.Allocate(1 << 20);
      ASSERT_TRUE(memory.ok()) << memory.status();
      for (const Algorithm& algorithm : Algorithms()) {
        if (algorithm.needs_memory_links && GetParam() == std::string("tcp")) continue;
        for (int64_t count : {0, 1, 1000, 100'003}) {
          for (bool registered : {true, false}) {
            std::vector<float> own(static_cast<size_t>(count));
            float* data =
                registered ? reinterpret_cast<float*>((*memory)->bytes().data()) : own.data();
            for (int64_t i = 0; i < count; ++i) {
              data[i] = static_cast<float>(i % 7 + communicator.rank());
            }
            const absl::Status status =
                communicator.world()
                    .AllReduce(data, count, kFloat32, {.algorithm = algorithm.name})
                    .Wait();
            ASSERT_TRUE(status.ok()) << algorithm.name << ": " << status;
            for (int64_t i = 0; i < count; ++i) {
              ASSERT_EQ(data[i], static_cast<float>(size * (i % 7) + size * (size - 1) / 2))
                  << algorithm.name << ", element " << i << " of " << count;
            }
            ASSERT_TRUE(communicator.world().Barrier().Wait().ok());
          }
        }
      }
    });
  }
}

// Memory of a communicator may outlive it, and keeps the links open.
TEST_P(CreateTest, ARankThatLeftIsMissedThoughItsMemoryLives) {
  for (const int leaver : {0, 1}) {
    RanksUnderTest ranks = Ranks(2, GetParam());
    auto memory = ranks[leaver].Allocate(1 << 16);
    ASSERT_TRUE(memory.ok()) << memory.status();
    ranks.Drop(leaver);
    std::vector<float> data(1000, 1);
    const absl::Status status =
        ranks[1 - leaver].world().AllReduce(data.data(), 1000, kFloat32).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(MessageOf(status)),
                HasSubstr("rank " + std::to_string(leaver) + " left the job"));
  }
}

TEST_P(CreateTest, RanksThatDisagreeAllLearnOfIt) {
  RanksUnderTest ranks = Ranks(4, GetParam());
  ranks.Run([](Communicator& communicator) {
    std::vector<float> data(1001);
    const absl::Status status =
        communicator.world()
            .AllReduce(data.data(), communicator.rank() == 2 ? 1001 : 1000, kFloat32,
                       {.key = "grads/b3", .step = 7, .algorithm = "ring"})
            .Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("all-reduce \"grads/b3\", step 7"));
    EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("rank 2 gives 1001 float32"));
  });
}

TEST_P(CreateTest, FiguresOfLinksAreKeptAndGiveReasons) {
  for (bool kept : {false, true}) {
    RanksUnderTest ranks = Ranks(2, GetParam());
    std::vector<std::string> reasons(2);
    for (int r = 0; r < 2; ++r) {
      reasons[r] = ranks[r].world().Explain(Operation::kAllReduce, 64 << 20);
    }
    EXPECT_EQ(reasons[0], reasons[1]);
    EXPECT_THAT(reasons[0], HasSubstr("all-reduce of 67.11 MB, 2 ranks on"));
    EXPECT_THAT(reasons[0], HasSubstr("predicted"));
    if (kept) {
      EXPECT_EQ(reasons[0], first_reason_);
    }
    first_reason_ = reasons[0];
  }
}

// A rank whose part is done may go while others still work on theirs.
TEST_P(CreateTest, OneThatLeavesAfterItsLastOperationHurtsNobody) {
  for (int round = 0; round < 5; ++round) {
    RanksUnderTest ranks = Ranks(4, GetParam());
    ranks.Run([&](Communicator& communicator) {
      const int r = communicator.rank();
      std::vector<float> data(1000, 1);
      const absl::Status status =
          communicator.world().AllReduce(data.data(), 1000, kFloat32, {.algorithm = "tree"}).Wait();
      EXPECT_TRUE(status.ok()) << "rank " << r << ": " << status;
      EXPECT_EQ(data[999], 4);
      ranks.Drop(r);
    });
  }
}

TEST_P(CreateTest, OneThatLeavesTooEarlyIsNamed) {
  RanksUnderTest ranks = Ranks(3, GetParam());
  std::barrier meet(3);
  ranks.Run([&](Communicator& communicator) {
    EXPECT_TRUE(communicator.world().Barrier().Wait().ok());
    meet.arrive_and_wait();
    if (communicator.rank() == 1) {
      ranks.Drop(1);
      return;
    }
    std::vector<float> data(1000);
    const absl::Status status = communicator.world().AllReduce(data.data(), 1000, kFloat32).Wait();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(MessageOf(status)), HasSubstr("rank 1"));
  });
}

INSTANTIATE_TEST_SUITE_P(Transports, CreateTest, testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_F(CreateTest, MistakesAreTold) {
  const auto message = [](const CommunicatorOptions& options) {
    return std::string(MessageOf(Communicator::Create(options).status()));
  };
  CommunicatorOptions options = Options(0, 1, "auto");
  options.transport = "pigeon";
  EXPECT_THAT(message(options), HasSubstr("expected auto, shm, tcp, ucx or shm+ucx"));
  options = Options(2, 2, "auto");
  EXPECT_THAT(message(options), HasSubstr("rank is 2, expected 0 to 1"));
  options = Options(0, 0, "auto");
  EXPECT_THAT(message(options), HasSubstr("size is 0"));
  options = Options(0, 1, "auto");
  options.bootstrap.generation = -1;
  EXPECT_THAT(message(options), HasSubstr("generation is -1, expected 0 or more"));
  for (const double seconds : {0.0, -1.0, std::nan("")}) {
    options = Options(0, 1, "auto");
    options.late_seconds = seconds;
    EXPECT_THAT(message(options), HasSubstr("late_seconds is "));
  }
  options = Options(0, 1, "auto");
  options.bootstrap.address = "127.0.0.1:1";
  EXPECT_THAT(message(options), HasSubstr("give exactly one"));
  options.bootstrap.address = options.bootstrap.file = "";
  options.bootstrap.endpoints = {"127.0.0.1:1", "127.0.0.1:2"};
  EXPECT_THAT(message(options), HasSubstr("2 endpoints for 1 ranks"));
}

TEST_F(CreateTest, AllLearnWhyARankCannotOpenItsLinks) {
  // Rank 1 is to listen where somebody else does.
  const auto addresses = net::Resolve({"127.0.0.1", 0});
  ASSERT_TRUE(addresses.ok());
  const auto occupied = net::Listen(addresses->front());
  auto free = net::Listen(addresses->front());
  ASSERT_TRUE(occupied.ok() && free.ok());
  const std::string meeting = net::ToString(*net::LocalAddress(free->fd()));
  const std::string taken = net::ToString(*net::LocalAddress(occupied->fd()));
  free->Close();
  auto made = Create(2, [&](int r) {
    CommunicatorOptions options = Options(r, 2, "tcp");
    options.bootstrap.file.clear();
    options.bootstrap.endpoints = {meeting, taken};
    return options;
  });
  EXPECT_THAT(std::string(MessageOf(made[0].status())),
              HasSubstr("rank 1 cannot join: cannot listen at " + taken));
  EXPECT_THAT(std::string(MessageOf(made[1].status())), HasSubstr("cannot listen at " + taken));
}

// The ports of this host at which this process listens.
std::set<uint16_t> ListeningPorts() {
  std::set<uint16_t> ports;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename());
    int listens = 0;
    socklen_t length = sizeof(listens);
    const absl::StatusOr<net::Address> address = net::LocalAddress(fd);
    if (!address.ok() || getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0)
      continue;
    const bool internet = address->family() == AF_INET || address->family() == AF_INET6;
    if (listens == 1 && internet) ports.insert(address->port());
  }
  return ports;
}

// Firewalls open the ports of the cluster spec, and no others.
TEST_F(CreateTest, RanksListenAtTheirEndpointsOnly) {
  const auto addresses = net::Resolve({"127.0.0.1", 0});
  ASSERT_TRUE(addresses.ok());
  for (const std::string transport : {"tcp", "auto"}) {
    std::vector<std::string> endpoints;
    std::set<uint16_t> ports;
    {
      std::vector<net::Socket> free;
      for (int r = 0; r < 3; ++r) {
        free.push_back(net::Listen(addresses->front()).value());
        const net::Address bound = net::LocalAddress(free.back().fd()).value();
        endpoints.push_back(net::ToString(bound));
        // Where memory joins all ranks, they only need rank 0.
        if (transport == "tcp" || r == 0) ports.insert(bound.port());
      }
    }
    auto made = Create(3, [&](int r) {
      CommunicatorOptions options = Options(r, 3, transport);
      options.bootstrap.file.clear();
      options.bootstrap.endpoints = endpoints;
      return options;
    });
    std::vector<std::unique_ptr<Communicator>> communicators;
    for (auto& one : made) {
      ASSERT_TRUE(one.ok()) << one.status();
      communicators.push_back(*std::move(one));
    }
    RanksUnderTest ranks(std::move(communicators));
    ranks.Run([&](Communicator& communicator) {
      std::vector<float> data(300'000, 1);  // streams for bulk, too
      const absl::Status status =
          communicator.world().AllReduce(data.data(), int64_t(data.size()), kFloat32).Wait();
      EXPECT_TRUE(status.ok()) << status;
      EXPECT_EQ(data.back(), 3);
    });
    EXPECT_EQ(ListeningPorts(), ports) << transport;
  }
}

TEST_F(CreateTest, OptionsThatDifferAreTold) {
  auto made = Create(2, [&](int r) {
    CommunicatorOptions options = Options(r, 2, r == 0 ? "tcp" : "shm");
    options.bootstrap.timeout_seconds = 2;
    return options;
  });
  for (const auto& one : made) {
    ASSERT_FALSE(one.ok());
    EXPECT_THAT(std::string(MessageOf(one.status())), HasSubstr("transport"));
  }
}

}  // namespace
}  // namespace tutti::collective
