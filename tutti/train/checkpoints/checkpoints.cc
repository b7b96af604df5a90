// A save has four parts. The step boundary: TakeSnapshot holds references to the values of all
// variables, which costs no copy. Then training goes on, and its next update of a variable goes
// into fresh memory, while a thread runs SaveShard for each device, writes the manifest when all
// shards are on the disk, and gives the checkpoint its name. At last older ones are removed.
//
// A save that is due while another is under way is left out: two would only hold each other up. The
// exception is a step that an evaluation has found to be the best so far: it is saved whenever it
// comes, and noted as the best one when it is durable, before older ones are removed.
#include "tutti/train/checkpoints/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/thread.h"
#include "tutti/checkpoint/register.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/graph/ops/source.h"
#include "tutti/train/metrics/metric_states.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::Manifest;
using checkpoint::ModelDirectory;

// Before main, so that no session looks kernels up meanwhile.
[[maybe_unused]] const bool kRegistered = (RegisterCheckpointKernels(), true);

FileSystem& Files() { return FileSystem::System(); }

std::string Owner(const RunConfig& config) {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}, process {} on {}", config.program, ::getpid(), host);
}

double Since(int64_t begin) { return double(NowNanos() - begin) * 1e-9; }

// A task was lost or the session was ended. Whatever else lets a save fail, training can go on.
bool EndsTraining(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status) ||
         absl::IsDeadlineExceeded(status);
}

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace

Checkpoints::Checkpoints(const RunConfig& config, Use use)
    : config_(config),
      use_(use),
      path_(config.model_dir.empty() ? "" : std::filesystem::absolute(config.model_dir).string()),
      schedule_(config.save_every) {
  if (use == Use::kEvaluate || path_.empty() || !config.leads()) return;
  auto directory = ModelDirectory::Open(Files(), path_, Owner(config));
  ThrowIfError(WithPrefix(directory.status(), "--model-dir: "));
  directory_ = *std::move(directory);
}

Checkpoints::~Checkpoints() { Wait(); }

void Checkpoints::Tell(std::string_view text) const {
  FormatTo(stderr, "{}: {}\n", config_.program, text);
}

void Checkpoints::BeginTraining(Graph& graph, RunFacts facts, int64_t step) {
  facts_ = std::move(facts);
  schedule_.Begin(step, NowNanos());
  if (!directory_) return;
  if (restored_) {
    saved_ = restored_->step;
    const std::vector<std::string> differences = DifferencesFrom(*restored_, facts_);
    if (!differences.empty()) {
      Tell(fmt::format("this run is not bit-reproducible from here on: {}", Joined(differences)));
    }
  }
  std::map<std::string, std::vector<SavedName>> by_device;
  int64_t bytes = 0;
  for (SavedName& saved : SavedNames(graph)) {
    const Output& variable = saved.variable;
    if (variable.shape().IsFullyKnown()) {
      bytes += variable.shape().elements() * int64_t(SizeOf(variable.dtype()));
    }
    by_device[ShardOf(config_, variable)].push_back(std::move(saved));
  }
  ThrowIfError(WithPrefix(directory_->CheckRoom(bytes), "--model-dir: "));
  NameScope scope(graph, "save");
  for (auto& [device, names] : by_device) {
    const size_t number = shards_.size();
    Shard& shard = shards_.emplace_back();
    shard.file = fmt::format("shard-{:05}.safetensors", number);
    std::vector<Output> variables;
    for (const SavedName& name : names) variables.push_back(name.variable);
    const std::string snapshot = fmt::format("save/{}", number);
    shard.names = std::move(names);
    shard.take = TakeSnapshot(variables, snapshot);
    shard.path = Placeholder(graph, kUInt8, {kPathBytes}, fmt::format("path_{}", number));
    shard.save = SaveShard(shard.path, variables, snapshot);
    if (device.empty()) continue;
    const DeviceScope there(graph, device);
    shard.probe = SaveShard(shard.path, {}, fmt::format("save/probe_{}", number));
  }
}

void Checkpoints::AfterStep(Session& session, int64_t step, int64_t position) {
  if (!directory_) return;
  // The best one so far is waited for: its values are gone with the next step.
  if (!best_) {
    if (!schedule_.Due(step, NowNanos())) return;
    if (Busy()) {
      const bool writes = writing_.load(std::memory_order_acquire);
      Tell(fmt::format("no checkpoint of step {}: {} still being {}", step,
                       writes ? fmt::format("that of step {} is", begun_)
                              : fmt::format("those before step {} are", begun_),
                       writes ? "written" : "removed"));
      schedule_.Begin(step, NowNanos());
      return;
    }
  }
  Begin(session, step, position);
}

