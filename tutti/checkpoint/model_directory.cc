// The order of calls is what makes a save safe:
//
//   mkdir .tmp-checkpoint-000123
//   write and fsync each shard, then manifest.json     the data is on the disk
//   fsync .tmp-checkpoint-000123                       and so are the names of the files
//   rename it to checkpoint-000123                     from here on it is seen
//   fsync the model directory                          and stays
//   rename older ones to .deleted-..., fsync, remove   only now
//
// tests replay every prefix of these calls with unsynced ones left out: crash_test.cc.
#include "tutti/checkpoint/model_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <random>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/log.h"

namespace tutti::checkpoint {
namespace {

constexpr std::string_view kPrefix = "checkpoint-";
constexpr std::string_view kTemporary = ".tmp-";
constexpr std::string_view kDeleted = ".deleted-";
constexpr std::string_view kDamaged = "damaged-";
constexpr std::string_view kLock = "lock";
constexpr std::string_view kBest = "best";
constexpr std::string_view kFinished = "finished";
constexpr std::chrono::nanoseconds kLockPatience = std::chrono::seconds(1);
constexpr int64_t kMostText = 4096;  // of "lock", "best" and "finished"

// Replaces a small file durably.
absl::Status Replace(FileSystem& files, const std::string& path, std::string_view name,
                     std::string_view text) {
  const std::string fresh = fmt::format("{}/{}{}", path, kTemporary, name);
  const std::string whole = fmt::format("{}/{}", path, name);
  const int removed = files.RemoveFile(fresh);
  if (removed < 0 && removed != -ENOENT) return SystemError("remove", fresh, removed);
  TUTTI_RETURN_IF_ERROR(WriteAndSync(files, fresh, text));
  const int result = files.Rename(fresh, whole);
  if (result < 0) return SystemError("replace", whole, result);
  return SyncDirectory(files, path);
}

}  // namespace

std::string CheckpointName(int64_t step) { return fmt::format("{}{:06}", kPrefix, step); }

std::optional<int64_t> StepOfName(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = -1;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), step);
  if (error != std::errc() || end != digits.data() + digits.size() || step < 0 ||
      CheckpointName(step) != name) {
    return std::nullopt;
  }
  return step;
}

