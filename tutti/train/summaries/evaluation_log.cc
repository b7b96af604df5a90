#include "tutti/train/summaries/evaluation_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <span>

#include "tutti/base/crc32c.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/train/summaries/events.h"

namespace tutti {
namespace {

using checkpoint::File;
using checkpoint::FileSystem;

constexpr int64_t kMostBytes = 64 << 20;  // of "evaluated"

FileSystem& Files() { return FileSystem::System(); }

double WallTime() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

absl::StatusOr<EvaluationLog> EvaluationLog::Open(const std::string& model_dir) {
  const std::string folder = model_dir + "/eval";
  TUTTI_RETURN_IF_ERROR(checkpoint::MakeDirectories(Files(), folder));
  TUTTI_ASSIGN_OR_RETURN(File lock, File::OpenToLock(Files(), folder + "/lock"));
  TUTTI_ASSIGN_OR_RETURN(const bool alone, lock.TryLock(/*exclusive=*/true));
  if (!alone) {
    return FailedPrecondition(
        "{} is in use by another evaluator; one is enough for a training, so end that one first",
        folder);
  }
  EvaluationLog log(model_dir, std::move(lock));
  TUTTI_RETURN_IF_ERROR(log.ReadEvaluated());
  return log;
}

absl::Status EvaluationLog::ReadEvaluated() {
  const auto text = checkpoint::ReadWhole(Files(), folder_ + "/evaluated", kMostBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  for (size_t begin = 0; begin < text->size();) {
    const size_t end = std::min(text->find('\n', begin), text->size());
    const std::string_view line = std::string_view(*text).substr(begin, end - begin);
    begin = end + 1;
    const size_t space = line.find(' ');
    const auto step = checkpoint::StepOfName(line.substr(0, space));
    uint32_t crc = 0;
    const char* const last = line.data() + line.size();
    if (!step || space == line.npos ||
        std::from_chars(line.data() + space + 1, last, crc, 16).ptr != last) {
      return DataLoss(
          "{}/evaluated is damaged: found the line \"{}\", expected one such as "
          "\"checkpoint-000100 1a2b3c4d\"; remove the file to evaluate all checkpoints again",
          folder_, line);
    }
    evaluated_[*step] = crc;
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> EvaluationLog::ManifestCrc(int64_t step) const {
  TUTTI_ASSIGN_OR_RETURN(
      const std::string text,
      checkpoint::ReadWhole(Files(),
                            fmt::format("{}/{}/{}", model_dir_, checkpoint::CheckpointName(step),
                                        checkpoint::kManifestName),
                            checkpoint::kMaxManifestBytes));
  return Crc32c(std::as_bytes(std::span(text)));
}

void EvaluationLog::ForgetFrom(int64_t step) {
  evaluated_.erase(evaluated_.lower_bound(step), evaluated_.end());
  events_ = nullptr;
  metrics_ = nullptr;
}

absl::StatusOr<std::optional<int64_t>> EvaluationLog::Next(const std::vector<int64_t>& steps) {
  // A training that began again before the last evaluation has an older checkpoint as its newest.
  if (!steps.empty() && !empty() && (!compared_ || steps.front() < last_step())) {
    if (steps.front() < last_step()) ForgetFrom(steps.front() + 1);
    for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
      const auto known = evaluated_.find(*step);
      if (known == evaluated_.end()) continue;
      const auto crc = ManifestCrc(*step);
      if (absl::IsNotFound(crc.status())) continue;  // just removed
      if (!crc.ok()) return crc.status();
      if (*crc == known->second) continue;
      ForgetFrom(*step);
      break;
    }
  }
  compared_ = compared_ || !steps.empty();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    if (empty() || *step > last_step()) return *step;
  }
  return std::nullopt;
}

absl::Status EvaluationLog::OpenFiles() {
  if (events_ != nullptr) return absl::OkStatus();
  const int64_t step = empty() ? 0 : last_step();
  auto events = std::make_unique<EventFile>();
  TUTTI_RETURN_IF_ERROR(events->Open(folder_));
  TUTTI_RETURN_IF_ERROR(events->Write(FileVersionEvent(WallTime())));
  // What was written for later steps is not to be shown, and comes again.
  TUTTI_RETURN_IF_ERROR(events->Write(SessionStartEvent(WallTime(), empty() ? 0 : step + 1)));
  auto metrics = std::make_unique<MetricsLog>();
  TUTTI_RETURN_IF_ERROR(metrics->Open(folder_, empty() ? -1 : step));
  events_ = std::move(events);
  metrics_ = std::move(metrics);
  return absl::OkStatus();
}

absl::Status EvaluationLog::Add(int64_t step, const Metrics& metrics) {
  auto crc = ManifestCrc(step);
  if (!crc.ok()) return crc.status();
  TUTTI_RETURN_IF_ERROR(OpenFiles());
  SummaryValues values;
  values.scalars = metrics;
  TUTTI_RETURN_IF_ERROR(events_->Write(SummaryEvent(WallTime(), step, values)));
  TUTTI_RETURN_IF_ERROR(metrics_->Append(step, "eval", WallTime(), metrics));
  evaluated_[step] = *crc;
  std::string text;
  for (const auto& [known, known_crc] : evaluated_) {
    text += fmt::format("{} {:08x}\n", checkpoint::CheckpointName(known), known_crc);
  }
  // Beside and renamed: whoever starts again finds the old lines or all of them.
  const std::string fresh = folder_ + "/evaluated.new";
  const int removed = Files().RemoveFile(fresh);
  if (removed < 0 && removed != -ENOENT) return checkpoint::SystemError("remove", fresh, removed);
  TUTTI_RETURN_IF_ERROR(checkpoint::WriteAndSync(Files(), fresh, text));
  const int renamed = Files().Rename(fresh, folder_ + "/evaluated");
  if (renamed < 0) return checkpoint::SystemError("rename", fresh, renamed);
  return checkpoint::SyncDirectory(Files(), folder_);
}

}  // namespace tutti
