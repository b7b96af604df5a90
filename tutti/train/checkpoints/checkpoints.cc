// A save has four parts. The step boundary: TakeSnapshot holds references to the values of all
// variables, which costs no copy. Then training goes on, and its next update of a variable goes
// into fresh memory, while a thread runs SaveShard for each device, writes the manifest when all
// shards are on the disk, and gives the checkpoint its name. At last older ones are removed.
//
// A save that is due while another is under way is left out: two would only hold each other up.
#include "tutti/train/checkpoints/checkpoints.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/base/thread.h"
#include "tutti/checkpoint/register.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/graph/ops/source.h"
#include "tutti/train/checkpoints/warm_start.h"
#include "tutti/train/reporting/packed_text.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::Manifest;
using checkpoint::ModelDirectory;
using checkpoint::SavedCheckpoint;

// Before main, so that no session looks kernels up meanwhile.
[[maybe_unused]] const bool kRegistered = (RegisterCheckpointKernels(), true);

FileSystem& Files() { return FileSystem::System(); }

std::string Owner(const RunConfig& config) {
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  return fmt::format("{}, process {} on {}", config.program, ::getpid(), host);
}

std::string Pack(const std::optional<ResumePoint>& point) {
  if (!point) return "";
  std::vector<Record> records = {
      {fmt::format("{}", point->step), fmt::format("{}", point->position), point->path}};
  for (const auto& [name, value] : point->order) records.push_back({name, value});
  return PackRecords(records);
}

std::optional<ResumePoint> Unpack(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const std::vector<Record> records = UnpackRecords(text);
  ResumePoint point;
  for (size_t i = 0; i < records.size(); ++i) {
    const Record& record = records[i];
    if (i == 0 && record.size() == 3) {
      point = {std::stoll(record[0]), std::stoll(record[1]), {}, record[2]};
    } else if (record.size() == 2) {
      point.order[record[0]] = record[1];
    }
  }
  return point;
}

ResumePoint PointOf(const SavedCheckpoint& saved) {
  const Manifest& manifest = saved.manifest();
  return {manifest.step, manifest.position, manifest.order, saved.path()};
}

// May an older checkpoint help? Not against what would be wrong with it as well.
bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnavailable(status);
}

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace

void RestoreVariables(Graph& graph, Session& session, const std::string& path,
                      std::span<const SavedName> variables, std::vector<std::string> names) {
  // A node for each device, since a node runs on one.
  std::map<std::string, std::vector<size_t>> by_device;
  for (size_t i = 0; i < variables.size(); ++i) {
    by_device[variables[i].variable.node->device()].push_back(i);
  }
  NameScope scope(graph, "restore");
  const Output where = Placeholder(graph, kUInt8, {kPathBytes}, "path");
  const Feed feed = {where, PathTensor(path)};
  std::vector<const Node*> targets;
  for (const auto& [device, members] : by_device) {
    std::vector<Output> own;
    std::vector<std::string> own_names;
    std::vector<int64_t> rows;
    for (const size_t i : members) {
      own.push_back(variables[i].variable);
      own_names.push_back(names[i]);
      rows.push_back(variables[i].first_row);
    }
    targets.push_back(RestoreShard(where, own, std::move(own_names), std::move(rows)));
  }
  session.Run(std::span(&feed, 1), std::span<const Output>(), targets);
}

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

std::optional<ResumePoint> Checkpoints::Find() {
  std::optional<ResumePoint> found;
  if (config_.leads() && !path_.empty()) {
    for (const int64_t step : ValueOrThrow(checkpoint::ListCheckpoints(Files(), path_))) {
      const auto saved =
          SavedCheckpoint::Open(Files(), path_ + "/" + checkpoint::CheckpointName(step));
      if (saved.ok()) {
        found = PointOf(*saved);
        break;
      }
      if (!IsDamage(saved.status())) ThrowIfError(saved.status());
    }
  }
  return Unpack(config_.strategy_object->peers().Gather("checkpoint", Pack(found))[0]);
}

void Checkpoints::PutAside(int64_t step, std::string_view why) {
  const std::string name = checkpoint::CheckpointName(step);
  Tell(fmt::format("{}/{} cannot be used: {}; trying the one before", path_, name, why));
  if (!directory_) return;
  // Under its own name it would count as the newest, and later ones be removed for it.
  const std::string aside = fmt::format("{}/damaged-{}", path_, name);
  (void)checkpoint::RemoveTree(Files(), aside);
  (void)Files().Rename(path_ + "/" + name, aside);
}

