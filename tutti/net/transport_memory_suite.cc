// What every Transport must do with memory that peers reach.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net {

TEST_P(TransportSuite, PutsAndGets) {
  Make(2);
  for (size_t size : {1u, 5000u, 3'000'001u}) {
    SCOPED_TRACE(size);
    auto memory = at(1).Allocate(size + 8);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*memory)->bytes().data()) % 4096, 0u);
    EXPECT_TRUE(
        std::ranges::all_of((*memory)->bytes(), [](std::byte b) { return b == std::byte{}; }));
    const std::vector<std::byte> data = Pattern(size, size);
    MemoryKey key = (*memory)->key();
    key.offset += 5;
    Watched put;
    at(0).Put(1, key, data, &put);
    ASSERT_TRUE(Drive([&] { return put.done(); }));
    EXPECT_TRUE(put.status().ok()) << put.status();
    EXPECT_TRUE(std::ranges::equal((*memory)->bytes().subspan(5, size), data));
    std::vector<std::byte> back(size);
    Watched get;
    at(0).Get(1, key, back, &get);
    ASSERT_TRUE(Drive([&] { return get.done(); }));
    EXPECT_TRUE(get.status().ok()) << get.status();
    EXPECT_EQ(back, data);
  }
}

TEST_P(TransportSuite, RefusesToReachBeyondMemory) {
  Make(2);
  auto memory = at(1).Allocate(1000);
  ASSERT_TRUE(memory.ok());
  const MemoryKey key = (*memory)->key();
  std::vector<std::byte> data(1000);
  const MemoryKey bad[] = {{key.region, key.offset + 1},
                           {key.region, UINT64_MAX - 3},
                           {key.region + 1000, 0},
                           {0, 0},
                           {UINT32_MAX, reinterpret_cast<uintptr_t>(data.data())}};
  for (const MemoryKey& wrong : bad) {
    SCOPED_TRACE(testing::Message() << wrong.region << "+" << wrong.offset);
    Watched put;
    Watched get;
    at(0).Put(1, wrong, data, &put);
    ASSERT_TRUE(Drive([&] { return put.done(); }));
    EXPECT_FALSE(put.status().ok());
    at(0).Get(1, wrong, data, &get);
    ASSERT_TRUE(Drive([&] { return get.done(); }));
    EXPECT_FALSE(get.status().ok());
    if (shares_memory()) {
      EXPECT_FALSE(at(0).Map(1, wrong, 1000).ok());
    }
  }
  CheckMessage(Pattern(10, 1), {1, 1}, nullptr);
}

TEST_P(TransportSuite, MapsPeersMemory) {
  Make(2);
  if (!shares_memory()) GTEST_SKIP() << "the ranks share no memory";
  auto memory = at(1).Allocate(5 << 20);
  ASSERT_TRUE(memory.ok());
  auto mapped = at(0).Map(1, (*memory)->key(), 5 << 20);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  (*mapped)[(5 << 20) - 1] = std::byte{42};
  EXPECT_EQ((*memory)->bytes().back(), std::byte{42});
  auto own = at(1).Map(1, (*memory)->key(), 10);
  ASSERT_TRUE(own.ok());
  EXPECT_EQ(*own, (*memory)->bytes().data());
}

TEST_P(TransportSuite, KnowsTheKeyOfItsMemory) {
  Make(2);
  auto one = at(0).Allocate(10'000);
  auto two = at(0).Allocate(10'000);
  ASSERT_TRUE(one.ok() && two.ok());
  std::byte* data = (*two)->bytes().data();
  EXPECT_EQ(at(0).KeyOf(data, 10'000), (*two)->key());
  MemoryKey inside = (*two)->key();
  inside.offset += 77;
  EXPECT_EQ(at(0).KeyOf(data + 77, 9'923), inside);
  EXPECT_EQ(at(0).KeyOf(data + 77, 9'924).region, 0u);
  EXPECT_EQ(at(1).KeyOf(data, 10).region, 0u) << "another rank's memory";
  int local = 0;
  EXPECT_EQ(at(0).KeyOf(&local, sizeof(local)).region, 0u);
  two->reset();
  EXPECT_EQ(at(0).KeyOf(data, 10).region, 0u) << "memory given back";
}

TEST_P(TransportSuite, ForgetsMemoryGivenBack) {
  Make(2);
  for (int i = 0; i < 70; ++i) {
    auto memory = at(1).Allocate(100'000);
    ASSERT_TRUE(memory.ok());
    std::byte byte{7};
    Watched put;
    at(0).Put(1, (*memory)->key(), ConstBytes(&byte, 1), &put);
    ASSERT_TRUE(Drive([&] { return put.done(); }));
    ASSERT_TRUE(put.status().ok()) << put.status();
    EXPECT_EQ((*memory)->bytes()[0], byte);
    const MemoryKey key = (*memory)->key();
    memory->reset();
    // The news needs some time to reach the peer.
    ASSERT_TRUE(Drive([&] {
      Watched late;
      at(0).Put(1, key, ConstBytes(&byte, 1), &late);
      return Drive([&] { return late.done(); }) && !late.status().ok();
    }));
  }
}

TEST_P(TransportSuite, MemoryOutlivesTheTransport) {
  Make(2);
  auto memory = at(0).Allocate(1000);
  ASSERT_TRUE(memory.ok());
  ranks_.clear();
  (*memory)->bytes()[999] = std::byte{1};
  memory->reset();
}

}  // namespace tutti::net