absl::StatusOr<std::vector<int64_t>> ListCheckpoints(FileSystem& files, const std::string& path) {
  std::vector<std::string> names;
  const int result = files.List(path, &names);
  std::vector<int64_t> steps;
  if (result == -ENOENT) return steps;
  if (result < 0) return SystemError("list", path, result);
  for (const std::string& name : names) {
    if (const auto step = StepOfName(name)) steps.push_back(*step);
  }
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

absl::StatusOr<std::optional<Best>> ReadBest(FileSystem& files, const std::string& path) {
  const auto text = ReadWhole(files, fmt::format("{}/{}", path, kBest), kMostText);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  // INVALID_ARGUMENT: it is longer than any that was written.
  if (!text.ok() && !absl::IsInvalidArgument(text.status())) return text.status();
  std::string_view rest = text.ok() ? std::string_view(*text) : std::string_view();
  const auto word = [&rest](char end) {
    const size_t size = std::min(rest.find(end), rest.size());
    const std::string_view found = rest.substr(0, size);
    rest.remove_prefix(std::min(rest.size(), size + 1));
    return found;
  };
  const auto step = StepOfName(word(' '));
  const std::string metric(word(' '));
  const std::string_view number = word('\n');
  double value = 0;
  const char* const end = number.data() + number.size();
  const auto [parsed, error] = std::from_chars(number.data(), end, value);
  if (step && !metric.empty() && error == std::errc() && parsed == end && rest.empty()) {
    return Best{*step, metric, value};
  }
  return DataLoss("{}/{} is damaged: expected a line such as \"checkpoint-000100 accuracy 0.9\"",
                  path, kBest);
}

absl::Status WriteBest(FileSystem& files, const std::string& path, const Best& best) {
  return Replace(files, path, kBest,
                 fmt::format("{} {} {}\n", CheckpointName(best.step), best.metric, best.value));
}

absl::StatusOr<std::optional<Finish>> ReadFinish(FileSystem& files, const std::string& path) {
  const auto text = ReadWhole(files, fmt::format("{}/{}", path, kFinished), kMostText);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  if (!text.ok()) return text.status();
  const size_t space = text->find(' ');
  if (const auto step = StepOfName(text->substr(0, space));
      step && space != std::string::npos && text->ends_with('\n')) {
    return Finish{*step, text->substr(space + 1, text->size() - space - 2)};
  }
  return DataLoss("{}/{} is damaged: expected a line such as \"checkpoint-000100 100 steps\"", path,
                  kFinished);
}

absl::StatusOr<bool> IsHeld(FileSystem& files, const std::string& path) {
  const auto lock = File::OpenToRead(files, fmt::format("{}/{}", path, kLock));
  if (absl::IsNotFound(lock.status())) return false;
  if (!lock.ok()) return lock.status();
  // Given back at once; a job that wants the directory at this very moment tries again.
  TUTTI_ASSIGN_OR_RETURN(const bool alone, lock->TryLock(/*exclusive=*/false));
  return !alone;
}

absl::StatusOr<std::string> HolderOf(FileSystem& files, const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(std::string text,
                         ReadWhole(files, fmt::format("{}/{}", path, kLock), kMostText));
  size_t end = 0;
  for (int lines = 0; end < text.size(); ++end) {
    if (text[end] == '\n' && ++lines == 2) break;
  }
  text.resize(end);
  return text;
}

absl::StatusOr<ModelDirectory> ModelDirectory::Open(FileSystem& files, const std::string& path,
                                                    const std::string& owner) {
  TUTTI_RETURN_IF_ERROR(MakeDirectories(files, path));
  const std::string lock_path = fmt::format("{}/{}", path, kLock);
  TUTTI_ASSIGN_OR_RETURN(File lock, File::OpenToLock(files, lock_path));
  TUTTI_ASSIGN_OR_RETURN(bool locked, lock.TryLock(/*exclusive=*/true));
  // A job that was killed a moment ago holds it until its last thread has ended.
  const int64_t deadline = NowNanos() + kLockPatience.count();
  while (!locked && NowNanos() < deadline) {
    std::this_thread::sleep_for(kLockPatience / 20);
    TUTTI_ASSIGN_OR_RETURN(locked, lock.TryLock(/*exclusive=*/true));
  }
  if (!locked) {
    const auto holder = HolderOf(files, path);
    const std::string other = holder.ok() ? holder->substr(0, holder->find('\n')) : "";
    return FailedPrecondition(
        "{} is in use by another job{}; wait for it to end, or give this one a directory of its "
        "own",
        path, other.empty() ? "" : fmt::format(" ({})", other));
  }
  ModelDirectory directory(files, path, std::move(lock));
  TUTTI_RETURN_IF_ERROR(directory.CheckWritable());
  // A job that is refused shows the first line. The rest of a longer text of an earlier job may
  // stay behind them: only two lines are read.
  std::random_device random;
  const std::string lines = fmt::format("{}\n{:08x}{:08x}\n", owner, random(), random());
  TUTTI_RETURN_IF_ERROR(directory.lock_.WriteAt(std::as_bytes(std::span(lines)), 0));
  TUTTI_RETURN_IF_ERROR(directory.RemoveLeftovers());
  return directory;
}

absl::Status ModelDirectory::CheckWritable() {
  const std::string probe = Inside(std::string(kTemporary) + "probe");
  const int removed = files_->RemoveFile(probe);
  if (removed < 0 && removed != -ENOENT) return SystemError("write to", path_, removed);
  TUTTI_RETURN_IF_ERROR(WriteAndSync(*files_, probe, "probe"));
  const int result = files_->RemoveFile(probe);
  if (result < 0) return SystemError("remove", probe, result);
  return absl::OkStatus();
}

absl::Status ModelDirectory::RemoveLeftovers() {
  std::vector<std::string> names;
  const int result = files_->List(path_, &names);
  if (result < 0) return SystemError("list", path_, result);
  for (const std::string& name : names) {
    if (!name.starts_with(fmt::format("{}{}", kTemporary, kPrefix)) &&
        !name.starts_with(fmt::format("{}{}", kDeleted, kPrefix))) {
      continue;
    }
    TUTTI_RETURN_IF_ERROR(RemoveTree(*files_, Inside(name)));
  }
  return absl::OkStatus();
}

absl::Status ModelDirectory::CheckRoom(int64_t bytes) const {
  const int64_t room = files_->FreeBytes(path_);
  if (room < 0) return SystemError("tell the free space of", path_, room);
  if (room >= bytes) return absl::OkStatus();
  return ResourceExhausted(
      "{} has room for {} more bytes, but a checkpoint of this model takes {}; free some, or give "
      "another directory",
      path_, room, bytes);
}

std::string ModelDirectory::TemporaryPath(int64_t step) const {
  return Inside(std::string(kTemporary) + CheckpointName(step));
}

absl::StatusOr<std::string> ModelDirectory::Begin(int64_t step) {
  std::string path = TemporaryPath(step);
  TUTTI_RETURN_IF_ERROR(RemoveTree(*files_, path));
  const int result = files_->MakeDirectory(path);
  if (result < 0) return SystemError("make the directory", path, result);
  return path;
}

absl::Status ModelDirectory::Publish(int64_t step) {
  const std::string from = TemporaryPath(step), to = Inside(CheckpointName(step));
  TUTTI_RETURN_IF_ERROR(SyncDirectory(*files_, from));
  FileSystem::Identity there;
  const bool replaces = files_->Identify(to, &there) == 0;
  int result = replaces ? files_->Exchange(from, to) : files_->Rename(from, to);
  if (replaces && (result == -EINVAL || result == -ENOSYS)) {
    // A file system that cannot exchange names: older checkpoints stay loadable meanwhile.
    const std::string aside = Inside(std::string(kDeleted) + CheckpointName(step));
    TUTTI_RETURN_IF_ERROR(RemoveTree(*files_, aside));
    result = files_->Rename(to, aside);
    if (result >= 0) result = files_->Rename(from, to);
    if (result >= 0) TUTTI_RETURN_IF_ERROR(RemoveTree(*files_, aside));
  }
  if (result < 0) return SystemError("rename", fmt::format("{} to {}", from, to), result);
  TUTTI_RETURN_IF_ERROR(SyncDirectory(*files_, path_));
  // What was exchanged for it.
  return replaces ? RemoveTree(*files_, from) : absl::OkStatus();
}

void ModelDirectory::Discard(int64_t step) {
  // What cannot be removed now is removed when the next job begins.
  (void)RemoveTree(*files_, TemporaryPath(step));
}

absl::StatusOr<bool> ModelDirectory::SetAside(int64_t step) {
  const std::string path = Inside(CheckpointName(step));
  TUTTI_ASSIGN_OR_RETURN(const File directory, File::OpenDirectory(*files_, path));
  TUTTI_ASSIGN_OR_RETURN(const bool alone, directory.TryLock(/*exclusive=*/true));
  if (!alone) return false;
  const int result = files_->Rename(path, Inside(std::string(kDeleted) + CheckpointName(step)));
  if (result < 0) return SystemError("remove", path, result);
  return true;
}

absl::StatusOr<bool> ModelDirectory::Remove(int64_t step) {
  TUTTI_ASSIGN_OR_RETURN(const bool aside, SetAside(step));
  if (!aside) return false;
  TUTTI_RETURN_IF_ERROR(SyncDirectory(*files_, path_));
  TUTTI_RETURN_IF_ERROR(RemoveTree(*files_, Inside(std::string(kDeleted) + CheckpointName(step))));
  return true;
}

absl::StatusOr<std::vector<int64_t>> ModelDirectory::Retain(int64_t keep) {
  std::vector<int64_t> removed;
  if (keep == 0) return removed;
  TUTTI_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, ListCheckpoints(*files_, path_));
  TUTTI_ASSIGN_OR_RETURN(const std::optional<Best> best, BestOrPutAside());
  for (size_t i = size_t(keep); i < steps.size(); ++i) {
    if (best && best->step == steps[i]) continue;
    TUTTI_ASSIGN_OR_RETURN(const bool aside, SetAside(steps[i]));
    if (aside) removed.push_back(steps[i]);
  }
  if (removed.empty()) return removed;
  TUTTI_RETURN_IF_ERROR(SyncDirectory(*files_, path_));
  for (const int64_t step : removed) {
    TUTTI_RETURN_IF_ERROR(
        RemoveTree(*files_, Inside(std::string(kDeleted) + CheckpointName(step))));
  }
  return removed;
}

