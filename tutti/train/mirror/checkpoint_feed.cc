// The evaluator listens at its address in the cluster, which has no other use, and the chief
// connects to it. This works with every strategy, and an evaluator that starts late or restarts
// needs no special handling. Once connected, the evaluator sends requests, and the chief answers
// from the current content of the directory. The chief's only state is the checkpoint that is being
// read; it is held open so that the training does not remove it.
#include "tutti/train/mirror/checkpoint_feed.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/thread.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/net/address.h"
#include "tutti/net/port/dial.h"
#include "tutti/train/strategies/join.h"

namespace tutti {
namespace {

using checkpoint::File;
using checkpoint::FileSystem;
using checkpoint::SavedCheckpoint;

constexpr double kDialSeconds = 0.3;  // of one search for the evaluator
constexpr double kRestSeconds = 1;    // between two
constexpr double kLookSeconds = 0.1;  // for a stop
constexpr double kSilence = 10;       // of an evaluator that is connected, which asks all the time

FileSystem& Files() { return FileSystem::System(); }

}  // namespace

CheckpointFeed::CheckpointFeed(const RunConfig& config) : config_(config) {
  if (!config.has_evaluator || !config.leads() || config.evaluates() || config.model_dir.empty() ||
      config.tf_config.empty()) {
    return;
  }
  const TaskConfig task = ValueOrThrow(ParseTfConfig(config.tf_config));
  const auto& evaluators = task.cluster.jobs().at("evaluator");
  if (evaluators.empty()) return;
  path_ = std::filesystem::absolute(config.model_dir).string();
  evaluator_ = evaluators.begin()->second;
  thread_ = ValueOrThrow(
      StartThread("the thread that gives checkpoints to the evaluator", [this] { Work(); }));
}

CheckpointFeed::~CheckpointFeed() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (channel_ != nullptr) channel_->Shutdown();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CheckpointFeed::Finish(double patience_seconds) {
  if (!thread_.joinable()) return;
  const auto patience = std::chrono::duration<double>(patience_seconds);
  std::unique_lock lock(mutex_);
  finishing_ = true;
  changed_.notify_all();
  for (int64_t seen = -1; !over_ && seen != given_;) {
    seen = given_;
    changed_.wait_for(lock, patience, [&] { return over_ || seen != given_; });
  }
  if (over_) return;
  lock.unlock();
  Tell(
      fmt::format("the evaluator at {} has asked for nothing more for {:.0f} s and does not have "
                  "all checkpoints; it gets no more",
                  evaluator_, patience_seconds));
}

void CheckpointFeed::Tell(std::string_view text) const {
  if (config_.Tells()) FormatTo(stderr, "{}: {}\n", config_.program, text);
}

bool CheckpointFeed::Pause(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds),
                    [this] { return stop_ || finishing_; });
  return !stop_ && !finishing_;
}

void CheckpointFeed::Work() {
  for (bool last = false; !last;) {
    {
      // Once the training is over, an evaluator is looked for one last time.
      const std::lock_guard lock(mutex_);
      last = finishing_;
      if (stop_) break;
    }
    const std::shared_ptr<FeedChannel> channel = Connect();
    if (channel != nullptr) {
      {
        const std::lock_guard lock(mutex_);
        channel_ = channel;
        if (stop_) break;
      }
      const End end = Serve(*channel);
      files_.clear();
      open_.reset();
      const std::lock_guard lock(mutex_);
      channel_ = nullptr;
      if (end == End::kNeedsNoMore) break;
    }
    if (!last) Pause(kRestSeconds);
  }
  const std::lock_guard lock(mutex_);
  channel_ = nullptr;
  over_ = true;
  changed_.notify_all();
}

std::shared_ptr<FeedChannel> CheckpointFeed::Connect() {
  net::Identity own;
  own.job = kFeedJob;
  own.token = JobToken();
  own.task = config_.role;
  own.purpose = net::Identity::Purpose::kCheckpoints;
  net::Dial dial({.address = evaluator_,
                  .own = own,
                  .expected_task = "/job:evaluator/task:0",
                  .deadline_nanos = NowNanos() + int64_t(kDialSeconds * 1e9)});
  while (dial.Open()) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return nullptr;
    }
    if (dial.wants_lookup()) {
      dial.LookedUp(net::Resolve(dial.endpoint()));
      continue;
    }
    const int64_t left = std::clamp<int64_t>(dial.wake_at() - NowNanos(), 0, 50'000'000);
    pollfd entry = {dial.fd(), dial.events(), 0};  // poll leaves out a descriptor of -1
    poll(&entry, 1, static_cast<int>((left + 999'999) / 1'000'000));
    dial.Step();
  }
  if (dial.status().ok()) return std::make_shared<FeedChannel>(dial.TakeSocket());
  // An evaluator that cannot be reached may be absent on purpose; any other failure is logged once.
  const std::string why(MessageOf(dial.status()));
  if (!absl::IsUnavailable(dial.status()) && told_ != why) {
    told_ = why;
    Tell(fmt::format("the evaluator can fetch no checkpoints: {}", why));
  }
  return nullptr;
}

CheckpointFeed::End CheckpointFeed::Serve(FeedChannel& channel) {
  const auto silent = [](int64_t since) { return double(NowNanos() - since) * 1e-9 > kSilence; };
  for (int64_t heard = NowNanos(); !silent(heard);) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return End::kLost;
    }
    if (!channel.Readable(kLookSeconds)) continue;
    const absl::StatusOr<FeedFrame> request = channel.Receive();
    if (!request.ok()) return End::kLost;
    if (request->type == FeedType::kDone || request->type == FeedType::kShared) {
      return End::kNeedsNoMore;
    }
    if (const absl::Status status = Answer(channel, *request); !status.ok()) {
      if (absl::IsInvalidArgument(status))
        Tell(fmt::format("{}: {}", evaluator_, MessageOf(status)));
      return End::kLost;
    }
    heard = NowNanos();
    if (request->type == FeedType::kLook) continue;
    const std::lock_guard lock(mutex_);
    ++given_;
    changed_.notify_all();
  }
  return End::kLost;
}

