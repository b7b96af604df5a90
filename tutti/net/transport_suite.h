#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/transport.h"

// What every Transport must do, as tests that run on any of them:
//
//   INSTANTIATE_TEST_SUITE_P(Loopback, TransportSuite,
//                            testing::Values(TransportCase{"", &LoopbackTransport::Make}));
namespace tutti::net {

struct TransportCase {
  std::string name;
  // The transports of a job of so many ranks, all in this process. An empty list is a failure.
  std::function<std::vector<std::unique_ptr<Transport>>(int ranks)> make;
};
void PrintTo(const TransportCase& test_case, std::ostream* stream);

// A request that remembers what happened to it, and checks what Request promises.
class Watched final : public Request {
 public:
  void Done(const absl::Status& status) override;
  void Take(size_t offset, ConstBytes piece) override;

  bool done() const { return done_; }
  const absl::Status& status() const { return status_; }
  const std::vector<std::byte>& taken() const { return taken_; }

 private:
  bool done_ = false;
  bool last_taken_ = false;  // a piece was taken after which none may come
  absl::Status status_;
  std::vector<std::byte> taken_;
};

// `bytes` bytes that differ with the seed.
std::vector<std::byte> Pattern(size_t bytes, uint64_t seed);

class TransportSuite : public ::testing::TestWithParam<TransportCase> {
 protected:
  // Makes the ranks; a failure to do so ends the test.
  void Make(int ranks);
  Transport& at(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  bool shares_memory() { return at(0).link(1) == LinkKind::kMemory; }
  // Makes progress on all ranks until `until` is true. False, and a failure, after 30 s.
  bool Drive(const std::function<bool()>& until);
  // One message from rank 0 to rank 1.
  void CheckMessage(ConstBytes data, Tag tag, std::byte* destination);

  std::vector<std::unique_ptr<Transport>> ranks_;
};

}  // namespace tutti::net