// A damaged file must not stop the removal of older checkpoints, which would fill the disk.
absl::StatusOr<std::optional<Best>> ModelDirectory::BestOrPutAside() {
  auto best = ReadBest(*files_, path_);
  if (!absl::IsDataLoss(best.status())) return best;
  const std::string aside = Inside(fmt::format("{}{}", kDamaged, kBest));
  const int result = files_->Rename(Inside(kBest), aside);
  if (result < 0) {
    return SystemError(fmt::format("{}, and cannot rename it to", MessageOf(best.status())), aside,
                       result);
  }
  Log(LogLevel::kWarning, "{}; no checkpoint counts as the best one, and the file is now {}",
      MessageOf(best.status()), aside);
  return std::nullopt;
}

absl::Status ModelDirectory::PutAside(int64_t step) {
  const std::string from = Inside(CheckpointName(step));
  const std::string to = Inside(fmt::format("{}{}", kDamaged, CheckpointName(step)));
  TUTTI_RETURN_IF_ERROR(RemoveTree(*files_, to));
  const int result = files_->Rename(from, to);
  if (result < 0) return SystemError("rename", fmt::format("{} to {}", from, to), result);
  return SyncDirectory(*files_, path_);
}

absl::Status ModelDirectory::RemoveFinish() {
  const int result = files_->RemoveFile(Inside(kFinished));
  if (result == -ENOENT) return absl::OkStatus();
  if (result < 0) return SystemError("remove", Inside(kFinished), result);
  return SyncDirectory(*files_, path_);
}

absl::Status ModelDirectory::WriteFinish(const Finish& finish) {
  return Replace(*files_, path_, kFinished,
                 fmt::format("{} {}\n", CheckpointName(finish.step), finish.until));
}

}  // namespace tutti::checkpoint
