// The kernels of TakeSnapshot, SaveShard and RestoreShard. Files are written and read on a thread
// of the node's own: a lane never waits for a disk.
#include <fmt/format.h>

#include <mutex>
#include <thread>

#include "tutti/base/error.h"
#include "tutti/base/thread.h"
#include "tutti/checkpoint/model_directory.h"
#include "tutti/checkpoint/register.h"
#include "tutti/checkpoint/saved_checkpoint.h"
#include "tutti/checkpoint/shard_file.h"
#include "tutti/device/device.h"
#include "tutti/device/kernel_registry.h"
#include "tutti/graph/ops/checkpoint.h"
#include "tutti/graph/ops/variable_key.h"

namespace tutti {
namespace {

using checkpoint::FileSystem;
using checkpoint::NamedTensor;
using checkpoint::SavedCheckpoint;

// Values that are held for a save.
class SnapshotResource final : public Resource {
 public:
  std::string_view kind() const override { return "Snapshot"; }
  void Hold(std::vector<NamedTensor> values) {
    std::lock_guard lock(mutex_);
    values_ = std::move(values);
  }
  std::vector<NamedTensor> Take() {
    std::lock_guard lock(mutex_);
    return std::exchange(values_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<NamedTensor> values_;
};

absl::StatusOr<std::shared_ptr<SnapshotResource>> SnapshotOf(const Node& node, Device& device) {
  return device.resources().FindOrCreate<SnapshotResource>(
      "", "snapshot/" + node.attr<std::string>("snapshot"),
      [] { return std::make_shared<SnapshotResource>(); });
}

// The variables among a node's inputs, from input `first` on.
absl::StatusOr<std::vector<std::shared_ptr<VariableState>>> VariablesOf(const PrepareContext& c,
                                                                        int first) {
  std::vector<std::shared_ptr<VariableState>> states;
  for (int i = first; i < c.node().num_inputs(); ++i) {
    const Output reference = c.node().input(i);
    TUTTI_ASSIGN_OR_RETURN(const VariableKey key, VariableKeyOf(reference));
    TUTTI_ASSIGN_OR_RETURN(
        auto state, c.device().variables().FindOrCreate(key.container, key.name,
                                                        {reference.dtype(), reference.shape()}));
    states.push_back(std::move(state));
  }
  return states;
}

class TakeSnapshotKernel final : public Kernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(states_, VariablesOf(c, 0));
    TUTTI_ASSIGN_OR_RETURN(snapshot_, SnapshotOf(c.node(), c.device()));
    return absl::OkStatus();
  }

  absl::Status Compute(KernelContext&) override {
    std::vector<NamedTensor> values;
    values.reserve(states_.size());
    for (const auto& state : states_) {
      TUTTI_ASSIGN_OR_RETURN(Tensor value, state->Snapshot());
      values.push_back({state->name(), std::move(value)});
    }
    snapshot_->Hold(std::move(values));
    return absl::OkStatus();
  }

 private:
  std::vector<std::shared_ptr<VariableState>> states_;
  std::shared_ptr<SnapshotResource> snapshot_;
};

// A node that does its work on a thread of its own.
class FileKernel : public AsyncKernel {
 public:
  ~FileKernel() override { Join(); }

  void Start(KernelContext& c) final {
    Join();
    auto thread = StartThread("the thread of a checkpoint's file", [this, &c] {
      absl::Status status;
      try {
        status = Work(c);
      } catch (...) {
        status = StatusFromCurrentException();
      }
      c.completion->NodeDone(c.index, std::move(status));
    });
    if (!thread.ok()) return c.completion->NodeDone(c.index, thread.status());
    thread_ = *std::move(thread);
  }

 protected:
  virtual absl::Status Work(KernelContext& c) = 0;
  static checkpoint::TransferOptions Options(KernelContext& c) {
    return {.check = [&c] { return c.cancellation().status(); }};
  }

 private:
  void Join() {
    if (!thread_.joinable()) return;
    // The node's end may destroy its plan on this very thread.
    thread_.get_id() == std::this_thread::get_id() ? thread_.detach() : thread_.join();
  }