void Checkpoints::Begin(Session& session, int64_t step, int64_t position) {
  Wait();
  began_ = NowNanos();
  schedule_.Begin(step, began_);
  begun_ = step;
  auto best = std::exchange(best_, std::nullopt);
  if (best) best->step = step;
  // Before the snapshot, which would be held for nothing.
  const auto folder = directory_->Begin(step);
  if (!folder.ok()) return TellFailure(step, folder.status());
  Manifest manifest = {.made_by = config_.program, .step = step, .position = position};
  manifest.seed = facts_.seed;
  manifest.fingerprint = facts_.fingerprint;
  manifest.data = facts_.data;
  manifest.order = facts_.order;
  FindPrivateDisks(session, *folder);
  try {
    HoldValues(session);
  } catch (...) {
    const absl::Status status = StatusFromCurrentException();
    directory_->Discard(step);
    last_ = status;
    if (EndsTraining(status)) throw;
    ReleaseValues(session);
    return TellFailure(step, status);
  }
  writing_.store(true, std::memory_order_release);
  busy_.store(true, std::memory_order_release);
  auto thread = StartThread(
      "the thread that writes checkpoints",
      [this, &session, folder = *folder, manifest = std::move(manifest), best = std::move(best)] {
        const absl::Status status = Write(session, folder, manifest);
        if (status.ok()) {
          TellSuccess(manifest.step);
          if (best) NoteAsBest(*best);
        } else {
          directory_->Discard(manifest.step);
          if (!EndsTraining(status)) ReleaseValues(session);
          TellFailure(manifest.step, status);
        }
        // Whoever asks whether the save has ended does not wait for what follows.
        writing_.store(false, std::memory_order_release);
        if (status.ok()) RemoveOlder();
        busy_.store(false, std::memory_order_release);
      });
  if (thread.ok()) {
    writer_ = *std::move(thread);
    return;
  }
  writing_ = false;
  busy_ = false;
  directory_->Discard(step);
  ReleaseValues(session);
  TellFailure(step, thread.status());
}

void Checkpoints::HoldValues(Session& session) {
  std::vector<const Node*> takes;
  for (Shard& shard : shards_) {
    if (!shard.travels) {
      takes.push_back(shard.take);
      continue;
    }
    std::vector<Output> variables;
    for (const SavedName& name : shard.names) variables.push_back(name.variable);
    shard.values = session.Run(std::span<const Feed>(), variables);
  }
  if (!takes.empty()) session.Run(std::span<const Feed>(), std::span<const Output>(), takes);
}

// Values that stayed held until the next save would be copied by every update. SaveShard releases
// what it holds before it refuses a path that is no shard's.
void Checkpoints::ReleaseValues(Session& session) {
  for (Shard& shard : shards_) {
    shard.values.clear();
    if (shard.travels) continue;
    try {
      session.Run({{shard.path, PathTensor("")}}, shard.save);
    } catch (const Error&) {
    }
  }
}

void Checkpoints::TellSuccess(int64_t step) {
  last_ = absl::OkStatus();
  seconds_ = Since(began_);
  saved_ = step;
  if (!config_.verbose) return;
  Tell(fmt::format("{}/{} written in {:.2f} s", path_, checkpoint::CheckpointName(step), seconds_));
}

void Checkpoints::TellFailure(int64_t step, const absl::Status& status) {
  last_ = status;
  seconds_ = Since(began_);
  Tell(fmt::format("the checkpoint of step {} failed: {}; training goes on", step,
                   MessageOf(status)));
}

// A task without the directory cannot write its shard there; its values come to this process at the
// step boundary, and training waits for them. Whether a task has it is found out once, by an empty
// file: the folder is new, so on another disk it is not there.
void Checkpoints::FindPrivateDisks(Session& session, const std::string& folder) {
  if (std::exchange(probed_, true)) return;
  for (size_t s = 0; s < shards_.size(); ++s) {
    Shard& shard = shards_[s];
    if (!shard.probe) continue;
    const std::string path = fmt::format("{}/probe-{}.safetensors", folder, s);
    try {
      session.Run({{shard.path, PathTensor(path)}}, shard.probe);
      shard.travels = Files().RemoveFile(path) < 0;
    } catch (const Error& error) {
      // Anything else is told by the save that follows.
      shard.travels = error.code() == Code::kNotFound || error.code() == Code::kPermissionDenied;
    }
    if (shard.travels && config_.verbose) {
      Tell(fmt::format("{} does not see {}; its variables travel here to be saved",
                       shard.names.front().variable.node->device(), path_));
    }
  }
}

SavedVariables Checkpoints::WriteHere(Shard& shard, const std::string& folder, int64_t step) {
  std::vector<checkpoint::NamedTensor> tensors;
  for (size_t i = 0; i < shard.names.size(); ++i) {
    tensors.push_back({shard.names[i].variable.node->name(), std::move(shard.values[i])});
  }
  shard.values.clear();
  const checkpoint::StoredShard stored = ValueOrThrow(checkpoint::WriteShard(
      Files(), folder + "/" + shard.file, std::move(tensors), checkpoint::ShardMetadata(step)));
  SavedVariables saved = {stored.bytes, stored.header_crc};
  for (const checkpoint::StoredTensor& tensor : stored.tensors) {
    saved.variables.push_back({tensor.entry.dtype, tensor.entry.shape, tensor.crc});
  }
  return saved;
}

