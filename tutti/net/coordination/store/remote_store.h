#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tutti/net/coordination/store/codec.h"
#include "tutti/net/coordination/store/store.h"

namespace tutti::net {

// A Store that lives in another process, behind a StoreService. Watches are called on a thread of
// this object, where they may call the store. When the other process is gone, every call gives
// UNAVAILABLE and every watch ends with it. Thread-safe.
class RemoteStore final : public Store {
 public:
  // Brings a request to the service and its answer, or UNAVAILABLE, to `done`: once, on any thread.
  using Send = std::function<void(std::string request,
                                  std::function<void(absl::StatusOr<std::string>)> done)>;
  explicit RemoteStore(Send send);
  ~RemoteStore() override;  // the watches go before

  using Store::Put;
  absl::StatusOr<int64_t> Put(const std::string& key, std::string value,
                              const PutOptions& options) override;
  absl::StatusOr<int64_t> Delete(const std::string& key,
                                 std::optional<int64_t> if_version) override;
  absl::StatusOr<Range> List(std::string_view prefix) override;
  absl::StatusOr<std::optional<StoreEntry>> Get(const std::string& key) override;
  absl::StatusOr<LeaseId> Grant(double seconds) override;
  absl::Status KeepAlive(LeaseId lease) override;
  absl::Status Revoke(LeaseId lease) override;
  using Store::StartWatch;
  absl::StatusOr<std::unique_ptr<Watch>> StartWatch(std::string prefix, int64_t from,
                                                    OnEvents on_events, OnEnd on_end) override;

 private:
  struct Teller;
  class Chain;
  absl::StatusOr<StoreReply> Call(const StoreRequest& request);

  const std::shared_ptr<const Send> send_;
  const std::shared_ptr<Teller> teller_;
};

}  // namespace tutti::net