  std::thread thread_;
};

// The step of the checkpoint into whose directory `path` leads; nothing for a path that leads
// anywhere else, which no client may write to.
std::optional<int64_t> StepOfShardPath(std::string_view path) {
  constexpr std::string_view kTemporary = ".tmp-";
  const size_t slash = path.rfind('/');
  if (slash == std::string_view::npos || slash == 0 || !path.ends_with(".safetensors")) return {};
  const size_t before = path.rfind('/', slash - 1);
  const size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::string_view folder = path.substr(begin, slash - begin);
  if (!folder.starts_with(kTemporary)) return {};
  return checkpoint::StepOfName(folder.substr(kTemporary.size()));
}

class SaveShardKernel final : public FileKernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(snapshot_, SnapshotOf(c.node(), c.device()));
    return absl::OkStatus();
  }
  std::string Awaited(const KernelContext& c) const override {
    return fmt::format("the disk, to write {}", PathOf(c.input(0)));
  }

 private:
  absl::Status Work(KernelContext& c) override {
    const std::string path = PathOf(c.input(0));
    std::vector<NamedTensor> values = snapshot_->Take();
    const auto step = StepOfShardPath(path);
    if (!step) {
      return InvalidArgument(
          "\"{}\" is no shard of a checkpoint that is being written; expected "
          ".../.tmp-checkpoint-000100/NAME.safetensors",
          path);
    }
    if (int(values.size()) != c.node->num_inputs() - 1) {
      return FailedPrecondition(
          "snapshot \"{}\" holds {} values, expected {}; run TakeSnapshot "
          "before each SaveShard",
          c.node->attr<std::string>("snapshot"), values.size(), c.node->num_inputs() - 1);
    }
    TUTTI_ASSIGN_OR_RETURN(const checkpoint::StoredShard stored,
                           checkpoint::WriteShard(FileSystem::System(), path, std::move(values),
                                                  checkpoint::ShardMetadata(*step), Options(c)));
    SavedVariables saved = {stored.bytes, stored.header_crc};
    for (const checkpoint::StoredTensor& tensor : stored.tensors) {
      saved.variables.push_back({tensor.entry.dtype, tensor.entry.shape, tensor.crc});
    }
    c.SetOutput(0, FormatSavedVariables(saved));
    return absl::OkStatus();
  }

  std::shared_ptr<SnapshotResource> snapshot_;
};

class RestoreShardKernel final : public FileKernel {
 public:
  absl::Status Prepare(PrepareContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(states_, VariablesOf(c, 1));
    return absl::OkStatus();
  }
  std::string Awaited(const KernelContext& c) const override {
    return fmt::format("the disk, to read {}", PathOf(c.input(0)));
  }

 private:
  absl::Status Work(KernelContext& c) override {
    TUTTI_ASSIGN_OR_RETURN(const SavedCheckpoint saved,
                           SavedCheckpoint::Open(FileSystem::System(), PathOf(c.input(0))));
    const auto& names = c.node->attr<std::vector<std::string>>("names");
    const auto& first_rows = c.node->attr<std::vector<int64_t>>("first_rows");
    std::vector<SavedCheckpoint::Request> requests;
    for (size_t i = 0; i < states_.size(); ++i) {
      const Output variable = c.node->input(int(i) + 1);
      const checkpoint::SavedTensor* const tensor = saved.Find(names[i]);
      if (tensor == nullptr) {
        return NotFound("{} has no tensor \"{}\" for {}", saved.path(), names[i],
                        variable.node->Describe());
      }
      // A variable of unknown shape takes that of the saved one.
      const Shape& shape = variable.shape().IsFullyKnown() ? variable.shape() : tensor->whole;
      if (variable.dtype() != tensor->dtype || !variable.shape().CompatibleWith(shape)) {
        return InvalidArgument("{} is {} {}, but tensor \"{}\" of {} is {} {}",
                               variable.node->Describe(), NameOf(variable.dtype()),
                               variable.shape().ToString(), names[i], saved.path(),
                               NameOf(tensor->dtype), tensor->whole.ToString());
      }
      requests.push_back({names[i], first_rows[i], Tensor(variable.dtype(), shape)});
    }
    TUTTI_RETURN_IF_ERROR(saved.Read(requests, Options(c)));
    for (size_t i = 0; i < states_.size(); ++i) states_[i]->Assign(std::move(requests[i].target));
    return absl::OkStatus();
  }

  std::vector<std::shared_ptr<VariableState>> states_;
};

}  // namespace

void RegisterCheckpointKernels() {
  [[maybe_unused]] static const bool done = [] {
    KernelRegistry& registry = KernelRegistry::Global();
    AddKernel<TakeSnapshotKernel>(registry, "TakeSnapshot", "cpu");
    AddKernel<SaveShardKernel>(registry, "SaveShard", "cpu");
    AddKernel<RestoreShardKernel>(registry, "RestoreShard", "cpu");
    return true;
  }();
}

}  // namespace tutti
