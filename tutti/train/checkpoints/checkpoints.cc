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
    if (writing_.load(std::memory_order_acquire)) {
      Tell(fmt::format("no checkpoint of step {}: that of step {} is still being written", step,
                       begun_));
      schedule_.Begin(step, NowNanos());
      return;
    }
  }
  Begin(session, step, position);
}

void Checkpoints::Begin(Session& session, int64_t step, int64_t position) {
  Wait();
  const int64_t began = NowNanos();
  schedule_.Begin(step, began);
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
  writing_.store(true, std::memory_order_release);
  auto thread =
      StartThread("the thread that writes checkpoints",
                  [this, &session, began, folder = *folder, manifest = std::move(manifest),
                   best = std::move(best)] {
                    last_ = Write(session, folder, manifest, best);
                    seconds_ = double(NowNanos() - began) * 1e-9;
                    if (!last_.ok()) {
                      directory_->Discard(manifest.step);
                      TellFailure(manifest.step, last_);
                    } else {
                      saved_ = manifest.step;
                      if (config_.verbose) {
                        Tell(fmt::format("{}/{} written in {:.2f} s", path_,
                                         checkpoint::CheckpointName(manifest.step), seconds_));
                      }
                    }
                    writing_.store(false, std::memory_order_release);
                  });
  if (thread.ok()) {
    writer_ = *std::move(thread);
    return;
  }
  writing_ = false;
  directory_->Discard(step);
  TellFailure(step, thread.status());
}

void Checkpoints::TellFailure(int64_t step, const absl::Status& status) {
  last_ = status;
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
      Files(), folder + "/" + shard.file, tensors, checkpoint::ShardMetadata(step)));
  SavedVariables saved = {stored.bytes, stored.header_crc};
  for (const checkpoint::StoredTensor& tensor : stored.tensors) {
    saved.variables.push_back({tensor.entry.dtype, tensor.entry.shape, tensor.crc});
  }
  return saved;
}

absl::Status Checkpoints::Write(Session& session, const std::string& folder, Manifest manifest,
                                const std::optional<checkpoint::Best>& best) {
  std::vector<Feed> feeds;
  std::vector<Output> fetches;
  for (const Shard& shard : shards_) {
    if (shard.travels) continue;
    feeds.emplace_back(shard.path, PathTensor(folder + "/" + shard.file));
    fetches.push_back(shard.save);
  }
  std::vector<Tensor> reports;
  try {
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
  } catch (...) {
    return StatusFromCurrentException();
  }
  TUTTI_RETURN_IF_ERROR(
      checkpoint::WriteAndSync(Files(), fmt::format("{}/{}", folder, checkpoint::kManifestName),
                               checkpoint::FormatManifest(manifest)));
  TUTTI_RETURN_IF_ERROR(directory_->Publish(manifest.step));
  // The checkpoint is there, whatever becomes of older ones.
  if (best) {
    KeepBest(*best);
  } else if (const auto removed = directory_->Retain(config_.keep); !removed.ok()) {
    Tell(fmt::format("older checkpoints stay: {}", MessageOf(removed.status())));
  }
  return absl::OkStatus();
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
  return !writing_.load(std::memory_order_acquire) && schedule_.Due(step, NowNanos());
}

std::optional<SaveEnd> Checkpoints::TakeEnded() {
  if (taken_ == begun_ || writing_.load(std::memory_order_acquire)) return std::nullopt;
  Wait();
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
  if (best_ && saved_ == step) KeepBest(*std::exchange(best_, std::nullopt));
}

void Checkpoints::KeepBest(const checkpoint::Best& best) {
  absl::Status status = checkpoint::WriteBest(Files(), path_, best);
  if (status.ok()) status = directory_->Retain(config_.keep).status();
  if (!status.ok()) Tell(fmt::format("the best checkpoint is not noted: {}", MessageOf(status)));
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
