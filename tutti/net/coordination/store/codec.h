#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tutti/net/coordination/store/store.h"

// What travels between a RemoteStore and a StoreService; docs/formats/coordination.md has the
// bytes.
namespace tutti::net {

// The numbers travel.
enum class StoreOp : uint8_t {
  kPut = 1,
  kDelete = 2,
  kList = 3,
  kGet = 4,
  kGrant = 5,
  kKeepAlive = 6,
  kRevoke = 7,
  kAwait = 8,  // changes from a revision on: at once, or when there are some
};

struct StoreRequest {
  StoreOp op = StoreOp::kGet;
  std::string key = {};  // of kList and kAwait: a prefix
  std::string value = {};
  Store::PutOptions options = {};  // of kPut; of kDelete, if_version; of lease calls, the lease
  double seconds = 0;              // of kGrant; of kAwait, how long to wait for a change
  int64_t from = 0;                // of kAwait
};

struct StoreReply {
  int64_t revision = 0;                 // of kPut, kDelete and kList
  LeaseId lease = 0;                    // of kGrant
  std::vector<StoreEvent> events = {};  // of kAwait; entries of kList and kGet are puts
};

std::string Encode(const StoreRequest& request);
std::string Encode(const StoreReply& reply);
// INVALID_ARGUMENT for bytes that are none.
absl::StatusOr<StoreRequest> DecodeStoreRequest(std::string_view bytes);
absl::StatusOr<StoreReply> DecodeStoreReply(std::string_view bytes);

}  // namespace tutti::net
