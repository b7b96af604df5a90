#include "tutti/net/message/region.h"

#include <sys/mman.h>

#include <cerrno>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"

namespace tutti::net::message {

Region::~Region() {
  if (mapped > 0) munmap(bytes.data(), mapped);
}

class RegionTable::Memory final : public RegisteredMemory {
 public:
  Memory(std::shared_ptr<RegionTable> table, std::shared_ptr<Region> region)
      : table_(std::move(table)), region_(std::move(region)) {}
  ~Memory() override { table_->Withdraw(std::move(region_)); }

  Bytes bytes() const override { return region_->bytes; }
  MemoryKey key() const override { return {region_->number, 0}; }

 private:
  std::shared_ptr<RegionTable> table_;
  std::shared_ptr<Region> region_;
};

absl::StatusOr<std::unique_ptr<RegisteredMemory>> RegionTable::Allocate(size_t bytes) {
  constexpr size_t kLargePage = size_t{2} << 20;
  // An empty region has an address too.
  const size_t mapped = bytes > 0 ? bytes : 1;
  void* data =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, /*fd=*/-1, 0);
  if (data == MAP_FAILED) {
    return ResourceExhausted("cannot allocate {} bytes: {}", bytes, ErrnoText(errno));
  }
  if (mapped >= kLargePage) madvise(data, mapped, MADV_HUGEPAGE);
  return Add({static_cast<std::byte*>(data), bytes}, mapped);
}

std::unique_ptr<RegisteredMemory> RegionTable::Register(Bytes bytes) { return Add(bytes, 0); }

std::unique_ptr<RegisteredMemory> RegionTable::Add(Bytes bytes, size_t mapped) {
  const std::lock_guard lock(mutex_);
  auto region = std::make_shared<Region>(++last_number_, bytes, mapped);
  by_number_.emplace(region->number, region);
  if (mapped > 0) by_address_.emplace(bytes.data(), region);
  return std::make_unique<Memory>(shared_from_this(), std::move(region));
}

MemoryKey RegionTable::KeyOf(const void* data, size_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto* address = static_cast<const std::byte*>(data);
  auto after = by_address_.upper_bound(address);
  if (after == by_address_.begin()) return {};
  const Region& region = *std::prev(after)->second;
  const auto offset = static_cast<size_t>(address - region.bytes.data());
  if (offset > region.bytes.size() || bytes > region.bytes.size() - offset) return {};
  return {region.number, offset};
}

absl::StatusOr<std::shared_ptr<Region>> RegionTable::Find(MemoryKey key, uint64_t bytes) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_number_.find(key.region);
  if (found == by_number_.end()) {
    return InvalidArgument("memory region {} does not exist (or no longer)", key.region);
  }
  const uint64_t size = found->second->bytes.size();
  if (key.offset > size || bytes > size - key.offset) {
    return InvalidArgument("bytes {} + {} lie outside memory region {}, which has {}", key.offset,
                           bytes, key.region, size);
  }
  return found->second;
}

void RegionTable::OnWithdrawn(std::function<void(const Region&)> callback) {
  const std::lock_guard lock(mutex_);
  withdrawn_ = std::move(callback);
}

void RegionTable::Withdraw(std::shared_ptr<Region> region) {
  std::function<void(const Region&)> withdrawn;
  {
    const std::lock_guard lock(mutex_);
    by_number_.erase(region->number);
    if (region->mapped > 0) by_address_.erase(region->bytes.data());
    if (region->mapped == 0 && region.use_count() > 1) withdrawn = withdrawn_;
  }
  if (withdrawn != nullptr) withdrawn(*region);
}

}  // namespace tutti::net::message
