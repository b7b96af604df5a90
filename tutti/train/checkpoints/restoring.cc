// How a training finds its newest checkpoint and takes its values from it. The worker that leads
// does so; the others learn which one it is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/train/checkpoints/checkpoints.h"
#include "tutti/train/checkpoints/warm_start.h"
#include "tutti/train/optimizers/optimizer.h"
#include "tutti/train/reporting/packed_text.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::Manifest;
using checkpoint::SavedCheckpoint;

// How often an evaluation looks again when a checkpoint goes while it is being opened.
constexpr int kAttempts = 5;

FileSystem& Files() { return FileSystem::System(); }

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

std::string Joined(const std::vector<std::string>& words) {
  return fmt::format("{}", fmt::join(words, "; "));
}

}  // namespace

std::vector<std::string> NamesOf(std::span<const SavedName> variables) {
  std::vector<std::string> names;
  for (const SavedName& variable : variables) names.push_back(variable.name);
  return names;
}

void RequireModel(std::span<const SavedName> variables, const SavedCheckpoint& saved, bool all) {
  const std::vector<std::string> differences = ModelDifferences(variables, saved.manifest(), all);
  if (differences.empty()) return;
  ThrowInvalidArgument(
      fmt::format("{} is a checkpoint of another model: {}; give another --model-dir, or take "
                  "from it what fits with --warm-start",
                  saved.path(), Joined(differences)));
}

bool IsDamage(const absl::Status& status) {
  return absl::IsDataLoss(status) || absl::IsNotFound(status) || absl::IsInvalidArgument(status) ||
         absl::IsUnavailable(status);
}

std::string ShardOf(const RunConfig& config, const Output& variable) {
  const std::string& device = variable.node->device();
  return config.placement != "manual" && device.empty() ? "placed/" + variable.node->name()
                                                        : device;
}

RestoreNodes::RestoreNodes(const RunConfig& config, Graph& graph,
                           std::span<const SavedName> variables,
                           const std::vector<std::string>& names) {
  // A node for each device, since a node runs on one.
  std::map<std::string, std::vector<size_t>> by_device;
  for (size_t i = 0; i < variables.size(); ++i) {
    by_device[ShardOf(config, variables[i].variable)].push_back(i);
  }
  NameScope scope(graph, "restore");
  path_ = Placeholder(graph, kUInt8, {kPathBytes}, "path");
  for (const auto& [device, members] : by_device) {
    std::vector<Output> own;
    std::vector<std::string> own_names;
    std::vector<int64_t> rows;
    for (const size_t i : members) {
      own.push_back(variables[i].variable);
      own_names.push_back(names[i]);
      rows.push_back(variables[i].first_row);
    }
    targets_.push_back(RestoreShard(path_, own, std::move(own_names), std::move(rows)));
  }
}

void RestoreNodes::Run(Session& session, const std::string& path) const {
  const Feed feed = {path_, PathTensor(path)};
  session.Run(std::span(&feed, 1), std::span<const Output>(), targets_);
}

void RestoreVariables(const RunConfig& config, Graph& graph, Session& session,
                      const SavedCheckpoint& saved, std::span<const SavedName> variables,
                      const std::vector<std::string>& names) {
  try {
    RestoreNodes(config, graph, variables, names)
        .Run(session, std::filesystem::absolute(saved.path()).string());
    return;
  } catch (const Error& error) {
    if (error.code() != Code::kNotFound && error.code() != Code::kPermissionDenied) throw;
    Log(LogLevel::kDebug, "values travel to the tasks that have the variables: {}", error.what());
  }
  // The checkpoint is open here, so a task of some variables does not see it.
  std::vector<SavedCheckpoint::Request> requests;
  for (size_t i = 0; i < variables.size(); ++i) {
    const checkpoint::SavedTensor* const tensor = saved.Find(names[i]);
    if (tensor == nullptr) {
      throw Error(Code::kNotFound, fmt::format("{} has no tensor \"{}\"", saved.path(), names[i]));
    }
    const Shape& own = variables[i].variable.shape();
    requests.push_back({names[i], variables[i].first_row,
                        Tensor(tensor->dtype, own.IsFullyKnown() ? own : tensor->whole)});
  }
  ThrowIfError(saved.Read(requests));
  NameScope scope(graph, "restore");
  std::vector<Feed> feeds;
  std::vector<const Node*> targets;
  for (size_t i = 0; i < variables.size(); ++i) {
    const Tensor& value = requests[i].target;
    const DeviceScope on(graph, variables[i].variable.node->device());
    const Output fed = Placeholder(graph, value.dtype(), value.shape());
    feeds.emplace_back(fed, value);
    targets.push_back(Assign(variables[i].variable, fed).node);
  }
  session.Run(feeds, std::span<const Output>(), targets);
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
  ThrowIfError(WithPrefix(directory_->PutAside(step), "--model-dir: "));
}

std::optional<ResumePoint> Checkpoints::RestoreNewest(Graph& graph, Session& session,
                                                      int attempts) {
  const std::vector<SavedName> variables = SavedNames(graph);
  absl::Status last;
  for (const int64_t step : ValueOrThrow(checkpoint::ListCheckpoints(Files(), path_))) {
    const auto saved =
        SavedCheckpoint::Open(Files(), path_ + "/" + checkpoint::CheckpointName(step));
    last = saved.status();
    if (saved.ok()) {
      RequireModel(variables, *saved, use_ == Use::kTrain);
      try {
        RestoreVariables(config_, graph, session, *saved, variables, NamesOf(variables));
        restored_ = saved->manifest();
        ResumePoint point = PointOf(*saved);
        // Workers that are not in lockstep may have made updates between the moment when the step
        // was read and the snapshot.
        if (use_ == Use::kTrain && !config_.strategy_object->InLockstep()) {
          point.step = session.Run(GlobalStep(graph)).scalar<int64_t>();
        }
        return point;
      } catch (...) {
        last = StatusFromCurrentException();
        // A task was lost, and the checkpoint is whole.
        if (absl::IsUnavailable(last) && saved->Verify().ok()) throw;
      }
    }
    if (!IsDamage(last)) ThrowIfError(last);
    // The training next door has a newer one, and has just removed this.
    if (use_ == Use::kEvaluate && absl::IsNotFound(last) && attempts > 0) {
      return RestoreNewest(graph, session, attempts - 1);
    }
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
  if (config_.leads() && !path_.empty()) point = RestoreNewest(graph, session, kAttempts);
  const std::optional<ResumePoint> joint =
      Unpack(config_.strategy_object->peers().Gather("restored", Pack(point))[0]);
  if (!joint || !gives || config_.leads()) return joint;
  // Where the directory is shared, reading is quicker than being sent all values. It need not
  // succeed: SynchronizeState makes the state of all workers one.
  try {
    const auto saved = ValueOrThrow(SavedCheckpoint::Open(Files(), joint->path));
    const std::vector<SavedName> variables = SavedNames(graph);
    if (saved.manifest().step == joint->step) {
      RestoreVariables(config_, graph, session, saved, variables, NamesOf(variables));
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
  RestoreVariables(config_, graph, session, *saved, plan.taken, plan.names);
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

}  // namespace tutti
