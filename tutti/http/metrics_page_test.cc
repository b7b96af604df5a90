// Real requests over sockets, and promtool as the judge of the format.
#include "tutti/http/metrics_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>

#include <cstdio>
#include <fstream>

#include "tutti/base/clock.h"
#include "tutti/base/metrics/metrics.h"
#include "tutti/base/status.h"
#include "tutti/net/socket.h"

namespace tutti::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

int64_t In(double seconds) { return NowNanos() + int64_t(seconds * 1e9); }

net::Socket ConnectTo(int port) {
  const net::Endpoint place = {"127.0.0.1", uint16_t(port)};
  return ValueOrThrow(net::Connect(ValueOrThrow(net::Resolve(place)).front(), In(60)));
}

// The whole answer, with its head.
std::string Ask(int port, const std::string& request) {
  const net::Socket socket = ConnectTo(port);
  ThrowIfError(net::WriteAll(socket.fd(), request, In(60)));
  std::string answer;
  std::byte bytes[4096];
  while (true) {
    const net::IoResult result = net::ReadSome(socket.fd(), bytes);
    if (result.kind == net::IoResult::Kind::kMoved) {
      answer.append(reinterpret_cast<const char*>(bytes), result.bytes);
    } else if (result.kind == net::IoResult::Kind::kAgain) {
      ThrowIfError(net::WaitFor(socket.fd(), POLLIN, In(60)));
    } else {
      return answer;
    }
  }
}

std::string Get(int port, const std::string& path) {
  return Ask(port, "GET " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
}

TEST(MetricsPage, ShowsMetricsAsPromtoolWantsThem) {
  MetricsRegistry metrics;
  AddProcessMetrics(metrics);
  metrics.AddCounter("tutti_steps_total", "Updates.").Add(7);
  metrics.AddHistogram("tutti_step_seconds", "Of a step.", GrowingBounds(0.001, 2, 5)).Observe(1);
  const auto page = ValueOrThrow(MetricsPage::Start({.metrics = &metrics}));
  const std::string answer = Get(page->port(), "/metrics");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 "));
  EXPECT_THAT(answer, HasSubstr("text/plain; version=0.0.4"));
  EXPECT_THAT(answer, HasSubstr("\ntutti_steps_total 7\n"));

  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  const std::string path = testing::TempDir() + "metrics_page_test.txt";
  std::ofstream(path) << body;
  const std::string command = "promtool check metrics < " + path + " 2>&1";
  std::FILE* const said = ::popen(command.c_str(), "r");
  ASSERT_NE(said, nullptr);
  std::string text;
  char piece[256];
  while (std::fgets(piece, sizeof(piece), said) != nullptr) text += piece;
  const int status = ::pclose(said);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << text;
  EXPECT_EQ(text, "");
  std::remove(path.c_str());
}

TEST(MetricsPage, TellsHealth) {
  MetricsPage::Health health;
  const auto page = ValueOrThrow(MetricsPage::Start({.health = [&] { return health; }}));
  EXPECT_THAT(Get(page->port(), "/healthz"),
              AllOf(StartsWith("HTTP/1.1 200 "), testing::EndsWith("\r\n\r\nok\n")));
  health = {.well = false, .text = "worker 1 was lost"};
  EXPECT_THAT(Get(page->port(), "/healthz"),
              AllOf(StartsWith("HTTP/1.1 503 "), testing::EndsWith("worker 1 was lost\n")));
}

TEST(MetricsPage, OtherPathsAndGarbageDisturbNothing) {
  const auto page = ValueOrThrow(MetricsPage::Start({}));
  EXPECT_THAT(Get(page->port(), "/nothing"), StartsWith("HTTP/1.1 404 "));
  EXPECT_THAT(Ask(page->port(), "\x01\x02 garbage\r\n\r\n"), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(Get(page->port(), "/healthz"), StartsWith("HTTP/1.1 200 "));
}

TEST(MetricsPage, ATakenPortIsAnError) {
  const auto page = ValueOrThrow(MetricsPage::Start({}));
  const auto second = MetricsPage::Start({.port = page->port()});
  EXPECT_TRUE(absl::IsUnavailable(second.status()));
  EXPECT_THAT(std::string(MessageOf(second.status())), HasSubstr("the port is taken"));
}

TEST(MetricsPage, EndsWhileSomebodyIsConnected) {
  auto page = ValueOrThrow(MetricsPage::Start({}));
  const net::Socket silent = ConnectTo(page->port());
  page.reset();
}

TEST(HttpPlace, IsAPortOrHostAndPort) {
  EXPECT_EQ(ValueOrThrow(ParseHttpPlace("9100")).host, "127.0.0.1");
  EXPECT_EQ(ValueOrThrow(ParseHttpPlace("0.0.0.0:9100")).host, "0.0.0.0");
  EXPECT_EQ(ValueOrThrow(ParseHttpPlace("0.0.0.0:9100")).port, 9100);
  for (const char* text : {"", "0", "65536", "x", ":80", "host:", "80x", "-1"}) {
    EXPECT_FALSE(ParseHttpPlace(text).ok()) << text;
  }
}

}  // namespace
}  // namespace tutti::http
