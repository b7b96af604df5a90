#include "tutti/net/coordination/star_member.h"

#include <fmt/core.h>

#include <utility>

#include "tutti/base/log.h"
#include "tutti/base/status.h"

namespace tutti::net {

StarMember::StarMember(const StarOptions& options, std::unique_ptr<EventLoop> loop)
    : places_(static_cast<size_t>(options.size)),
      options_(options),
      silence_nanos_(static_cast<int64_t>(options.silence_seconds * 1e9)),
      loop_(std::move(loop)),
      progress_(static_cast<size_t>(options.size)) {}

absl::StatusOr<std::vector<std::string>> StarMember::AllGather(std::string_view own) {
  return Call(/*gather=*/true, own);
}

absl::StatusOr<std::string> StarMember::Broadcast(std::string_view own) {
  auto parts = Call(/*gather=*/false, rank() == 0 ? own : std::string_view());
  if (!parts.ok()) return parts.status();
  if (parts->size() != 1) return Internal("a broadcast of {} parts", parts->size());
  return std::move((*parts)[0]);
}

absl::StatusOr<std::vector<std::string>> StarMember::Call(bool gather, std::string_view own) {
  const std::lock_guard one_at_a_time(call_mutex_);
  ControlMessage part;
  part.type = ControlMessage::Type::kCall;
  part.rank = gather ? 1 : 0;
  part.number = ++calls_;
  if (own.size() > kMaxGatherBytes) {
    // The others wait for this part, so they are told why it does not come.
    part.code = absl::StatusCode::kResourceExhausted;
    part.texts = {fmt::format("{} bytes given, the limit of all ranks' together is {}", own.size(),
                              kMaxGatherBytes)};
  } else {
    part.texts = {std::string(own)};
  }
  const uint64_t number = part.number;
  {
    const std::lock_guard lock(mutex_);
    if (verdict_.has_value()) return verdict_->second;
    result_.reset();
  }
  loop_->Post([this, part = std::move(part)]() mutable { SendCall(std::move(part)); });
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] {
    return verdict_.has_value() || (result_.has_value() && result_->number == number);
  });
  if (!result_.has_value() || result_->number != number) return verdict_->second;
  ControlMessage result = *std::move(result_);
  result_.reset();
  if (result.code != absl::StatusCode::kOk) return result.status();
  return std::move(result.texts);
}

void StarMember::FinishCall(ControlMessage result) {
  const std::lock_guard lock(mutex_);
  result_ = std::move(result);
  changed_.notify_all();
}

void StarMember::OnFailure(FailureCallback callback) {
  // Known already or not, it is the loop's thread that calls: the caller may hold locks.
  const std::lock_guard lock(mutex_);
  if (!verdict_.has_value()) {
    callback_ = std::move(callback);
    return;
  }
  loop_->Post([callback = std::move(callback), verdict = *verdict_] {
    callback(verdict.first, verdict.second);
  });
}

void StarMember::OnLeft(LeftCallback callback) {
  const std::lock_guard lock(mutex_);
  left_callback_ = std::move(callback);
  for (const int rank : std::exchange(left_before_, {})) {
    loop_->Post([this, rank] { TellLeft(rank); });
  }
}

void StarMember::TellLeft(int rank) {
  LeftCallback callback;
  {
    const std::lock_guard lock(mutex_);
    if (left_callback_ == nullptr) left_before_.push_back(rank);
    callback = left_callback_;
  }
  if (callback != nullptr) callback(rank, LeftStatus(rank));
}

void StarMember::Conclude(int rank, const absl::Status& status) {
  if (concluded_) return;
  concluded_ = true;
  FailureCallback callback;
  {
    const std::lock_guard lock(mutex_);
    verdict_.emplace(rank, status);
    callback = std::move(callback_);
    callback_ = nullptr;
    changed_.notify_all();
  }
  if (callback != nullptr) callback(rank, status);
}

void StarMember::ReportLost(int rank, const absl::Status& status) {
  if (rank < 0 || rank >= size() || rank == this->rank()) {
    Log(LogLevel::kError, "a lost link was reported for rank {}, which is not a peer: {}", rank,
        MessageOf(status));
    return;
  }
  loop_->Post([this, rank, status] { HandleLost(rank, status); });
}

void StarMember::ReportFailure(const absl::Status& status) {
  if (status.ok()) return;
  loop_->Post([this, status] { HandleFailure(status); });
}

void StarMember::SetProgress(uint64_t counter) { SetProgressOf(rank(), counter); }

void StarMember::SetProgressOf(int rank, uint64_t counter) {
  const std::lock_guard lock(mutex_);
  progress_[static_cast<size_t>(rank)] = counter;
}

uint64_t StarMember::own_progress() const {
  const std::lock_guard lock(mutex_);
  return progress_[static_cast<size_t>(rank())];
}

std::vector<uint64_t> StarMember::Progress() const {
  const std::lock_guard lock(mutex_);
  return progress_;
}

std::string StarMember::Name(int rank) const {
  const std::string& place = places_[static_cast<size_t>(rank)];
  return place.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, place);
}

absl::Status StarMember::Died(int rank, const std::string& how) const {
  return Unavailable("{} died: {}", Name(rank), how);
}

absl::Status StarMember::Silent(int rank, int64_t nanos) const {
  return DeadlineExceeded("{} has given no sign of life for {:.1f} s", Name(rank),
                          static_cast<double>(nanos) * 1e-9);
}

absl::Status StarMember::LeftStatus(int rank) const {
  return Unavailable("rank {} left the job", rank);
}

}  // namespace tutti::net
