#include "tutti/net/link/shared_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cstring>
#include <future>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/net/link/link_test_task.h"

namespace tutti::net {
namespace {

const std::string kA = "/job:worker/task:0";
const std::string kB = "/job:ps/task:0";

TEST(SharedMemory, BlocksComeBackAndAreUsedAgain) {
  SharedMemory memory;
  const std::byte* first = nullptr;
  for (const size_t bytes : {size_t{1}, size_t{100'000}, size_t{5'000'000}}) {
    SharedMemory::Block block = ValueOrThrow(memory.Allocate(bytes));
    EXPECT_EQ(block.bytes.size(), bytes);
    std::memset(block.bytes.data(), 1, bytes);
    first = block.bytes.data();
    EXPECT_GE(memory.usage().in_use, bytes);
    block.owner.reset();
    EXPECT_EQ(memory.usage().in_use, 0u);
    EXPECT_EQ(ValueOrThrow(memory.Allocate(bytes)).bytes.data(), first);
  }
  EXPECT_GT(memory.usage().idle, 5'000'000u);
  memory.Trim();
  EXPECT_EQ(memory.usage().idle, 0u);
  EXPECT_EQ(memory.usage().regions, 0u);
}

// Small blocks share regions, and a region stays while one of its blocks is used.
TEST(SharedMemory, SmallBlocksAreCutFromSlabs) {
  SharedMemory memory;
  std::vector<SharedMemory::Block> blocks;
  for (int i = 0; i < 64; ++i) blocks.push_back(ValueOrThrow(memory.Allocate(32 << 10)));
  EXPECT_EQ(memory.usage().regions, 1u);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto place = memory.Find(blocks[i].bytes.data(), blocks[i].bytes.size());
    ASSERT_TRUE(place.has_value());
    std::memset(blocks[i].bytes.data(), static_cast<int>(i), blocks[i].bytes.size());
  }
  for (size_t i = 0; i < blocks.size(); ++i) {
    EXPECT_EQ(blocks[i].bytes.back(), static_cast<std::byte>(i));
  }
  blocks.resize(1);
  memory.Trim();
  EXPECT_EQ(memory.usage().regions, 1u);
  blocks.clear();
  memory.Trim();
  EXPECT_EQ(memory.usage().regions, 0u);
}

TEST(SharedMemory, KeepsNoMoreIdleThanItMay) {
  SharedMemory memory(/*idle_bytes=*/3 << 20);
  std::vector<SharedMemory::Block> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(ValueOrThrow(memory.Allocate(1 << 20)));
  blocks.clear();
  EXPECT_LE(memory.usage().idle, uint64_t{3} << 20);
  EXPECT_LE(memory.usage().regions, 3u);
}

TEST(SharedMemory, FindsOnlyWhatLiesInsideIt) {
  SharedMemory memory;
  const SharedMemory::Block block = ValueOrThrow(memory.Allocate(4 << 20));
  EXPECT_EQ(memory.Find(block.bytes.data() + 100, 1000)->offset, 100u);
  EXPECT_FALSE(memory.Find(block.bytes.data() + 100, 4 << 20).has_value());
  EXPECT_FALSE(memory.Find(&memory, 1).has_value());
  EXPECT_EQ(memory.Allocate(size_t{1} << 60).status().code(), absl::StatusCode::kResourceExhausted);
}

// Every region takes a file; a program with many tensors must not use up its descriptors by them.
TEST(SharedMemory, TakesAShareOfTheDescriptors) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  rlimit few = before;
  few.rlim_cur = 200;
  setrlimit(RLIMIT_NOFILE, &few);
  SharedMemory memory;
  setrlimit(RLIMIT_NOFILE, &before);
  std::vector<SharedMemory::Block> blocks;
  absl::Status status;
  while (status.ok() && blocks.size() < 100) {
    absl::StatusOr<SharedMemory::Block> block = memory.Allocate(1 << 20);
    status = block.status();
    if (block.ok()) blocks.push_back(*std::move(block));
  }
  EXPECT_EQ(blocks.size(), 50u);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  blocks.pop_back();
  EXPECT_TRUE(memory.Allocate(2 << 20).ok());  // what lies idle gives way
}

// What was born in shared memory is read where it lies: no Place, no copy.
TEST(SharedMemory, PayloadsAreReadInPlace) {
  TestNode a(kA, 1);
  TestNode b(kB, 2, nullptr, -1, [](Recorder* events) { events->keep = true; });
  const auto link = a.To(b, kB);
  SharedMemory::Block block = ValueOrThrow(a.links->memory()->Allocate(1 << 20));
  std::memset(block.bytes.data(), 7, block.bytes.size());
  std::byte* const data = block.bytes.data();
  link->Send("x", {{block.bytes, std::move(block.owner)}});
  ASSERT_TRUE(b.events.WaitForMessages(1));
  EXPECT_EQ(b.events.places_asked, 0);
  Payload& payload = b.events.kept[0];
  ASSERT_NE(payload.owner, nullptr);
  EXPECT_EQ(payload.bytes.size(), size_t{1} << 20);
  EXPECT_EQ(payload.bytes[12345], std::byte{7});
  EXPECT_EQ(a.links->memory()->usage().in_use, uint64_t{1} << 20);  // held for the receiver
  data[12345] = std::byte{8};
  EXPECT_EQ(payload.bytes[12345], std::byte{8});  // the same memory

  payload.owner.reset();
  // The answer leaves behind the release.
  std::promise<void> answered;
  a.events.CallOnReceived([&](Link&, std::string_view, const auto&) { answered.set_value(); });
  b.links->All()[0]->Send("answer", {});
  answered.get_future().wait();
  EXPECT_EQ(a.links->memory()->usage().in_use, 0u);
}

// Memory of another kind is copied once, by the sender.
TEST(SharedMemory, OtherPayloadsAreCopiedOnce) {
  TestNode a(kA, 1), b(kB, 2);
  const std::string text(5 << 20, 'z');
  a.To(b, kB)->Send("x", {PayloadOf(text), PayloadOf("tiny")});
  ASSERT_TRUE(b.events.WaitForMessages(1));
  EXPECT_EQ(b.events.places_asked, 0);
  EXPECT_TRUE(b.events.messages[0].payloads[0] == text);
  EXPECT_EQ(b.events.messages[0].payloads[1], "tiny");
}

TEST(SharedMemory, AMappedPayloadOutlivesTheSender) {
  TestNode b(kB, 2, nullptr, -1, [](Recorder* events) { events->keep = true; });
  {
    TestNode a(kA, 1);
    a.To(b, kB)->Send("x", {PayloadOf(std::string(5 << 20, 'z'))});
    ASSERT_TRUE(b.events.WaitForMessages(1));
  }
  ASSERT_FALSE(b.events.WaitForEnd().ok());
  EXPECT_EQ(b.events.kept[0].bytes[5'000'000], static_cast<std::byte>('z'));
  b.events.kept.clear();
}

// Regions that the sender gave back are unmapped by the receiver, and new ones take their place.
TEST(SharedMemory, RegionsComeAndGo) {
  TestNode a(kA, 1), b(kB, 2);
  const auto link = a.To(b, kB);
  for (int i = 0; i < 20; ++i) {
    SharedMemory::Block block = ValueOrThrow(a.links->memory()->Allocate(2 << 20));
    std::memset(block.bytes.data(), i, block.bytes.size());
    link->Send("x", {{block.bytes, std::move(block.owner)}});
    ASSERT_TRUE(b.events.WaitForMessages(static_cast<size_t>(i) + 1));
    const char got =
        b.events.Locked<char>([&] { return b.events.messages.back().payloads[0][1000]; });
    EXPECT_EQ(got, static_cast<char>(i));
    a.links->memory()->Trim();
  }
}

}  // namespace
}  // namespace tutti::net
