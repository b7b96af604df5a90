#include "tutti/net/link/shared_memory.h"

#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "tutti/base/status.h"

// Blocks of kOwnRegion bytes and more have a region, and so a file, each. Smaller ones are rounded
// up to a power of two and cut from slabs, regions of one large page, so that many of them take few
// files.
namespace tutti::net {
namespace {

constexpr size_t kSlab = size_t{2} << 20;
constexpr size_t kOwnRegion = size_t{1} << 20;

// Four steps per power of two, or one for what is cut from slabs.
size_t RoundUp(size_t bytes) {
  if (bytes <= SharedMemory::kLeastBytes) return SharedMemory::kLeastBytes;
  const size_t power = std::bit_ceil(bytes);
  if (power < kOwnRegion) return power;
  const size_t step = std::max<size_t>(power / 8, 4096);
  return (bytes + step - 1) / step * step;
}

// A quarter of the descriptors that this process may open.
size_t MaxRegions() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 64;
  return std::clamp<size_t>(limit.rlim_cur / 4, 16, 4000);
}

}  // namespace

struct SharedMemory::State : std::enable_shared_from_this<State> {
  struct Free {
    std::shared_ptr<const Region> region;
    Bytes bytes;
  };
  struct Slab {
    size_t blocks = 0;
    size_t free = 0;
  };

  explicit State(size_t idle_limit) : idle_limit(idle_limit) {}

  const size_t idle_limit;
  const size_t max_regions = MaxRegions();
  mutable std::mutex mutex;
  // Of one size; what was given back last is used first, and is still in the cache.
  std::map<size_t, std::vector<Free>> free;
  std::map<uintptr_t, std::weak_ptr<const Region>> regions;  // by address
  std::map<uint32_t, Slab> slabs;                            // by region
  uint32_t last_id = 0;
  uint64_t in_use = 0;
  uint64_t idle = 0;

  absl::StatusOr<std::shared_ptr<const Region>> Create(size_t bytes);
  Block Lend(const Free& block);
  void GiveBack(Free block);
  // Lets go of free blocks until at most `limit` bytes lie idle; what goes is appended to `gone`,
  // to be unmapped without the lock.
  void Shrink(uint64_t limit, std::vector<Free>* gone);
};

absl::StatusOr<std::shared_ptr<const SharedMemory::Region>> SharedMemory::State::Create(
    size_t bytes) {
  {
    const std::lock_guard lock(mutex);
    std::erase_if(regions, [](const auto& entry) { return entry.second.expired(); });
    if (regions.size() >= max_regions) {
      return ResourceExhausted(
          "{} regions of shared memory, each of which takes a file, are in use", max_regions);
    }
  }
  auto region = std::make_shared<Region>();
  TUTTI_ASSIGN_OR_RETURN(region->pages, shm::SharedPages::Create(bytes, &region->file));
  region->bytes = region->pages.bytes();
  const std::lock_guard lock(mutex);
  region->id = ++last_id;
  regions[reinterpret_cast<uintptr_t>(region->bytes.data())] = region;
  return region;
}

SharedMemory::Block SharedMemory::State::Lend(const Free& block) {
  in_use += block.bytes.size();
  struct Loan {
    std::shared_ptr<State> state;
    Free block;
    ~Loan() { state->GiveBack(std::move(block)); }
  };
  return {block.bytes, std::shared_ptr<Loan>(new Loan{shared_from_this(), block})};
}

void SharedMemory::State::GiveBack(Free block) {
  std::vector<Free> gone;  // destroyed after the lock
  const std::lock_guard lock(mutex);
  in_use -= block.bytes.size();
  idle += block.bytes.size();
  if (const auto slab = slabs.find(block.region->id); slab != slabs.end()) ++slab->second.free;
  free[block.bytes.size()].push_back(std::move(block));
  if (idle > idle_limit) Shrink(idle_limit, &gone);
}

void SharedMemory::State::Shrink(uint64_t limit, std::vector<Free>* gone) {
  // The largest first: few calls for many bytes. A slab goes as a whole, since its region does.
  std::set<uint32_t> begun;
  for (auto entry = free.rbegin(); entry != free.rend() && idle > limit; ++entry) {
    std::vector<Free>& blocks = entry->second;
    std::erase_if(blocks, [&](Free& block) {
      if (idle <= limit && !begun.contains(block.region->id)) return false;
      const auto slab = slabs.find(block.region->id);
      if (slab != slabs.end() && slab->second.free < slab->second.blocks) return false;
      if (slab != slabs.end()) begun.insert(block.region->id);
      idle -= block.bytes.size();
      gone->push_back(std::move(block));
      return true;
    });
  }
  std::erase_if(slabs, [&](const auto& entry) {
    return std::any_of(gone->begin(), gone->end(),
                       [&](const Free& block) { return block.region->id == entry.first; });
  });
  for (const auto& block : *gone) {
    regions.erase(reinterpret_cast<uintptr_t>(block.region->bytes.data()));
  }
}

SharedMemory::SharedMemory(size_t idle_bytes) : state_(std::make_shared<State>(idle_bytes)) {}

SharedMemory::~SharedMemory() { Trim(); }

absl::StatusOr<SharedMemory::Block> SharedMemory::Allocate(size_t bytes) {
  const size_t size = RoundUp(bytes);
  State& state = *state_;
  const auto take = [&]() -> absl::StatusOr<Block> {
    std::vector<State::Free>& blocks = state.free[size];
    if (blocks.empty()) return NotFound("none is free");
    const State::Free block = std::move(blocks.back());
    blocks.pop_back();
    state.idle -= size;
    if (const auto slab = state.slabs.find(block.region->id); slab != state.slabs.end()) {
      --slab->second.free;
    }
    Block lent = state.Lend(block);
    lent.bytes = lent.bytes.first(bytes);
    return lent;
  };
  {
    const std::lock_guard lock(state.mutex);
    absl::StatusOr<Block> block = take();
    if (block.ok()) return block;
  }
  const bool own = size >= kOwnRegion;
  absl::StatusOr<std::shared_ptr<const Region>> region = state.Create(own ? size : kSlab);
  if (!region.ok()) {
    Trim();
    region = state.Create(own ? size : kSlab);
    if (!region.ok()) return region.status();
  }
  const std::lock_guard lock(state.mutex);
  if (!own) state.slabs[(*region)->id] = {.blocks = kSlab / size, .free = kSlab / size};
  for (size_t at = 0; at + size <= (*region)->bytes.size(); at += size) {
    state.free[size].push_back({*region, (*region)->bytes.subspan(at, size)});
    state.idle += size;
  }
  return take();
}

std::optional<SharedMemory::Place> SharedMemory::Find(const void* data, size_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard lock(state_->mutex);
  auto found = state_->regions.upper_bound(at);
  if (found == state_->regions.begin()) return std::nullopt;
  --found;
  const std::shared_ptr<const Region> region = found->second.lock();
  if (region == nullptr || at - found->first > region->bytes.size() ||
      bytes > region->bytes.size() - (at - found->first)) {
    return std::nullopt;
  }
  return Place{region, at - found->first};
}

SharedMemory::Usage SharedMemory::usage() const {
  const std::lock_guard lock(state_->mutex);
  return {.in_use = state_->in_use, .idle = state_->idle, .regions = state_->regions.size()};
}

void SharedMemory::Trim() {
  std::vector<State::Free> gone;  // destroyed after the lock
  const std::lock_guard lock(state_->mutex);
  state_->Shrink(0, &gone);
}

}  // namespace tutti::net