absl::Status Checkpoints::Write(Session& session, const std::string& folder, Manifest manifest) {
  try {
    std::vector<Feed> feeds;
    std::vector<Output> fetches;
    for (const Shard& shard : shards_) {
      if (shard.travels) continue;
      feeds.emplace_back(shard.path, PathTensor(folder + "/" + shard.file));
      fetches.push_back(shard.save);
    }
    std::vector<Tensor> reports;
    if (!fetches.empty()) reports = session.Run(feeds, fetches);
    size_t reported = 0;
    for (size_t s = 0; s < shards_.size(); ++s) {
      const SavedVariables saved = shards_[s].travels ? WriteHere(shards_[s], folder, manifest.step)
                                                      : ParseSavedVariables(reports[reported++]);
      manifest.shards.push_back({shards_[s].file, saved.file_bytes, saved.header_crc});
      for (size_t i = 0; i < shards_[s].names.size(); ++i) {
        const SavedName& name = shards_[s].names[i];
        const SavedVariable& variable = saved.variables.at(i);
        manifest.tensors.push_back(
            {.name = name.name,
             .key = name.variable.node->name(),
             .dtype = variable.dtype,
             .shape = variable.shape,
             .whole = name.whole.IsFullyKnown() ? name.whole : variable.shape,
             .first_row = name.first_row,
             .slot_of = name.slot_of,
             .shard = int64_t(s),
             .crc = variable.crc});
      }
    }
    TUTTI_RETURN_IF_ERROR(
        checkpoint::WriteAndSync(Files(), fmt::format("{}/{}", folder, checkpoint::kManifestName),
                                 checkpoint::FormatManifest(manifest)));
    return directory_->Publish(manifest.step);
  } catch (...) {
    return StatusFromCurrentException();
  }
}

void Checkpoints::Wait() {
  if (writer_.joinable()) writer_.join();
}

absl::Status Checkpoints::Finish(Session& session, int64_t step, int64_t position) {
  if (!directory_) return absl::OkStatus();
  Wait();
  if (saved_ == step) return absl::OkStatus();
  Begin(session, step, position);
  Wait();
  return last_;
}

bool Checkpoints::WillSave(int64_t step, bool last) {
  if (!directory_) return false;
  if (last) {
    Wait();
    return saved_ != step;
  }
  if (best_) return true;
  return !Busy() && schedule_.Due(step, NowNanos());
}

std::optional<SaveEnd> Checkpoints::TakeEnded() {
  if (taken_ == begun_ || writing_.load(std::memory_order_acquire)) return std::nullopt;
  taken_ = begun_;
  return SaveEnd{begun_, path_ + "/" + checkpoint::CheckpointName(begun_),
                 std::string(MessageOf(last_)), seconds_};
}

void Checkpoints::MarkRunning() {
  best_.reset();  // of an evaluation after the last training, whose step is not saved any more
  if (directory_) ThrowIfError(WithPrefix(directory_->RemoveFinish(), "--model-dir: "));
}

void Checkpoints::MarkFinished(int64_t step, const std::string& until) {
  if (!directory_) return;
  const absl::Status status = directory_->WriteFinish({step, until});
  if (!status.ok()) Tell(fmt::format("no evaluator learns of the end: {}", MessageOf(status)));
}

void Checkpoints::NoteMetrics(int64_t step, const std::map<std::string, double>& metrics) {
  if (!directory_ || config_.keep_best.empty() || config_.has_evaluator) return;
  Wait();  // the one that is being written may be the best so far
  best_ = BetterThanBest(Files(), path_, step, config_.keep_best, metrics);
  if (!best_ || saved_ != step) return;
  NoteAsBest(*std::exchange(best_, std::nullopt));
  RemoveOlder();
}

void Checkpoints::NoteAsBest(const checkpoint::Best& best) {
  const absl::Status status = checkpoint::WriteBest(Files(), path_, best);
  if (!status.ok()) Tell(fmt::format("the best checkpoint is not noted: {}", MessageOf(status)));
}

void Checkpoints::RemoveOlder() {
  const auto removed = directory_->Retain(config_.keep);
  if (removed.ok()) return;
  Tell(fmt::format("older checkpoints stay: {}", MessageOf(removed.status())));
}

std::optional<checkpoint::Best> BetterThanBest(FileSystem& files, const std::string& path,
                                               int64_t step, const std::string& name,
                                               const std::map<std::string, double>& metrics) {
  const auto metric = metrics.find(name);
  if (metric == metrics.end() || std::isnan(metric->second)) return std::nullopt;
  const auto before = checkpoint::ReadBest(files, path);
  const bool smaller = SmallerIsBetter(name);
  if (before.ok() && *before && (*before)->metric == name &&
      (smaller ? (*before)->value <= metric->second : (*before)->value >= metric->second)) {
    return std::nullopt;
  }
  return checkpoint::Best{step, name, metric->second};
}

absl::Status NoteBest(FileSystem& files, const std::string& path, int64_t step,
                      const std::string& name, const std::map<std::string, double>& metrics) {
  const auto best = BetterThanBest(files, path, step, name, metrics);
  return best ? checkpoint::WriteBest(files, path, *best) : absl::OkStatus();
}

}  // namespace tutti