std::optional<ResumePoint> Checkpoints::RestoreNewest(Graph& graph, Session& session) {
  const std::vector<SavedName> variables = SavedNames(graph);
  std::vector<std::string> names;
  for (const SavedName& variable : variables) names.push_back(variable.name);
  absl::Status last;
  for (const int64_t step : ValueOrThrow(checkpoint::ListCheckpoints(Files(), path_))) {
    const auto saved =
        SavedCheckpoint::Open(Files(), path_ + "/" + checkpoint::CheckpointName(step));
    last = saved.status();
    if (saved.ok()) {
      const std::vector<std::string> differences =
          ModelDifferences(variables, saved->manifest(), use_ == Use::kTrain);
      if (!differences.empty()) {
        ThrowInvalidArgument(fmt::format(
            "{} is a checkpoint of another model: {}; give another --model-dir, or take "
            "from it what fits with --warm-start",
            saved->path(), Joined(differences)));
      }
      try {
        RestoreVariables(graph, session, saved->path(), variables, names);
        restored_ = saved->manifest();
        return PointOf(*saved);
      } catch (...) {
        last = StatusFromCurrentException();
      }
    }
    if (!IsDamage(last)) ThrowIfError(last);
    PutAside(step, MessageOf(last));
  }
  ThrowIfError(WithPrefix(
      last,
      fmt::format("--model-dir {}: no checkpoint in it can be used; remove them to begin anew: ",
                  path_)));
  return std::nullopt;
}

std::optional<ResumePoint> Checkpoints::Restore(Graph& graph, Session& session, bool gives) {
  std::optional<ResumePoint> point;
  if (config_.leads() && !path_.empty()) point = RestoreNewest(graph, session);
  const std::optional<ResumePoint> joint =
      Unpack(config_.strategy_object->peers().Gather("restored", Pack(point))[0]);
  if (!joint || !gives || config_.leads()) return joint;
  // Where the directory is shared, reading is quicker than being sent all values. It need not
  // succeed: SynchronizeState makes the state of all workers one.
  try {
    const auto saved = ValueOrThrow(SavedCheckpoint::Open(Files(), joint->path));
    const std::vector<SavedName> variables = SavedNames(graph);
    std::vector<std::string> names;
    for (const SavedName& variable : variables) names.push_back(variable.name);
    if (saved.manifest().step == joint->step) {
      RestoreVariables(graph, session, joint->path, variables, std::move(names));
    }
  } catch (const Error& error) {
    Log(LogLevel::kDebug, "the state comes from worker 0: {}", error.what());
  }
  return joint;
}

void Checkpoints::WarmStart(Graph& graph, Session& session) {
  if (config_.warm_start.empty() || !config_.leads()) return;
  auto saved = checkpoint::OpenCheckpoint(Files(), config_.warm_start);
  ThrowIfError(WithPrefix(saved.status(), "--warm-start: "));
  const tutti::WarmStart plan =
      PlanWarmStart(SavedNames(graph), saved->manifest(), NameMap(config_.warm_start_map));
  if (plan.taken.empty()) {
    ThrowInvalidArgument(fmt::format(
        "--warm-start: nothing of {} fits the model: {}; --warm-start-map NEW=OLD,... says which "
        "tensor a variable takes",
        saved->path(), Joined(plan.missing)));
  }
  RestoreVariables(graph, session, std::filesystem::absolute(saved->path()).string(), plan.taken,
                   plan.names);
  Tell(fmt::format("warm start from {}: {} variables taken, {} missing, {} left over",
                   saved->path(), plan.taken.size(), plan.missing.size(), plan.left_over.size()));
  for (size_t i = 0; i < plan.taken.size(); ++i) {
    const std::string& name = plan.taken[i].name;
    Tell(fmt::format("  taken      {}{}", name,
                     plan.names[i] == name ? "" : fmt::format(" from {}", plan.names[i])));
  }
  for (const std::string& text : plan.missing) Tell(fmt::format("  missing    {}", text));
  for (const std::string& name : plan.left_over) Tell(fmt::format("  left over  {}", name));
}

void Checkpoints::BeginTraining(Graph& graph, RunFacts facts) {
  facts_ = std::move(facts);
  schedule_.Begin(NowNanos());
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
    by_device[variable.node->device()].push_back(std::move(saved));
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
  }
}

