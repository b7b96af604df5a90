// Ranks on several hosts: memory within, sockets between.
#include "tutti/net/mesh.h"

#include <gtest/gtest.h>

#include <thread>

#include "tutti/base/clock.h"
#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/in_process.h"
#include "tutti/net/shm/shm_transport.h"
#include "tutti/net/tcp/tcp_transport.h"
#include "tutti/testing/collective/ranks_under_test.h"

namespace tutti::collective {
namespace {

// Ranks as if they were on the given hosts: those of one host are joined by shared memory.
RanksUnderTest MeshOf(const std::vector<int>& hosts) {
  const int size = static_cast<int>(hosts.size());
  std::vector<std::unique_ptr<net::ShmEndpoint>> endpoints;
  std::vector<std::unique_ptr<net::TcpTransport>> sockets;
  std::vector<std::string> addresses;
  for (int r = 0; r < size; ++r) {
    endpoints.push_back(std::move(net::ShmEndpoint::Open()).value());
    sockets.push_back(std::move(net::TcpTransport::Listen({.rank = r, .size = size})).value());
    addresses.push_back(sockets[r]->endpoint());
  }
  std::vector<std::string> names;
  for (const auto& endpoint : endpoints) names.push_back(endpoint->name());
  std::vector<std::unique_ptr<net::Transport>> transports(size);
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r) {
    threads.emplace_back([&, r] {
      net::ShmOptions options{.rank = r, .size = size, .names = names};
      for (int peer = 0; peer < size; ++peer) {
        if (hosts[peer] != hosts[r]) options.names[peer].clear();
      }
      auto memory = net::ShmTransport::Connect(std::move(endpoints[r]), options);
      ASSERT_TRUE(memory.ok()) << memory.status();
      ASSERT_TRUE(sockets[r]->Connect(addresses).ok());
      auto mesh = net::Mesh::Create(*std::move(memory), std::move(sockets[r]));
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      transports[r] = *std::move(mesh);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return RanksUnderTest(JoinInProcess(std::move(transports), hosts));
}

// As a lane of a training step does: all buckets are started, then polled until all are done.
TEST(Mesh, ManyOperationsUnderWayAllEnd) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 1, 2, 3}, {0, 0, 1, 1}}) {
    RanksUnderTest ranks = MeshOf(hosts);
    ranks.Run([](Communicator& communicator) {
      constexpr int kBuckets = 6, kSteps = 4;
      constexpr int64_t kCount = 1'000'000;
      std::vector<std::vector<float>> data(kBuckets, std::vector<float>(kCount));
      for (int step = 0; step < kSteps; ++step) {
        std::vector<Handle> handles;
        for (int b = 0; b < kBuckets; ++b) {
          data[b].assign(kCount, static_cast<float>(b + step));
          handles.push_back(communicator.world().AllReduce(data[b].data(), kCount, kFloat32,
                                                           {.key = std::to_string(b)}));
        }
        const int64_t deadline = NowNanos() + 30'000'000'000;
        for (const Handle& handle : handles) {
          while (!handle.done() && NowNanos() < deadline) {
            if (!communicator.Poll()) communicator.WaitForWork(1'000'000);
          }
          ASSERT_TRUE(handle.done()) << "step " << step;
        }
        for (int b = 0; b < kBuckets; ++b) {
          ASSERT_EQ(data[b].back(), 4 * static_cast<float>(b + step));
        }
      }
    });
  }
}

TEST(Mesh, LinksAreMemoryWithinAHostAndSocketsBetween) {
  RanksUnderTest ranks = MeshOf({0, 0, 1});
  ranks.Run(
      [](Communicator& communicator) { ASSERT_TRUE(communicator.world().Barrier().Wait().ok()); });
}

TEST(Mesh, EveryAlgorithmThatCanSums) {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 1, 1}, {0, 1, 0}, {3, 5, 5}}) {
    RanksUnderTest ranks = MeshOf(hosts);
    const int size = ranks.size();
    ranks.Run([&](Communicator& communicator) {
      auto memory = communicator.Allocate(1 << 20);
      ASSERT_TRUE(memory.ok()) << memory.status();
      for (const Algorithm& algorithm : Algorithms()) {
        if (algorithm.name == "direct") continue;
        for (int64_t count : {1, 1000, 100'003}) {
          for (bool registered : {true, false}) {
            std::vector<float> own(static_cast<size_t>(count));
            float* data =
                registered ? reinterpret_cast<float*>((*memory)->bytes().data()) : own.data();
            for (int64_t i = 0; i < count; ++i) {
              data[i] = static_cast<float>(i % 7 + communicator.rank());
            }
            const Handle handle = communicator.world().AllReduce(data, count, kFloat32,
                                                                 {.algorithm = algorithm.name});
            ASSERT_TRUE(handle.Wait().ok()) << algorithm.name << ": " << handle.Wait();
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

}  // namespace
}  // namespace tutti::collective
