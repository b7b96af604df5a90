#include "tutti/net/coordination/store/memory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/status.h"

namespace tutti::net {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

class MemoryStoreTest : public testing::Test {
 protected:
  MemoryStore store_{{.now = [this] { return now_.load(); }, .max_history = 20}};
  std::atomic<int64_t> now_ = 0;

  std::vector<std::string> Keys(std::string_view prefix = "") {
    std::vector<std::string> keys;
    for (const StoreEntry& entry : ValueOrThrow(store_.List(prefix)).entries) {
      keys.push_back(entry.key);
    }
    return keys;
  }
  int64_t Put(const std::string& key, const std::string& value, LeaseId lease = 0) {
    return ValueOrThrow(store_.Put(key, value, {.lease = lease}));
  }
};

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

// "+key=value@version" or "-key@version".
std::vector<std::string> TextOf(std::span<const StoreEvent> events) {
  std::vector<std::string> texts;
  for (const StoreEvent& event : events) {
    const bool put = event.kind == StoreEvent::Kind::kPut;
    texts.push_back(fmt::format("{}{}{}@{}", put ? "+" : "-", event.entry.key,
                                put ? "=" + event.entry.value : "", event.entry.version));
  }
  return texts;
}

TEST_F(MemoryStoreTest, EveryChangeIsARevision) {
  EXPECT_EQ(store_.revision(), 0);
  EXPECT_EQ(Put("a", "1"), 1);
  EXPECT_EQ(Put("b", "2"), 2);
  EXPECT_EQ(Put("a", "3"), 3);
  EXPECT_EQ(ValueOrThrow(store_.Get("a")),
            (StoreEntry{.key = "a", .value = "3", .created = 1, .version = 3}));
  EXPECT_EQ(ValueOrThrow(store_.Delete("a", std::nullopt)), 4);
  EXPECT_EQ(ValueOrThrow(store_.Get("a")), std::nullopt);
  EXPECT_EQ(store_.Delete("a", std::nullopt).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.revision(), 4);
  // A key that comes back is another one.
  Put("a", "4");
  EXPECT_EQ(ValueOrThrow(store_.Get("a"))->created, 5);
}

TEST_F(MemoryStoreTest, ListsByPrefix) {
  for (const char* key : {"job/b", "job/a", "job", "jobs", "k", "job/c/d"}) Put(key, "");
  EXPECT_THAT(Keys("job/"), ElementsAre("job/a", "job/b", "job/c/d"));
  EXPECT_THAT(Keys("job"), ElementsAre("job", "job/a", "job/b", "job/c/d", "jobs"));
  EXPECT_EQ(Keys("").size(), 6u);
  EXPECT_THAT(Keys("x"), ElementsAre());
  EXPECT_EQ(ValueOrThrow(store_.List("job/")).revision, 6);
}

TEST_F(MemoryStoreTest, PutsIfTheVersionIsTheExpectedOne) {
  EXPECT_EQ(ValueOrThrow(store_.Put("a", "1", {.if_version = 0})), 1);
  const absl::Status there = store_.Put("a", "2", {.if_version = 0}).status();
  EXPECT_EQ(there.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(TextOf(there), "key 'a': expected no such key, but it is 1");
  EXPECT_EQ(ValueOrThrow(store_.Put("a", "2", {.if_version = 1})), 2);
  EXPECT_EQ(TextOf(store_.Put("a", "3", {.if_version = 1}).status()),
            "key 'a': expected version 1, but it is 2");
  EXPECT_EQ(TextOf(store_.Put("b", "3", {.if_version = 1}).status()),
            "key 'b': expected version 1, but there is no such key");
  EXPECT_EQ(store_.Delete("a", 1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ValueOrThrow(store_.Get("a"))->value, "2");
  EXPECT_TRUE(store_.Delete("a", 2).ok());
  // A key that was deleted and made again has not the version that somebody remembers.
  Put("a", "5");
  EXPECT_FALSE(store_.Put("a", "6", {.if_version = 2}).ok());
  EXPECT_EQ(store_.revision(), 4);
}

// Leases -----------------------------------------------------------------------------------------

TEST_F(MemoryStoreTest, KeysGoWithTheirLease) {
  const LeaseId lease = ValueOrThrow(store_.Grant(5));
  Put("task/0", "alive", lease);
  Put("task/1", "for ever");
  EXPECT_EQ(store_.Expire(), 5 * kSecond);
  now_ = 5 * kSecond - 1;
  EXPECT_EQ(Keys().size(), 2u);
  now_ = 5 * kSecond;
  EXPECT_THAT(Keys(), ElementsAre("task/1"));
  EXPECT_EQ(store_.revision(), 3);
  EXPECT_EQ(TextOf(store_.KeepAlive(lease)), "lease 1 is over");
  EXPECT_EQ(store_.Put("task/0", "back", {.lease = lease}).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(store_.Expire(), 0);
}

TEST_F(MemoryStoreTest, KeepAliveProlongs) {
  const LeaseId lease = ValueOrThrow(store_.Grant(5));
  Put("a", "", lease);
  for (int i = 0; i < 10; ++i) {
    now_ = now_ + 4 * kSecond;
    EXPECT_TRUE(store_.KeepAlive(lease).ok());
  }
  EXPECT_EQ(Keys().size(), 1u);
  EXPECT_EQ(store_.Expire(), 45 * kSecond);
  now_ = now_ + 5 * kSecond;
  EXPECT_FALSE(store_.KeepAlive(lease).ok());
  EXPECT_TRUE(Keys().empty());
}

TEST_F(MemoryStoreTest, RevokeEndsALeaseAtOnce) {
  const LeaseId lease = ValueOrThrow(store_.Grant(5));
  Put("a", "", lease);
  Put("b", "", lease);
  EXPECT_TRUE(store_.Revoke(lease).ok());
  EXPECT_TRUE(Keys().empty());
  EXPECT_EQ(store_.Revoke(lease).code(), absl::StatusCode::kNotFound);
}

TEST_F(MemoryStoreTest, AKeyBelongsToItsLastLease) {
  const LeaseId first = ValueOrThrow(store_.Grant(5)), second = ValueOrThrow(store_.Grant(5));
  Put("a", "", first);
  Put("a", "", second);
  Put("b", "", first);
  Put("b", "");
  EXPECT_TRUE(store_.Revoke(first).ok());
  EXPECT_THAT(Keys(), ElementsAre("a", "b"));
  EXPECT_TRUE(store_.Revoke(second).ok());
  EXPECT_THAT(Keys(), ElementsAre("b"));
}

// A task that took a role, lost it with its lease and is late is told apart by the revisions.
TEST_F(MemoryStoreTest, RevisionsFence) {
  const LeaseId lease = ValueOrThrow(store_.Grant(1));
  const int64_t first = ValueOrThrow(store_.Put("chief", "0", {.lease = lease, .if_version = 0}));
  now_ = 2 * kSecond;
  const LeaseId other = ValueOrThrow(store_.Grant(1));
  const int64_t second = ValueOrThrow(store_.Put("chief", "1", {.lease = other, .if_version = 0}));
  EXPECT_GT(second, first);
  EXPECT_FALSE(store_.Put("chief", "0", {.if_version = first}).ok());
}

// Watches ----------------------------------------------------------------------------------------

TEST_F(MemoryStoreTest, WatchesTellOfChangesInOrder) {
  Put("a/1", "x");
  Put("b/1", "x");
  Put("a/1", "y");
  std::vector<std::string> seen, late;
  const auto note = [](std::vector<std::string>* into) {
    return [into](std::span<const StoreEvent> events) {
      for (std::string& text : TextOf(events)) into->push_back(std::move(text));
    };
  };
  auto watch = ValueOrThrow(store_.StartWatch("a/", 1, note(&seen)));
  auto from_now = ValueOrThrow(store_.StartWatch("a/", store_.revision() + 1, note(&late)));
  EXPECT_THAT(seen, ElementsAre("+a/1=x@1", "+a/1=y@3"));
  const LeaseId lease = ValueOrThrow(store_.Grant(1));
  Put("a/2", "z", lease);
  Put("b/2", "z", lease);
  now_ = kSecond;
  store_.Expire();
  EXPECT_THAT(seen, ElementsAre("+a/1=x@1", "+a/1=y@3", "+a/2=z@4", "-a/2@6"));
  EXPECT_THAT(late, ElementsAre("+a/2=z@4", "-a/2@6"));
  watch.reset();
  Put("a/3", "");
  EXPECT_EQ(seen.size(), 4u);
  EXPECT_EQ(late.size(), 3u);
}

TEST_F(MemoryStoreTest, WhatIsForgottenIsSaid) {
  for (int i = 0; i < 30; ++i) Put("a", std::to_string(i));
  const auto nothing = [](std::span<const StoreEvent>) {};
  const absl::Status status = store_.StartWatch("", 10, nothing).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(TextOf(status), "changes since revision 10 are asked for; they are known since 11");
  size_t seen = 0;
  auto watch = ValueOrThrow(
      store_.StartWatch("", 11, [&](std::span<const StoreEvent> events) { seen = events.size(); }));
  EXPECT_EQ(seen, 20u);
}

// A change made in a call of a watch is told after it, not inside of it.
TEST_F(MemoryStoreTest, WatchesMayChangeTheStore) {
  std::vector<std::string> seen;
  bool inside = false;
  auto watch = ValueOrThrow(store_.StartWatch("", 1, [&](std::span<const StoreEvent> events) {
    EXPECT_FALSE(inside);
    inside = true;
    for (const std::string& text : TextOf(events)) seen.push_back(text);
    if (seen.size() < 4) Put("a", std::to_string(seen.size()));
    inside = false;
  }));
  Put("a", "0");
  EXPECT_THAT(seen, ElementsAre("+a=0@1", "+a=1@2", "+a=2@3", "+a=3@4"));
}

TEST_F(MemoryStoreTest, AWatchMayEndInItsOwnCall) {
  std::unique_ptr<Store::Watch> watch;
  int calls = 0;
  watch = ValueOrThrow(store_.StartWatch("", 1, [&](std::span<const StoreEvent>) {
    ++calls;
    watch.reset();
  }));
  Put("a", "1");
  Put("a", "2");
  EXPECT_EQ(calls, 1);
}

TEST_F(MemoryStoreTest, NoCallAfterTheEndOfAWatch) {
  std::promise<void> in_call, go_on;
  std::atomic<bool> ended = false;
  auto watch = ValueOrThrow(store_.StartWatch("", 1, [&](std::span<const StoreEvent>) {
    in_call.set_value();
    go_on.get_future().wait();
    EXPECT_FALSE(ended);
  }));
  std::thread writer([&] { Put("a", "1"); });
  in_call.get_future().wait();
  std::thread ender([&] {
    watch.reset();
    ended = true;
  });
  go_on.set_value();
  ender.join();
  writer.join();
}

// Many threads count up one key each by put-if-version; a watch sees every revision once, in order.
TEST(MemoryStore, ThreadsAgree) {
  MemoryStore store;
  int64_t last = 0;
  auto watch = ValueOrThrow(store.StartWatch("", 1, [&](std::span<const StoreEvent> events) {
    for (const StoreEvent& event : events) {
      EXPECT_EQ(event.entry.version, last + 1);
      last = event.entry.version;
    }
  }));
  constexpr int kThreads = 4, kCounts = 300;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int done = 0; done < kCounts;) {
        const auto entry = ValueOrThrow(store.Get("counter"));
        const int count = entry.has_value() ? std::stoi(entry->value) : 0;
        const int64_t version = entry.has_value() ? entry->version : 0;
        done += store.Put("counter", std::to_string(count + 1), {.if_version = version}).ok();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ValueOrThrow(store.Get("counter"))->value, std::to_string(kThreads * kCounts));
  EXPECT_EQ(last, kThreads * kCounts);
}

// Random changes, against a plain map and the list that a watch built up from a List.
TEST(MemoryStore, AListAndAWatchGiveTheStore) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  std::atomic<int64_t> now = 0;
  MemoryStore store({.now = [&] { return now.load(); }});
  std::map<std::string, StoreEntry> mirror;
  std::unique_ptr<Store::Watch> watch;
  std::vector<LeaseId> leases = {0};
  for (int i = 0; i < 3000; ++i) {
    if (i % 500 == 250) {
      watch.reset();
      mirror.clear();
      const Store::Range range = ValueOrThrow(store.List(""));
      for (const StoreEntry& entry : range.entries) mirror[entry.key] = entry;
      watch = ValueOrThrow(
          store.StartWatch("", range.revision + 1, [&](std::span<const StoreEvent> events) {
            for (const StoreEvent& event : events) {
              if (event.kind == StoreEvent::Kind::kPut) {
                mirror[event.entry.key] = event.entry;
              } else {
                mirror.erase(event.entry.key);
              }
            }
          }));
    }
    const std::string key = "k" + std::to_string(random() % 20);
    const LeaseId lease = leases[random() % leases.size()];
    switch (random() % 6) {
      case 0:
        (void)store.Delete(key, std::nullopt);
        break;
      case 1:
        leases.push_back(ValueOrThrow(store.Grant(1 + random() % 5)));
        break;
      case 2:
        (void)store.KeepAlive(lease);
        break;
      case 3:
        now = now + static_cast<int64_t>(random() % kSecond);
        store.Expire();
        break;
      default:
        (void)store.Put(key, std::to_string(i), {.lease = lease});
    }
  }
  const Store::Range range = ValueOrThrow(store.List(""));
  ASSERT_EQ(range.entries.size(), mirror.size());
  for (const StoreEntry& entry : range.entries) EXPECT_EQ(mirror[entry.key], entry);
}

TEST(MemoryStore, RefusesWhatIsTooMuch) {
  MemoryStore store(
      {.max_key_bytes = 4, .max_value_bytes = 8, .max_total_bytes = 30, .max_leases = 2});
  EXPECT_EQ(store.Put("", "x").status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(TextOf(store.Put("12345", "x").status()), HasSubstr("key of 5 bytes"));
  EXPECT_FALSE(store.Put("1", "123456789").ok());
  EXPECT_TRUE(store.Put("1", "12345678").ok());
  EXPECT_TRUE(store.Put("2", "12345678").ok());
  EXPECT_TRUE(store.Put("3", "12345678").ok());
  EXPECT_TRUE(store.Put("3", "87654321").ok());
  const absl::Status full = store.Put("4", "12345678").status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(TextOf(full), HasSubstr("would hold 36 bytes"));
  EXPECT_TRUE(store.Delete("1", std::nullopt).ok());
  EXPECT_TRUE(store.Put("4", "12345678").ok());
  EXPECT_EQ(store.Grant(0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(store.Grant(1e30).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(store.Grant(1).ok());
  EXPECT_TRUE(store.Grant(1).ok());
  EXPECT_EQ(store.Grant(1).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tutti::net