void Checkpoints::AfterStep(Session& session, int64_t step, int64_t position) {
  if (!directory_ || !schedule_.Due(step, NowNanos())) return;
  if (writing_.load(std::memory_order_acquire)) {
    Tell(fmt::format("no checkpoint of step {}: that of step {} is still being written", step,
                     begun_));
    schedule_.Begin(NowNanos());
    return;
  }
  Begin(session, step, position);
}

void Checkpoints::Begin(Session& session, int64_t step, int64_t position) {
  Wait();
  schedule_.Begin(NowNanos());
  begun_ = step;
  Manifest manifest = {.made_by = config_.program, .step = step, .position = position};
  manifest.seed = facts_.seed;
  manifest.fingerprint = facts_.fingerprint;
  manifest.data = facts_.data;
  manifest.order = facts_.order;
  std::vector<const Node*> takes;
  for (const Shard& shard : shards_) takes.push_back(shard.take);
  session.Run(std::span<const Feed>(), std::span<const Output>(), takes);
  writing_.store(true, std::memory_order_release);
  auto thread = StartThread(
      "the thread that writes checkpoints", [this, &session, manifest = std::move(manifest)] {
        const int64_t began = NowNanos();
        last_ = Write(session, manifest);
        if (!last_.ok()) {
          directory_->Discard(manifest.step);
          Tell(fmt::format("the checkpoint of step {} failed: {}; training goes on", manifest.step,
                           MessageOf(last_)));
        } else {
          saved_ = manifest.step;
          if (config_.verbose) {
            Tell(fmt::format("{}/{} written in {:.2f} s", path_,
                             checkpoint::CheckpointName(manifest.step),
                             double(NowNanos() - began) * 1e-9));
          }
        }
        writing_.store(false, std::memory_order_release);
      });
  if (thread.ok()) {
    writer_ = *std::move(thread);
    return;
  }
  writing_ = false;
  last_ = thread.status();
  Tell(fmt::format("the checkpoint of step {} failed: {}; training goes on", step,
                   MessageOf(last_)));
}

absl::Status Checkpoints::Write(Session& session, Manifest manifest) {
  TUTTI_ASSIGN_OR_RETURN(const std::string folder, directory_->Begin(manifest.step));
  std::vector<Feed> feeds;
  std::vector<Output> fetches;
  for (const Shard& shard : shards_) {
    feeds.emplace_back(shard.path, PathTensor(folder + "/" + shard.file));
    fetches.push_back(shard.save);
  }
  std::vector<Tensor> reports;
  try {
    reports = session.Run(feeds, fetches);
    for (size_t s = 0; s < shards_.size(); ++s) {
      const SavedVariables saved = ParseSavedVariables(reports[s]);
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
  if (const auto removed = directory_->Retain(config_.keep); !removed.ok()) {
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
  return !writing_.load(std::memory_order_acquire) && schedule_.Due(step, NowNanos());
}

std::optional<SaveEnd> Checkpoints::TakeEnded() {
  if (taken_ == begun_ || writing_.load(std::memory_order_acquire)) return std::nullopt;
  Wait();
  taken_ = begun_;
  return SaveEnd{begun_, path_ + "/" + checkpoint::CheckpointName(begun_),
                 std::string(MessageOf(last_))};
}

void Checkpoints::NoteMetrics(int64_t step, const std::map<std::string, double>& metrics) {
  if (!directory_ || config_.keep_best.empty()) return;
  Wait();
  const auto metric = metrics.find(config_.keep_best);
  if (metric == metrics.end() || saved_ != step) return;
  const auto before = checkpoint::ReadBest(Files(), path_);
  const bool smaller = config_.keep_best == "loss" || config_.keep_best.ends_with("error") ||
                       config_.keep_best.ends_with("rmse");
  if (before.ok() && *before && (*before)->metric == config_.keep_best &&
      (smaller ? (*before)->value <= metric->second : (*before)->value >= metric->second)) {
    return;
  }
  absl::Status status = directory_->WriteBest({step, config_.keep_best, metric->second});
  if (status.ok()) status = directory_->Retain(config_.keep).status();
  if (!status.ok()) Tell(fmt::format("the best checkpoint is not noted: {}", MessageOf(status)));
}

}  // namespace tutti
