// Gathers and broadcasts, at rank 0. Every rank has one call under way at most and takes its result
// before the next, so there is never more than one open call, and all parts carry its number. A
// result, good or bad, is the same for all.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/net/coordination/star_hub.h"

namespace tutti::net {
namespace {

std::string_view CallName(const ControlMessage& call) {
  return call.rank == 1 ? "AllGather" : "Broadcast";
}

ControlMessage ResultOf(uint64_t number, const absl::Status& status) {
  ControlMessage result = ControlMessage::Of(ControlMessage::Type::kResult, kNoRank, status);
  result.number = number;
  return result;
}

}  // namespace

void StarHub::SendCall(ControlMessage part) { TakePart(0, std::move(part)); }

void StarHub::TakePart(int rank, ControlMessage part) {
  if (concluded()) return;  // the verdict answers it
  if (left_rank_ >= 0) return Answer(rank, ResultOf(part.number, LeftStatus(left_rank_)));
  const bool repeated = call_ != nullptr && call_->parts[static_cast<size_t>(rank)].has_value();
  if (!complete_ || part.texts.size() != 1 || part.number != calls_done_ + 1 || repeated) {
    if (rank == 0) return Answer(0, ResultOf(part.number, Internal("call out of order")));
    return OnBad(rank, InvalidArgument("call {}, expected {}", part.number, calls_done_ + 1));
  }
  if (call_ == nullptr) {
    call_ = std::make_unique<OpenCall>();
    call_->first.rank = part.rank;
    call_->first.number = part.number;
    call_->first_rank = rank;
    call_->parts.resize(static_cast<size_t>(size()));
    call_->missing = size();
    call_->since = NowNanos();
  }
  AddPart(rank, std::move(part));
  if (call_->missing == 0) FinishOpenCall();
}

void StarHub::AddPart(int rank, ControlMessage part) {
  OpenCall& call = *call_;
  --call.missing;
  call.bytes += part.texts[0].size();
  absl::Status error;
  if (part.rank != call.first.rank) {
    error =
        InvalidArgument("{} calls {} where {} calls {}: all ranks must call in the same order",
                        Name(rank), CallName(part), Name(call.first_rank), CallName(call.first));
  } else if (part.code != absl::StatusCode::kOk) {
    error = WithPrefix(part.status(), Name(rank) + ": ");
  } else if (call.bytes > kMaxGatherBytes) {
    error = ResourceExhausted("{}: the ranks gave {} bytes together, the limit is {}",
                              CallName(part), call.bytes, kMaxGatherBytes);
  }
  if (call.error.ok()) call.error = error;
  std::string bytes = call.error.ok() ? std::move(part.texts[0]) : std::string();
  call.parts[static_cast<size_t>(rank)] = std::move(bytes);
}

void StarHub::FinishOpenCall() {
  const std::unique_ptr<OpenCall> finished = std::move(call_);
  OpenCall& call = *finished;
  calls_done_ = call.first.number;
  ControlMessage result = ResultOf(calls_done_, call.error);
  if (call.error.ok()) {
    result.texts.clear();
    const size_t parts = call.first.rank == 1 ? call.parts.size() : 1;
    for (size_t i = 0; i < parts; ++i) result.texts.push_back(*std::move(call.parts[i]));
  }
  SendToAll(result);
  FinishCall(std::move(result));
}

void StarHub::FailOpenCall(const absl::Status& status) {
  if (call_ == nullptr) return;
  const ControlMessage result = ResultOf(call_->first.number, status);
  for (int rank = 0; rank < size(); ++rank) {
    if (call_->parts[static_cast<size_t>(rank)].has_value()) Answer(rank, result);
  }
  call_.reset();
}

void StarHub::Answer(int rank, const ControlMessage& result) {
  if (rank == 0) return FinishCall(result);
  if (peer(rank).link != nullptr) peer(rank).link->Send(result);
}

void StarHub::WarnOfLateCall() {
  const int64_t now = NowNanos();
  if (concluded() || call_ == nullptr) return;
  if (now - call_->since < silence_nanos() || now - warned_ < silence_nanos()) return;
  warned_ = now;
  std::vector<std::string> late;
  for (int rank = 0; rank < size() && late.size() < 16; ++rank) {
    if (!call_->parts[static_cast<size_t>(rank)].has_value()) late.push_back(Name(rank));
  }
  Log(LogLevel::kWarning,
      "{} {} has waited {:.0f} s for {} of {} ranks: {}; they are alive but late",
      CallName(call_->first), call_->first.number, static_cast<double>(now - call_->since) * 1e-9,
      call_->missing, size(), fmt::join(late, ", "));
}

}  // namespace tutti::net
