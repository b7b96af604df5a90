// What the mirror does while a chief is connected:
//
//   look       ask who locks the chief's directory, which checkpoints it has, and whether the
//              training is over
//   once       remove what an earlier training left here: checkpoints whose content differs from
//              the chief's, and those later than the chief's newest one
//   fetch      fetch the checkpoints later than the newest one here, the oldest first, and publish
//              each as a training would (model_directory.cc)
//   the end    when all are here and the chief's training is over, write "finished" and tell the
//              chief
//
// A checkpoint that the chief removes before it is fetched is skipped, as with a shared disk. The
// lock file shows whether the disk is shared: it contains a random number, which is then the same.
#include "tutti/train/mirror/directory_mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "tutti/base/console.h"
#include "tutti/base/thread.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/train/strategies/join.h"

namespace tutti {
namespace {

using checkpoint::CheckpointName;
using checkpoint::File;
using checkpoint::FileSystem;
using checkpoint::ModelDirectory;

constexpr auto kLook = std::chrono::milliseconds(100);  // for what is new
constexpr std::string_view kNotThere = "the chief does not have it any more: ";

FileSystem& Files() { return FileSystem::System(); }

absl::StatusOr<std::string> Ask(FeedChannel& channel, FeedType request, std::string_view body,
                                FeedType expected) {
  TUTTI_RETURN_IF_ERROR(channel.Send(request, body));
  TUTTI_ASSIGN_OR_RETURN(FeedFrame answer, channel.Receive());
  if (answer.type == FeedType::kGone) return NotFound("{}{}", kNotThere, answer.body);
  if (answer.type != expected) {
    return InvalidArgument("the chief answers {}, expected {}", int(answer.type), int(expected));
  }
  return std::move(answer.body);
}

absl::StatusOr<std::vector<FeedFile>> AskForFiles(FeedChannel& channel, int64_t step) {
  TUTTI_ASSIGN_OR_RETURN(const std::string body,
                         Ask(channel, FeedType::kOpen, BodyOfStep(step), FeedType::kFiles));
  return ParseFiles(body);
}

// Calls use(bytes, offset) with the whole file, part by part.
template <typename Use>
absl::Status ReadFile(FeedChannel& channel, const FeedFile& file, Use&& use) {
  for (int64_t offset = 0; offset < file.bytes; offset += kMostReadBytes) {
    const FeedRead part = {file.name, offset, std::min(kMostReadBytes, file.bytes - offset)};
    TUTTI_ASSIGN_OR_RETURN(const std::string bytes,
                           Ask(channel, FeedType::kRead, BodyOf(part), FeedType::kBytes));
    if (int64_t(bytes.size()) != part.bytes) {
      return InvalidArgument("{} bytes of {} came, expected {}", bytes.size(), file.name,
                             part.bytes);
    }
    TUTTI_RETURN_IF_ERROR(use(bytes, offset));
  }
  return absl::OkStatus();
}

bool IsNotThere(const absl::Status& status) {
  return absl::IsNotFound(status) && MessageOf(status).starts_with(kNotThere);
}

// Of this directory, not of the connection.
bool IsOwn(const absl::Status& status) {
  return !absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) &&
         !absl::IsInvalidArgument(status) && !absl::IsCancelled(status) && !IsNotThere(status);
}

}  // namespace

std::unique_ptr<DirectoryMirror> DirectoryMirror::Start(const RunConfig& config) {
  if (config.tf_config.empty() || !config.evaluates()) return nullptr;
  const TaskConfig task = ValueOrThrow(ParseTfConfig(config.tf_config));
  if (!task.cluster.Has(task.task)) return nullptr;
  std::unique_ptr<DirectoryMirror> mirror(new DirectoryMirror(config));
  net::PortOptions options;
  options.identity.job = kFeedJob;
  options.identity.token = JobToken();
  options.identity.task = ToString(task.task);
  options.bind = task.cluster.AddressOf(task.task);
  options.insecure = config.insecure;
  absl::Status status;
  if (auto port = net::Port::Open(std::move(options)); port.ok()) {
    mirror->port_ = *std::move(port);
    status = mirror->Listen();
  } else {
    status = port.status();
  }
  if (status.ok()) return mirror;
  mirror->Tell(
      fmt::format("no checkpoints can be fetched from the chief, only those on a disk that "
                  "it shares are found: {}",
                  MessageOf(status)));
  return nullptr;
}

absl::Status DirectoryMirror::Listen() {
  port_->Serve(net::Identity::Purpose::kCheckpoints,
               [this](const net::Identity&, net::Socket socket) {
                 const std::lock_guard lock(mutex_);
                 next_ = std::make_shared<FeedChannel>(std::move(socket));
                 // A chief that comes again has left the connection before.
                 if (current_ != nullptr) current_->Shutdown();
                 changed_.notify_all();
               });
  auto thread = StartThread("the thread that fetches checkpoints", [this] { Work(); });
  if (!thread.ok()) return thread.status();
  thread_ = *std::move(thread);
  return port_->Start();
}

DirectoryMirror::~DirectoryMirror() {
  port_.reset();
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
    if (current_ != nullptr) current_->Shutdown();
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::Status DirectoryMirror::status() const {
  const std::lock_guard lock(mutex_);
  return status_;
}

void DirectoryMirror::Tell(std::string_view text) const {
  if (config_.Tells()) FormatTo(stderr, "{}: {}\n", config_.program, text);
}

void DirectoryMirror::Work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return stop_ || next_ != nullptr; });
    if (stop_) return;
    current_ = std::move(next_);
    next_ = nullptr;
    lock.unlock();
    const absl::Status status = Follow(*current_);
    directory_.reset();
    lock.lock();
    current_ = nullptr;
    if (stop_) return;
    if (status.ok()) continue;
    if (IsOwn(status)) {
      status_ = status;
      return;
    }
    if (absl::IsInvalidArgument(status)) {
      Tell(fmt::format("no checkpoints can be fetched from the chief: {}", MessageOf(status)));
    }
  }
}

