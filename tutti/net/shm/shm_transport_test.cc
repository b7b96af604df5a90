#include "tutti/net/shm/shm_transport.h"

#include <future>

#include "tutti/net/transport_suite.h"

namespace tutti::net {
namespace {

// Ranks of one process that meet as processes do.
std::vector<std::unique_ptr<Transport>> MakeShm(int ranks) {
  std::vector<std::unique_ptr<ShmEndpoint>> endpoints;
  ShmOptions options{.size = ranks};
  for (int rank = 0; rank < ranks; ++rank) {
    auto endpoint = ShmEndpoint::Open();
    if (!endpoint.ok()) {
      ADD_FAILURE() << endpoint.status();
      return {};
    }
    options.names.push_back((*endpoint)->name());
    endpoints.push_back(*std::move(endpoint));
  }
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
  for (auto& meeting : meetings) {
    auto transport = meeting.get();
    if (!transport.ok()) {
      ADD_FAILURE() << transport.status();
      return {};
    }
    transports.push_back(*std::move(transport));
  }
  return transports;
}

INSTANTIATE_TEST_SUITE_P(Shm, TransportSuite, testing::Values(TransportCase{"shm", &MakeShm}));

}  // namespace
}  // namespace tutti::net
