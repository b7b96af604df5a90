#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/base/status.h"
#include "tutti/base/team.h"
#include "tutti/device/device_info.h"
#include "tutti/device/device_stats.h"
#include "tutti/device/pool.h"
#include "tutti/device/resource_store.h"
#include "tutti/device/variable_store.h"
#include "tutti/tensor/buffer.h"

namespace tutti {

// Is `name` one that a job may have: letters, digits, '_' and '-', at least one of them?
bool IsJobName(std::string_view name);

// The name of a device, "/job:worker/task:1/cpu:0". A requested name may leave parts out, and have
// a * for a job, task or number; a device alone needs no slash: "cpu:1".
struct DeviceName {
  std::optional<std::string> job;
  std::optional<int> task;
  std::optional<std::string> type;
  std::optional<int> index;

  static absl::StatusOr<DeviceName> Parse(std::string_view text);
  std::string ToString() const;
  // Does `full` have every part that this one names?
  bool Matches(const DeviceName& full) const;
};

// The allocator kind of buckets: memory that peers on this host read and write in place.
inline constexpr std::string_view kRegisteredMemory = "registered";

// How the bytes of an arena are had. A communicator provides memory that it has registered.
class Allocator {
 public:
  virtual ~Allocator() = default;
  virtual std::string_view kind() const = 0;
  virtual BufferRef Allocate(size_t bytes) = 0;  // empty when there is not enough
};

// Where kernels run: a lane of compute with its own cores and memory, and the variables and queues
// that live there. Thread-safe.
class Device {
 public:
  // REQUIRES: `name` is complete. `incarnation` is that of the process.
  Device(std::string name, int cores, uint64_t incarnation = 0);

  const std::string& name() const { return name_; }
  const DeviceName& parsed_name() const { return parsed_; }
  // "cpu": chooses kernels. A complete name has one, which the check cannot know.
  std::string_view type() const {
    return *parsed_.type;  // NOLINT(bugprone-unchecked-optional-access)
  }
  DeviceInfo info() const;
  DeviceStats stats() const;
  const Team& team() const { return team_; }
  MemoryPool& pool() { return pool_; }
  VariableStore& variables() { return variables_; }
  ResourceStore& resources() { return resources_; }
  // How long threads have run its nodes, in nanoseconds; who runs them adds to it.
  const std::shared_ptr<std::atomic<int64_t>>& busy_nanos() const { return busy_nanos_; }

  // The allocator for arenas of a kind; "" is ordinary memory. Null when there is none of that
  // kind.
  Allocator* allocator(std::string_view kind);
  void AddAllocator(std::unique_ptr<Allocator> allocator);

 private:
  const std::string name_;
  const DeviceName parsed_;
  const uint64_t incarnation_;
  const Team team_;
  MemoryPool pool_;
  VariableStore variables_;
  ResourceStore resources_;
  const std::shared_ptr<std::atomic<int64_t>> busy_nanos_ =
      std::make_shared<std::atomic<int64_t>>(0);
  std::mutex mutex_;
  std::vector<std::unique_ptr<Allocator>> allocators_;
};

}  // namespace tutti