absl::StatusOr<bool> DirectoryMirror::IsShared(const DirectoryState& state) const {
  const auto own = checkpoint::HolderOf(Files(), config_.model_dir);
  if (absl::IsNotFound(own.status())) return false;
  if (!own.ok()) return own.status();
  return *own == state.holder;
}

absl::Status DirectoryMirror::Follow(FeedChannel& channel) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (stop_) return Cancelled("the evaluator ends");
    }
    TUTTI_ASSIGN_OR_RETURN(const std::string body,
                           Ask(channel, FeedType::kLook, "", FeedType::kState));
    TUTTI_ASSIGN_OR_RETURN(const DirectoryState state, ParseState(body));
    if (!state.holder.empty()) {
      if (!directory_) {
        TUTTI_ASSIGN_OR_RETURN(const bool shared, IsShared(state));
        if (shared) return channel.Send(FeedType::kShared, "");
        const std::string who = state.holder.substr(0, state.holder.find('\n'));
        TUTTI_ASSIGN_OR_RETURN(directory_,
                               ModelDirectory::Open(Files(), config_.model_dir,
                                                    fmt::format("{}, for {}", config_.role, who)));
        Tell(fmt::format("fetches the checkpoints of {}, which writes to another disk", who));
        clean_ = false;
      }
      if (!clean_) {
        TUTTI_ASSIGN_OR_RETURN(clean_, RemoveStale(channel, state));
      }
      if (clean_) {
        TUTTI_RETURN_IF_ERROR(Update(channel, state));
        if (state.finish) return channel.Send(FeedType::kDone, "");
      }
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kLook, [this] { return stop_; });
  }
}

absl::StatusOr<bool> DirectoryMirror::RemoveStale(FeedChannel& channel,
                                                  const DirectoryState& state) {
  if (!state.finish) TUTTI_RETURN_IF_ERROR(directory_->RemoveFinish());
  TUTTI_ASSIGN_OR_RETURN(const std::vector<int64_t> own,
                         checkpoint::ListCheckpoints(Files(), config_.model_dir));
  bool stale = false, all = true;
  for (auto step = own.rbegin(); step != own.rend(); ++step) {
    const bool there =
        std::find(state.steps.begin(), state.steps.end(), *step) != state.steps.end();
    stale = stale || state.steps.empty() || *step > state.steps.front();
    if (there && !stale) {
      const auto manifest =
          checkpoint::ReadWhole(Files(),
                                fmt::format("{}/{}/{}", config_.model_dir, CheckpointName(*step),
                                            checkpoint::kManifestName),
                                checkpoint::kMaxManifestBytes);
      const auto files = AskForFiles(channel, *step);
      if (!files.ok() && !IsNotThere(files.status())) return files.status();
      std::string theirs;
      if (files.ok() && !files->empty()) {
        const absl::Status read =
            ReadFile(channel, files->front(), [&](const auto& bytes, int64_t) {
              theirs += bytes;
              return theirs.size() > size_t(checkpoint::kMaxManifestBytes)
                         ? InvalidArgument("a manifest of over {} bytes", theirs.size())
                         : absl::OkStatus();
            });
        if (!read.ok() && !IsNotThere(read)) return read;
        stale = !manifest.ok() || theirs != *manifest;
      }
    }
    // If a checkpoint here differs from the chief's, an earlier training made it and all later
    // ones.
    if (!stale) continue;
    TUTTI_ASSIGN_OR_RETURN(const bool removed, directory_->Remove(*step));
    all = all && removed;
  }
  return all;
}

absl::Status DirectoryMirror::Update(FeedChannel& channel, const DirectoryState& state) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<int64_t> own,
                         checkpoint::ListCheckpoints(Files(), config_.model_dir));
  const int64_t newest = own.empty() ? -1 : own.front();
  for (auto step = state.steps.rbegin(); step != state.steps.rend(); ++step) {
    if (*step <= newest) continue;
    const absl::Status status = Fetch(channel, *step);
    if (IsNotThere(status)) continue;
    TUTTI_RETURN_IF_ERROR(status);
    TUTTI_RETURN_IF_ERROR(directory_->Retain(config_.keep).status());
  }
  return state.finish ? directory_->WriteFinish(*state.finish) : absl::OkStatus();
}

absl::Status DirectoryMirror::Fetch(FeedChannel& channel, int64_t step) {
  TUTTI_ASSIGN_OR_RETURN(const std::vector<FeedFile> files, AskForFiles(channel, step));
  int64_t bytes = 0;
  for (const FeedFile& file : files) bytes += file.bytes;
  TUTTI_RETURN_IF_ERROR(directory_->CheckRoom(bytes));
  TUTTI_ASSIGN_OR_RETURN(const std::string folder, directory_->Begin(step));
  absl::Status status;
  for (const FeedFile& file : files) {
    auto copy = File::Create(Files(), folder + "/" + file.name);
    status = copy.status();
    if (status.ok()) {
      status = ReadFile(channel, file, [&](const std::string& part, int64_t offset) {
        return copy->WriteAt(std::as_bytes(std::span(part)), offset);
      });
    }
    if (status.ok()) status = copy->Sync();
    if (status.ok()) status = copy->Close();
    if (!status.ok()) break;
  }
  if (!status.ok()) {
    directory_->Discard(step);
    return status;
  }
  return directory_->Publish(step);
}

}  // namespace tutti
