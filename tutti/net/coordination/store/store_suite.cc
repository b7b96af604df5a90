#include "tutti/net/coordination/store/store_suite.h"

#include <gmock/gmock.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/base/status.h"

namespace tutti::net {
namespace {

using ::testing::ElementsAre;
using Kind = StoreEvent::Kind;

constexpr auto kCeiling = std::chrono::seconds(60);

// What a watch has told, as "+key=value" and "-key".
class Seen {
 public:
  Store::OnEvents Note() {
    return [this](std::span<const StoreEvent> events) {
      const std::lock_guard lock(mutex_);
      for (const StoreEvent& event : events) {
        EXPECT_GE(event.entry.version, last_);
        last_ = event.entry.version;
        texts_.push_back(event.kind == Kind::kPut ? "+" + event.entry.key + "=" + event.entry.value
                                                  : "-" + event.entry.key);
      }
      changed_.notify_all();
    };
  }
  // Waits until there are `count`.
  std::vector<std::string> Await(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kCeiling, [&] { return texts_.size() >= count; }));
    return texts_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t last_ = 0;
  std::vector<std::string> texts_;
};

TEST_P(StoreSuite, KeysHaveVersions) {
  EXPECT_EQ(ValueOrThrow(store_->Get("a")), std::nullopt);
  const int64_t first = ValueOrThrow(store_->Put("a", "1"));
  const int64_t second = ValueOrThrow(store_->Put("b", std::string("2\0\xff", 3)));
  const int64_t third = ValueOrThrow(store_->Put("a", "3"));
  EXPECT_LT(first, second);
  EXPECT_LT(second, third);
  EXPECT_EQ(ValueOrThrow(store_->Get("a")),
            (StoreEntry{.key = "a", .value = "3", .created = first, .version = third}));
  EXPECT_EQ(ValueOrThrow(store_->Get("b"))->value, std::string("2\0\xff", 3));
  const int64_t gone = ValueOrThrow(store_->Delete("a"));
  EXPECT_GT(gone, third);
  EXPECT_EQ(ValueOrThrow(store_->Get("a")), std::nullopt);
  EXPECT_EQ(store_->Delete("a").status().code(), absl::StatusCode::kNotFound);
  // A key that comes back is another one.
  const int64_t anew = ValueOrThrow(store_->Put("a", "4"));
  EXPECT_EQ(ValueOrThrow(store_->Get("a"))->created, anew);
}

TEST_P(StoreSuite, ListsByPrefix) {
  for (const char* key : {"job/b", "job/a", "job", "jobs", "k", "job/c/d"}) {
    ASSERT_TRUE(store_->Put(key, "").ok());
  }
  const auto keys = [&](std::string_view prefix) {
    std::vector<std::string> found;
    for (const StoreEntry& entry : ValueOrThrow(store_->List(prefix)).entries) {
      found.push_back(entry.key);
    }
    return found;
  };
  EXPECT_THAT(keys("job/"), ElementsAre("job/a", "job/b", "job/c/d"));
  EXPECT_THAT(keys("job"), ElementsAre("job", "job/a", "job/b", "job/c/d", "jobs"));
  EXPECT_EQ(keys("").size(), 6u);
  EXPECT_THAT(keys("x"), ElementsAre());
  const int64_t last = ValueOrThrow(store_->Put("k", "2"));
  EXPECT_GE(ValueOrThrow(store_->List("job/")).revision, last);
}

TEST_P(StoreSuite, ChangesOnlyWhatIsAsExpected) {
  const int64_t first = ValueOrThrow(store_->Put("a", "1", {.if_version = 0}));
  const auto twice = store_->Put("a", "2", {.if_version = 0});
  EXPECT_EQ(twice.status().code(), absl::StatusCode::kFailedPrecondition) << twice.status();
  EXPECT_EQ(store_->Put("a", "2", {.if_version = first + 1}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ValueOrThrow(store_->Get("a"))->value, "1");
  const int64_t second = ValueOrThrow(store_->Put("a", "2", {.if_version = first}));
  EXPECT_EQ(store_->Delete("a", first).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(store_->Delete("a", second).ok());
}

TEST_P(StoreSuite, AGuardIsAnotherKey) {
  const int64_t place = ValueOrThrow(store_->Put("place", "old"));
  EXPECT_TRUE(store_->Put("a", "1", {.guard = {{"place", place}}}).ok());
  const int64_t taken = ValueOrThrow(store_->Put("place", "new"));
  EXPECT_GT(taken, place);  // fencing tokens grow
  EXPECT_EQ(store_->Put("a", "2", {.guard = {{"place", place}}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(ValueOrThrow(store_->Get("a"))->value, "1");
  ASSERT_TRUE(store_->Delete("place").ok());
  EXPECT_EQ(store_->Put("a", "2", {.guard = {{"place", taken}}}).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(store_->Put("a", "3", {.guard = {{"place", 0}}}).ok());
}

TEST_P(StoreSuite, KeysGoWithTheirLease) {
  const LeaseId lease = ValueOrThrow(store_->Grant(60));
  ASSERT_TRUE(store_->Put("a", "1", {.lease = lease}).ok());
  ASSERT_TRUE(store_->Put("b", "1", {.lease = lease}).ok());
  EXPECT_EQ(ValueOrThrow(store_->Get("a"))->lease, lease);
  ASSERT_TRUE(store_->Put("b", "2").ok());  // no longer under it
  EXPECT_TRUE(store_->KeepAlive(lease).ok());
  EXPECT_TRUE(store_->Revoke(lease).ok());
  EXPECT_EQ(ValueOrThrow(store_->Get("a")), std::nullopt);
  EXPECT_EQ(ValueOrThrow(store_->Get("b"))->value, "2");
  EXPECT_EQ(store_->KeepAlive(lease).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Revoke(lease).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(store_->Put("a", "1", {.lease = lease}).status().code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreSuite, ALeaseThatNobodyKeepsEnds) {
  Seen seen;
  const auto watch = ValueOrThrow(store_->StartWatch("a", 1, seen.Note()));
  const LeaseId lease = ValueOrThrow(store_->Grant(GetParam().short_lease));
  ASSERT_TRUE(store_->Put("a", "1", {.lease = lease}).ok());
  EXPECT_THAT(seen.Await(2), ElementsAre("+a=1", "-a"));
  EXPECT_EQ(store_->KeepAlive(lease).code(), absl::StatusCode::kNotFound);
}

TEST_P(StoreSuite, WatchesTellOfChangesBeforeAndAfter) {
  ASSERT_TRUE(store_->Put("a/1", "x").ok());
  ASSERT_TRUE(store_->Put("b/1", "x").ok());
  const int64_t last = ValueOrThrow(store_->Put("a/1", "y"));
  Seen all, late;
  auto watch = ValueOrThrow(store_->StartWatch("a/", 1, all.Note()));
  auto from_now = ValueOrThrow(store_->StartWatch("a/", last + 1, late.Note()));
  EXPECT_THAT(all.Await(2), ElementsAre("+a/1=x", "+a/1=y"));
  ASSERT_TRUE(store_->Put("a/2", "z").ok());
  ASSERT_TRUE(store_->Put("b/2", "z").ok());
  ASSERT_TRUE(store_->Delete("a/2").ok());
  EXPECT_THAT(all.Await(4), ElementsAre("+a/1=x", "+a/1=y", "+a/2=z", "-a/2"));
  EXPECT_THAT(late.Await(2), ElementsAre("+a/2=z", "-a/2"));
  watch.reset();
  ASSERT_TRUE(store_->Put("a/3", "").ok());
  EXPECT_THAT(late.Await(3), ElementsAre("+a/2=z", "-a/2", "+a/3="));
  EXPECT_EQ(all.Await(4).size(), 4u);
}

TEST_P(StoreSuite, WatchesMayCallTheStore) {
  Seen seen;
  std::atomic<int> calls = 0;
  const Store::OnEvents note = seen.Note();
  auto watch = ValueOrThrow(store_->StartWatch("a", 1, [&](std::span<const StoreEvent> events) {
    note(events);
    if (const int call = ++calls; call < 4) {
      EXPECT_TRUE(store_->Put("a", std::to_string(call)).ok());
    }
  }));
  ASSERT_TRUE(store_->Put("a", "0").ok());
  EXPECT_THAT(seen.Await(4), ElementsAre("+a=0", "+a=1", "+a=2", "+a=3"));
}

// Many threads count up keys by put-if-version; a list and a watch behind it give the same.
TEST_P(StoreSuite, ThreadsAgree) {
  constexpr int kThreads = 4, kTimes = 10;
  ASSERT_TRUE(store_->Put("count", "0").ok());
  const int64_t from = ValueOrThrow(store_->List("")).revision + 1;
  Seen seen;
  const auto watch = ValueOrThrow(store_->StartWatch("count", from, seen.Note()));
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int done = 0; done < kTimes;) {
        const StoreEntry now = *ValueOrThrow(store_->Get("count"));
        const auto put = store_->Put("count", std::to_string(std::stoi(now.value) + 1),
                                     {.if_version = now.version});
        ASSERT_TRUE(put.ok() || absl::IsFailedPrecondition(put.status())) << put.status();
        if (put.ok()) ++done;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<std::string> expected;
  for (int i = 1; i <= kThreads * kTimes; ++i) expected.push_back("+count=" + std::to_string(i));
  EXPECT_EQ(seen.Await(expected.size()), expected);
}

}  // namespace
}  // namespace tutti::net
