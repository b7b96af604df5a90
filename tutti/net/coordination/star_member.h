#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/net/coordination/control_message.h"
#include "tutti/net/coordination/star.h"
#include "tutti/net/event_loop.h"

namespace tutti::net {

// How long a rank waits for rank 0's verdict on what it reported. After that it uses its own
// finding as the verdict.
inline constexpr int64_t kVerdictWaitNanos = 500'000'000;
// How long rank 0 waits for a better explanation of a broken link than the link's own: that the
// rank died, or left.
inline constexpr int64_t kLostGraceNanos = 250'000'000;
// How long a rank that leaves tries to send its last messages.
inline constexpr int64_t kFarewellNanos = 50'000'000;

// What rank 0 (StarHub) and the others (StarSpoke) have in common: the caller's side of the star.
// Calls come in on any thread, become tasks on the loop's thread, where all state of the
// connections lives, and wait here for what comes back.
class StarMember : public Star {
 public:
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string own_address() const override { return own_address_; }
  std::string port() const override { return port_; }
  absl::StatusOr<std::vector<std::string>> AllGather(std::string_view own) override;
  absl::StatusOr<std::string> Broadcast(std::string_view own) override;
  void OnFailure(FailureCallback callback) override;
  void OnLeft(LeftCallback callback) override;
  void ReportLost(int rank, const absl::Status& status) override;
  void ReportFailure(const absl::Status& status) override;
  void SetProgress(uint64_t counter) override;
  std::vector<uint64_t> Progress() const override;

 protected:
  StarMember(const StarOptions& options, std::unique_ptr<EventLoop> loop);

  // On the loop's thread, for the derived class to do.
  virtual void SendCall(ControlMessage part) = 0;
  virtual void HandleLost(int rank, const absl::Status& status) = 0;
  virtual void HandleFailure(const absl::Status& status) = 0;

  // On the loop's thread, for the derived class to use.
  EventLoop& loop() { return *loop_; }
  const StarOptions& options() const { return options_; }
  int64_t silence_nanos() const { return silence_nanos_; }
  // A rank without a byte for this long is silent. Shorter than silence_nanos() by two heartbeats,
  // so that the verdict, which takes up to two ticks, comes in time.
  int64_t patience_nanos() const { return silence_nanos_ - 2 * heartbeat_nanos(); }
  int64_t heartbeat_nanos() const { return silence_nanos_ / 10; }
  bool concluded() const { return concluded_; }
  // The first cause is known. Later ones are ignored.
  void Conclude(int rank, const absl::Status& status);
  void TellLeft(int rank);
  void FinishCall(ControlMessage result);
  void SetProgressOf(int rank, uint64_t counter);
  uint64_t own_progress() const;
  // "rank 2 (host 10.0.0.7, pid 123)", or "rank 2" while that is not known.
  std::string Name(int rank) const;
  absl::Status Died(int rank, const std::string& how) const;
  absl::Status Silent(int rank, int64_t nanos) const;
  absl::Status LeftStatus(int rank) const;

  std::string own_address_;          // set before the constructor's caller sees the star
  std::string port_;                 // where others reach rank 0, in rank 0 only
  std::vector<std::string> places_;  // "host 10.0.0.7, pid 123", by rank

 private:
  absl::StatusOr<std::vector<std::string>> Call(bool gather, std::string_view own);

  const StarOptions options_;
  const int64_t silence_nanos_;
  const std::unique_ptr<EventLoop> loop_;
  bool concluded_ = false;  // the loop's own copy of verdict_.has_value()

  std::mutex call_mutex_;  // one call at a time
  uint64_t calls_ = 0;     // guarded by call_mutex_

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<ControlMessage> result_;  // of the call under way
  std::optional<std::pair<int, absl::Status>> verdict_;
  FailureCallback callback_;
  LeftCallback left_callback_;
  std::vector<int> left_before_;  // there was a callback
  std::vector<uint64_t> progress_;
};

}  // namespace tutti::net
