#include "tutti/net/port/listen_at.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"

namespace tutti::net {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kSecond = 1'000'000'000;

std::string TextOf(const absl::Status& status) { return std::string(MessageOf(status)); }

TEST(ListenAt, TriesANameUntilItResolves) {
  int asked = 0;
  ListenOptions options{.deadline_nanos = NowNanos() + 60 * kSecond};
  options.resolve = [&](const Endpoint& endpoint) -> absl::StatusOr<std::vector<Address>> {
    EXPECT_EQ(endpoint.host, "worker-0.job");
    if (++asked == 1) return NotFound("worker-0.job: name not found");
    if (asked == 2) return Unavailable("worker-0.job: the name could not be looked up");
    return Resolve({"127.0.0.1", endpoint.port});
  };
  const auto socket = ListenAt("worker-0.job:0", options);
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(asked, 3);
}

TEST(ListenAt, TriesANameUntilItIsOfThisHost) {
  int asked = 0;
  ListenOptions options{.deadline_nanos = NowNanos() + 60 * kSecond};
  // 192.0.2.1 is kept for documents: no host has it.
  options.resolve = [&](const Endpoint& endpoint) {
    return Resolve({++asked < 3 ? "192.0.2.1" : "127.0.0.1", endpoint.port});
  };
  EXPECT_TRUE(ListenAt("worker-0.job:0", options).ok());
  EXPECT_EQ(asked, 3);
}

TEST(ListenAt, GivesUpAtTheDeadlineOrWhenStopped) {
  ListenOptions options{.deadline_nanos = NowNanos() + kSecond / 20};
  options.resolve = [](const Endpoint&) -> absl::StatusOr<std::vector<Address>> {
    return NotFound("nobody: name not found");
  };
  const absl::Status late = ListenAt("nobody:7", options).status();
  EXPECT_EQ(late.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(TextOf(late),
              HasSubstr("cannot listen at nobody:7: nobody: name not found; tried for 0."));
  options.deadline_nanos = NowNanos() + 600 * kSecond;
  options.stopped = [] { return true; };
  EXPECT_EQ(ListenAt("nobody:7", options).status().code(), absl::StatusCode::kCancelled);
  options.deadline_nanos = 0;
  EXPECT_EQ(ListenAt("nobody:7", options).status().code(), absl::StatusCode::kNotFound);
}

TEST(ListenAt, APortInUseIsToldAtOnce) {
  const Socket taken = ValueOrThrow(ListenAt("127.0.0.1:0"));
  const std::string where = ToString(ValueOrThrow(LocalAddress(taken.fd())));
  EXPECT_EQ(TextOf(ListenAt(where, {.deadline_nanos = NowNanos() + 600 * kSecond}).status()),
            "cannot listen at " + where + ": address already in use");
}

}  // namespace
}  // namespace tutti::net
