// The suite over the stores that need no other process, and what only a remote one has.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <stop_token>
#include <thread>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/coordination/store/memory_store.h"
#include "tutti/net/coordination/store/remote_store.h"
#include "tutti/net/coordination/store/service.h"
#include "tutti/net/coordination/store/store_suite.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;

// A store behind its service.
struct Served {
  MemoryStore memory;
  StoreService service{&memory};

  std::shared_ptr<Store> For(const std::string& caller) {
    return std::make_shared<RemoteStore>(
        [this, caller](std::string request, StoreService::Done done) {
          service.Handle(caller, request, std::move(done));
        });
  }
};

// A remote store that owns what serves it.
std::shared_ptr<Store> MakeRemote(std::string*) {
  auto served = std::make_shared<Served>();
  std::shared_ptr<Store> store = served->For("caller");
  Store* const raw = store.get();
  return {raw, [served = std::move(served), store = std::move(store)](Store*) mutable {
            store.reset();
            served.reset();
          }};
}

// A store in memory whose owner ends leases now and then.
struct Owned {
  MemoryStore memory;
  std::mutex mutex;
  std::condition_variable_any never;
  std::jthread owner{[this](const std::stop_token& stop) {
    std::unique_lock lock(mutex);
    while (!never.wait_for(lock, stop, std::chrono::milliseconds(5),
                           [&] { return stop.stop_requested(); })) {
      memory.Expire();
    }
  }};
};

std::shared_ptr<Store> MakeMemory(std::string*) {
  const auto owned = std::make_shared<Owned>();
  return {owned, &owned->memory};
}

INSTANTIATE_TEST_SUITE_P(Stores, StoreSuite,
                         testing::Values(StoreUnderTest{"Memory", MakeMemory},
                                         StoreUnderTest{"Remote", MakeRemote}),
                         [](const auto& info) { return info.param.name; });

TEST(StoreService, TheLeasesOfALostCallerEnd) {
  Served served;
  const auto one = served.For("one"), two = served.For("two");
  const LeaseId own = ValueOrThrow(one->Grant(60)), shared = ValueOrThrow(one->Grant(60));
  ASSERT_TRUE(one->Put("own", "", {.lease = own}).ok());
  ASSERT_TRUE(one->Put("shared", "", {.lease = shared}).ok());
  ASSERT_TRUE(two->KeepAlive(shared).ok());
  served.service.CallerLost("one");
  EXPECT_EQ(ValueOrThrow(two->Get("own")), std::nullopt);
  EXPECT_TRUE(ValueOrThrow(two->Get("shared")).has_value());
}

TEST(StoreService, EndsWatchesAndCallsWhenItStops) {
  Served served;
  const auto store = served.For("one");
  std::promise<absl::Status> ended;
  const auto watch = ValueOrThrow(store->StartWatch(
      "", 1, [](std::span<const StoreEvent>) {},
      [&](const absl::Status& why) { ended.set_value(why); }));
  served.service.Stop();
  EXPECT_EQ(ended.get_future().get().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(MessageOf(store->Get("a").status())),
              HasSubstr("the coordinator has ended"));
}

TEST(StoreService, TellsWhatItHasForgotten) {
  Served served;
  const auto store = served.For("one");
  for (int i = 0; i < 10'010; ++i) ASSERT_TRUE(served.memory.Put("a", "").ok());
  const auto nothing = [](std::span<const StoreEvent>) {};
  EXPECT_EQ(store->StartWatch("", 1, nothing).status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_TRUE(store->StartWatch("", 100, nothing).ok());
}

TEST(StoreService, RefusesWhatIsNoRequest) {
  Served served;
  for (const char* bytes : {"", "x", "\xff\xff\xff\xff\xff"}) {
    absl::StatusOr<std::string> answer = std::string();
    served.service.Handle("stranger", bytes, [&](auto given) { answer = std::move(given); });
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(StoreService, ACallerWaitsOnlySoOften) {
  Served served;
  const std::string request = Encode(StoreRequest{.op = StoreOp::kAwait, .seconds = 60, .from = 1});
  std::atomic<int> refused = 0;
  const auto done = [&](const absl::StatusOr<std::string>& answer) {
    if (absl::IsResourceExhausted(answer.status())) ++refused;
  };
  for (int i = 0; i < 1010; ++i) served.service.Handle("greedy", request, done);
  EXPECT_EQ(refused, 10);
  served.service.CallerLost("greedy");
}

}  // namespace
}  // namespace tutti::net