absl::Status CheckpointFeed::Answer(FeedChannel& channel, const FeedFrame& request) {
  absl::Status failed;
  const auto answer = [&](FeedType type, const auto& found) {
    failed = found.status();
    return found.ok() ? channel.Send(type, *found) : absl::OkStatus();
  };
  const auto body = [](const auto& found) -> absl::StatusOr<std::string> {
    if (!found.ok()) return found.status();
    return BodyOf(*found);
  };
  switch (request.type) {
    case FeedType::kLook:
      files_.clear();
      open_.reset();
      TUTTI_RETURN_IF_ERROR(answer(FeedType::kState, body(Look())));
      break;
    case FeedType::kOpen: {
      TUTTI_ASSIGN_OR_RETURN(const int64_t step, ParseStep(request.body));
      TUTTI_RETURN_IF_ERROR(answer(FeedType::kFiles, body(Open(step))));
      break;
    }
    case FeedType::kRead: {
      TUTTI_ASSIGN_OR_RETURN(const FeedRead read, ParseRead(request.body));
      TUTTI_RETURN_IF_ERROR(answer(FeedType::kBytes, Read(read)));
      break;
    }
    default:
      return InvalidArgument("message {}, expected one that asks", int(request.type));
  }
  return failed.ok() ? absl::OkStatus() : channel.Send(FeedType::kGone, MessageOf(failed));
}

absl::StatusOr<DirectoryState> CheckpointFeed::Look() const {
  DirectoryState state;
  // Before the training has the directory, the file is of an earlier one.
  TUTTI_ASSIGN_OR_RETURN(const bool held, checkpoint::IsHeld(Files(), path_));
  if (!held) return state;
  TUTTI_ASSIGN_OR_RETURN(state.holder, checkpoint::HolderOf(Files(), path_));
  // Before the list: the last checkpoint is published before the file is written.
  TUTTI_ASSIGN_OR_RETURN(state.finish, checkpoint::ReadFinish(Files(), path_));
  TUTTI_ASSIGN_OR_RETURN(state.steps, checkpoint::ListCheckpoints(Files(), path_));
  return state;
}

absl::StatusOr<std::vector<FeedFile>> CheckpointFeed::Open(int64_t step) {
  files_.clear();
  open_.reset();
  TUTTI_ASSIGN_OR_RETURN(
      open_, SavedCheckpoint::Open(Files(), path_ + "/" + checkpoint::CheckpointName(step)));
  std::vector<std::string> names = {std::string(checkpoint::kManifestName)};
  for (const checkpoint::SavedShard& shard : open_->manifest().shards) names.push_back(shard.file);
  std::vector<FeedFile> list;
  for (const std::string& name : names) {
    if (!IsFileOfCheckpoint(name)) {
      return DataLoss("{} has a file called \"{}\"", open_->path(), name);
    }
    TUTTI_ASSIGN_OR_RETURN(File file, File::OpenToRead(Files(), open_->path() + "/" + name));
    TUTTI_ASSIGN_OR_RETURN(const int64_t bytes, file.Size());
    list.push_back({name, bytes});
    files_.insert_or_assign(name, std::pair(std::move(file), bytes));
  }
  return list;
}

absl::StatusOr<std::string> CheckpointFeed::Read(const FeedRead& read) {
  const auto file = files_.find(read.name);
  if (file == files_.end()) return NotFound("no file \"{}\" is open", read.name);
  const int64_t size = file->second.second;
  if (read.offset > size || read.bytes > size - read.offset) {
    return InvalidArgument("{} has {} bytes, and {} are asked for from byte {} on", read.name, size,
                           read.bytes, read.offset);
  }
  std::string bytes(size_t(read.bytes), '\0');
  TUTTI_RETURN_IF_ERROR(
      file->second.first.ReadAt(std::as_writable_bytes(std::span(bytes)), read.offset));
  return bytes;
}

}  // namespace tutti
