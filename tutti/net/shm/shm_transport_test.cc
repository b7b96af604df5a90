#include "tutti/net/shm/shm_transport.h"

#include <sys/mman.h>
#include <unistd.h>

#include <future>

#include "tutti/base/status.h"
#include "tutti/net/shm/introduction.h"
#include "tutti/net/shm/packet_socket.h"
#include "tutti/net/transport_suite.h"

namespace tutti::net {
namespace {

// Opens an endpoint a rank; the names go into `options`.
std::vector<std::unique_ptr<ShmEndpoint>> OpenEndpoints(int ranks, ShmOptions* options) {
  std::vector<std::unique_ptr<ShmEndpoint>> endpoints;
  options->size = ranks;
  for (int rank = 0; rank < ranks; ++rank) {
    endpoints.push_back(ValueOrThrow(ShmEndpoint::Open()));
    options->names.push_back(endpoints.back()->name());
  }
  return endpoints;
}

// Ranks of one process that meet as processes do.
std::vector<std::unique_ptr<Transport>> MakeShm(int ranks) {
  ShmOptions options;
  auto endpoints = OpenEndpoints(ranks, &options);
  std::vector<std::future<absl::StatusOr<std::unique_ptr<Transport>>>> meetings;
  for (int rank = 0; rank < ranks; ++rank) {
    options.rank = rank;
    meetings.push_back(
        std::async(std::launch::async,
                   [options, endpoint = std::move(endpoints[static_cast<size_t>(rank)])]() mutable {
                     return ShmTransport::Connect(std::move(endpoint), options);
                   }));
  }
  std::vector<std::unique_ptr<Transport>> transports;
  for (auto& meeting : meetings) transports.push_back(ValueOrThrow(meeting.get()));
  return transports;
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportSuite, testing::Values(TransportCase{"shm", &MakeShm}));

// Meeting ---------------------------------------------------------------------------------------

TEST(ShmMeetingTest, RefusesStrangersAndGoesOn) {
  ShmOptions options{.timeout_seconds = 30};
  auto endpoints = OpenEndpoints(2, &options);
  const std::string socket = shm::ParseEndpointName(options.names[1])->socket;
  const auto silent = ValueOrThrow(shm::ConnectTo(socket));
  const auto babbling = ValueOrThrow(shm::ConnectTo(socket));
  shm::SendPacket(babbling, Pattern(5000, 1), -1);
  const auto wrong = ValueOrThrow(shm::ConnectTo(socket));
  shm::Introduction introduction;  // all but the secret is right
  introduction.from = 0;
  introduction.to = 1;
  introduction.size = 2;
  shm::SendPacket(wrong, std::as_bytes(std::span(&introduction, 1)), -1);
  const auto bare = ValueOrThrow(shm::ConnectTo(socket));
  introduction.secret = shm::ParseEndpointName(options.names[1])->secret;
  shm::SendPacket(bare, std::as_bytes(std::span(&introduction, 1)), -1);  // brings no mailbox

  ShmOptions other = options;
  other.rank = 1;
  auto meeting = std::async(std::launch::async,
                            [&] { return ShmTransport::Connect(std::move(endpoints[1]), other); });
  EXPECT_TRUE(ShmTransport::Connect(std::move(endpoints[0]), options).ok());
  EXPECT_TRUE(meeting.get().ok());
}

TEST(ShmMeetingTest, NamesWhoIsMissing) {
  ShmOptions options{.rank = 1, .timeout_seconds = 0.05};
  auto endpoints = OpenEndpoints(4, &options);
  options.names[3] = "";  // on another host
  const auto transport = ShmTransport::Connect(std::move(endpoints[1]), options);
  EXPECT_EQ(transport.status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_NE(MessageOf(transport.status()).find("ranks 0, 2"), std::string_view::npos)
      << transport.status();
}

TEST(ShmMeetingTest, NamesAnEndpointThatIsGone) {
  ShmOptions options{.timeout_seconds = 30};
  auto endpoints = OpenEndpoints(2, &options);
  endpoints[1].reset();
  const auto transport = ShmTransport::Connect(std::move(endpoints[0]), options);
  EXPECT_EQ(transport.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(MessageOf(transport.status()).find("rank 1"), std::string_view::npos)
      << transport.status();
}

TEST(ShmMeetingTest, RefusesNamesThatAreMalformed) {
  for (const char* name : {"", "shm1", "shm1 a b", "shm1 a b c", "tcp 1 2 3", "shm1 a b 00 "}) {
    ShmOptions options{.timeout_seconds = 1};
    auto endpoints = OpenEndpoints(1, &options);
    EXPECT_FALSE(ShmEndpoint::SameHost(name, options.names[0])) << name;
    options.names[0] = name;
    const auto transport = ShmTransport::Connect(std::move(endpoints[0]), options);
    EXPECT_EQ(transport.status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST(ShmMeetingTest, KnowsRanksOfTheSameHost) {
  ShmOptions options;
  auto endpoints = OpenEndpoints(2, &options);
  EXPECT_TRUE(ShmEndpoint::SameHost(options.names[0], options.names[1]));
  auto elsewhere = *shm::ParseEndpointName(options.names[0]);
  elsewhere.host += "x";
  EXPECT_FALSE(ShmEndpoint::SameHost(options.names[0], shm::ToString(elsewhere)));
}

TEST(SharedPagesTest, RefusesFilesThatCouldShrink) {
  shm::FileDescriptor loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 1 << 20), 0);
  EXPECT_EQ(shm::SharedPages::Open(loose, 4096).status().code(), absl::StatusCode::kDataLoss);
  shm::FileDescriptor sealed;
  ASSERT_TRUE(shm::SharedPages::Create(10'000, &sealed).ok());
  EXPECT_TRUE(shm::SharedPages::Open(sealed, 10'000).ok());
  EXPECT_EQ(shm::SharedPages::Open(sealed, 20'000).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(shm::SharedPages::Open(shm::FileDescriptor(), 1).status().code(),
            absl::StatusCode::kDataLoss);
}

TEST(SharedPagesTest, ReportsTooMuch) {
  shm::FileDescriptor fd;
  EXPECT_EQ(shm::SharedPages::Create(SIZE_MAX - 5, &fd).status().code(),
            absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace tutti::net
