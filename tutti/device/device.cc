#include "tutti/device/device.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>

#include "tutti/base/check.h"
#include "tutti/device/kernel.h"

namespace tutti {
namespace {

class HeapAllocator final : public Allocator {
 public:
  std::string_view kind() const override { return ""; }
  BufferRef Allocate(size_t bytes) override { return AllocateBuffer(bytes); }
};

std::optional<int> ParseNumber(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 0) return std::nullopt;
  return value;
}

DeviceName ParseComplete(const std::string& name) {
  auto parsed = DeviceName::Parse(name);
  TUTTI_CHECK(parsed.ok() && parsed->job && parsed->task && parsed->type && parsed->index);
  return *std::move(parsed);
}

}  // namespace

bool IsJobName(std::string_view name) {
  const auto allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  return !name.empty() && std::all_of(name.begin(), name.end(), allowed);
}

absl::StatusOr<DeviceName> DeviceName::Parse(std::string_view text) {
  DeviceName name;
  std::string_view rest = text;
  while (!rest.empty()) {
    if (rest.front() == '/') rest.remove_prefix(1);
    const std::string_view part = rest.substr(0, rest.find('/'));
    rest.remove_prefix(part.size());
    const size_t colon = part.find(':');
    if (colon == std::string_view::npos) {
      return InvalidArgument(
          "device \"{}\": \"{}\" has no colon; expected parts such as /job:worker/task:1/cpu:0",
          text, part);
    }
    const std::string_view key = part.substr(0, colon);
    const std::string_view value = part.substr(colon + 1);
    const bool any = value == "*";
    if (key == "job") {
      if (any) continue;
      if (!IsJobName(value)) {
        return InvalidArgument(
            "device \"{}\": job \"{}\" should be a name of letters, digits, '_' and '-', or *",
            text, value);
      }
      name.job = value;
      continue;
    }
    const auto number = ParseNumber(value);
    if ((!number && !any) || key.empty()) {
      return InvalidArgument("device \"{}\": \"{}\" should be a name, a colon and a number or *",
                             text, part);
    }
    if (key == "task") {
      name.task = number;
    } else {
      name.type = key;
      name.index = number;
    }
  }
  return name;
}

std::string DeviceName::ToString() const {
  std::string text;
  if (job) text += fmt::format("/job:{}", *job);
  if (task) text += fmt::format("/task:{}", *task);
  if (type) text += fmt::format("/{}:{}", *type, index ? std::to_string(*index) : "*");
  return text;
}

bool DeviceName::Matches(const DeviceName& full) const {
  return (!job || job == full.job) && (!task || task == full.task) &&
         (!type || type == full.type) && (!index || index == full.index);
}

Device::Device(std::string name, int cores, uint64_t incarnation)
    : name_(std::move(name)),
      parsed_(ParseComplete(name_)),
      incarnation_(incarnation),
      team_(cores) {
  allocators_.push_back(std::make_unique<HeapAllocator>());
}

DeviceInfo Device::info() const {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  return {.name = name_,
          .type = std::string(type()),
          .cores = team_.cores(),
          .memory_bytes = pages > 0 ? pages * sysconf(_SC_PAGESIZE) : 0,
          .incarnation = incarnation_};
}

DeviceStats Device::stats() const {
  const MemoryPool::Usage pool = pool_.usage();
  DeviceStats stats{.device = name_,
                    .cloned_bytes = variables_.cloned_bytes(),
                    .pool_bytes = pool.in_use,
                    .pool_peak_bytes = pool.peak,
                    .busy_nanos = busy_nanos_->load(std::memory_order_relaxed),
                    .lock_nanos = variables_.lock_nanos()};
  for (const auto& variable : variables_.List()) stats.variable_bytes += variable->bytes();
  return stats;
}

Allocator* Device::allocator(std::string_view kind) {
  std::lock_guard lock(mutex_);
  for (const auto& allocator : allocators_) {
    if (allocator->kind() == kind) return allocator.get();
  }
  return nullptr;
}

void Device::AddAllocator(std::unique_ptr<Allocator> allocator) {
  std::lock_guard lock(mutex_);
  allocators_.push_back(std::move(allocator));
}

void ResourceStore::Clear(const std::string& container) {
  std::lock_guard lock(mutex_);
  std::erase_if(resources_, [&](const auto& entry) { return entry.first.first == container; });
}

absl::Status KernelContext::AllocateOutput(int i, const Shape& shape) {
  TUTTI_ASSIGN_OR_RETURN(*outputs_[i], device().pool().Allocate(node->type(i).dtype, shape));
  return absl::OkStatus();
}

const Team& KernelContext::team() const { return device().team(); }

}  // namespace tutti
