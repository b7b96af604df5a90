#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/cluster/grpc/etcd_store.h"

namespace tutti {

// Calls to an etcd, at whichever member answers. Thread-safe.
class EtcdCalls {
 public:
  explicit EtcdCalls(EtcdOptions options);

  using Channel = std::shared_ptr<grpc::Channel>;
  using Attempt = std::function<grpc::Status(const Channel& channel, grpc::ClientContext& context)>;
  // Makes attempts until one is answered, or the patience is over: UNAVAILABLE. `unsure` becomes
  // true where an attempt before the last may have been carried out.
  absl::Status Call(const Attempt& attempt, bool* unsure);

  // For streams, which last: a member to try, and what a context needs.
  size_t current() const { return current_; }
  void Skip(size_t member);  // it did not answer: the next is the current one
  const Channel& channel(size_t member) const { return channels_[member]; }
  // Waits until the member is connected. One that just failed is not waited for, unless `patient`.
  absl::Status Connect(size_t member, bool patient) const;
  // Error of the log-in, where there is a user.
  absl::Status AddToken(const Channel& channel, grpc::ClientContext& context);
  void ForgetToken();
  // May another attempt succeed?
  static bool MayPass(const grpc::Status& status);
  absl::Status ToStatus(const grpc::Status& status) const;  // UNAVAILABLE where it may pass

  // Something answered, or nothing did; tells of long silences.
  void Answered();
  void Silent(const absl::Status& why);

  const EtcdOptions& options() const { return options_; }

 private:
  const EtcdOptions options_;
  std::string name_;  // for messages
  std::vector<Channel> channels_;
  std::atomic<size_t> current_ = 0;
  std::mutex mutex_;
  std::string token_;
  int64_t silent_since_ = 0, told_at_ = 0;  // 0: it answers; not told
};

}  // namespace tutti
