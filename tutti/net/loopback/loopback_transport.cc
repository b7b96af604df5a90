#include "tutti/net/loopback/loopback_transport.h"

#include <sched.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/status.h"
#include "tutti/net/memory/memory_transport.h"

namespace tutti::net {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLargePage = 2 << 20;

// Zeroed memory of the process, on a page of its own.
class Pages {
 public:
  explicit Pages(size_t bytes) : size_((std::max<size_t>(bytes, 1) + kPage - 1) / kPage * kPage) {
    const size_t alignment = size_ >= kLargePage ? kLargePage : kPage;
    data_ = static_cast<std::byte*>(std::aligned_alloc(alignment, RoundUp(size_, alignment)));
    if (data_ == nullptr) return;
    if (alignment == kLargePage) madvise(data_, size_, MADV_HUGEPAGE);
    std::memset(data_, 0, size_);
  }
  ~Pages() { std::free(data_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  Bytes bytes() const { return data_ ? Bytes(data_, size_) : Bytes(); }

 private:
  static size_t RoundUp(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

  size_t size_;
  std::byte* data_ = nullptr;
};

// What the ranks share. Lives as long as the last of them, and the last memory they gave.
class World {
 public:
  explicit World(int ranks) : left_(static_cast<size_t>(ranks)) {
    const uint64_t cells = memory::Mailbox::CellsFor(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      pages_.push_back(std::make_unique<Pages>(memory::Mailbox::BytesFor(ranks, cells)));
      TUTTI_CHECK(!pages_.back()->bytes().empty());
      mailboxes_.push_back(memory::Mailbox::Format(pages_.back()->bytes(), ranks, cells));
    }
  }

  int ranks() const { return static_cast<int>(mailboxes_.size()); }
  const memory::Mailbox& mailbox(int rank) const { return mailboxes_[static_cast<size_t>(rank)]; }
  std::atomic<bool>& left(int rank) { return left_[static_cast<size_t>(rank)]; }

  uint32_t AddRegion(int rank, Bytes bytes) {
    std::lock_guard lock(mutex_);
    const uint32_t region = ++last_region_;
    regions_.emplace(region, Region{.rank = rank, .bytes = bytes});
    return region;
  }

  void RemoveRegion(uint32_t region) {
    std::lock_guard lock(mutex_);
    regions_.erase(region);
  }

  absl::StatusOr<Bytes> RegionOf(int rank, uint32_t region) const {
    std::lock_guard lock(mutex_);
    const auto found = regions_.find(region);
    if (found == regions_.end() || found->second.rank != rank) {
      return NotFound("rank {} has no memory region {}; was it freed?", rank, region);
    }
    return found->second.bytes;
  }

  MemoryKey KeyOf(int rank, const std::byte* data, size_t bytes) const {
    std::lock_guard lock(mutex_);
    for (const auto& [id, region] : regions_) {
      if (region.rank != rank || data < region.bytes.data()) continue;
      const size_t offset = static_cast<size_t>(data - region.bytes.data());
      if (offset <= region.bytes.size() && bytes <= region.bytes.size() - offset) {
        return {.region = id, .offset = offset};
      }
    }
    return {};
  }

 private:
  struct Region {
    int rank;
    Bytes bytes;
  };
  std::vector<std::unique_ptr<Pages>> pages_;
  std::vector<memory::Mailbox> mailboxes_;
  std::vector<std::atomic<bool>> left_;
  mutable std::mutex mutex_;
  std::map<uint32_t, Region> regions_;
  uint32_t last_region_ = 0;
};

class LoopbackMemory final : public RegisteredMemory {
 public:
  LoopbackMemory(std::shared_ptr<World> world, int rank, size_t bytes, std::unique_ptr<Pages> pages)
      : world_(std::move(world)),
        pages_(std::move(pages)),
        bytes_(pages_->bytes().first(bytes)),
        region_(world_->AddRegion(rank, bytes_)) {}
  ~LoopbackMemory() override { world_->RemoveRegion(region_); }

  Bytes bytes() const override { return bytes_; }
  MemoryKey key() const override { return {.region = region_, .offset = 0}; }

 private:
  std::shared_ptr<World> world_;
  std::unique_ptr<Pages> pages_;
  Bytes bytes_;
  uint32_t region_;
};

class LoopbackSpace final : public memory::Space {
 public:
  LoopbackSpace(std::shared_ptr<World> world, int rank)
      : world_(std::move(world)), rank_(rank), seen_left_(static_cast<size_t>(world_->ranks())) {}

  ~LoopbackSpace() override {
    world_->left(rank_).store(true, std::memory_order_release);
    for (int rank = 0; rank < world_->ranks(); ++rank) {
      memory::RingIfSleeping(world_->mailbox(rank).doorbell(), /*fence=*/true);
    }
  }

  std::string Describe(int peer) const override { return fmt::format("rank {} (loopback)", peer); }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) override {
    auto pages = std::make_unique<Pages>(bytes);
    if (pages->bytes().size() < bytes) {
      return ResourceExhausted("rank {}: no memory for {} bytes", rank_, bytes);
    }
    return std::make_unique<LoopbackMemory>(world_, rank_, bytes, std::move(pages));
  }

  MemoryKey KeyOf(const void* data, size_t bytes) const override {
    return world_->KeyOf(rank_, static_cast<const std::byte*>(data), bytes);
  }

  MemoryKey Expose(const void* data) const override {
    return {.region = kExposed, .offset = reinterpret_cast<uintptr_t>(data)};
  }

  absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) override {
    if (key.region == kExposed) return reinterpret_cast<std::byte*>(key.offset);
    TUTTI_ASSIGN_OR_RETURN(const Bytes region, world_->RegionOf(peer, key.region));
    if (key.offset > region.size() || bytes > region.size() - key.offset) {
      return OutOfRange("bytes {} to {} of memory region {} of rank {}, which has {}", key.offset,
                        key.offset + bytes, key.region, peer, region.size());
    }
    return region.data() + key.offset;
  }

  bool NextEvent(Event* event) override {
    for (int peer = 0; peer < world_->ranks(); ++peer) {
      if (seen_left_[static_cast<size_t>(peer)] || peer == rank_) continue;
      if (!world_->left(peer).load(std::memory_order_acquire)) continue;
      seen_left_[static_cast<size_t>(peer)] = true;
      *event = {.peer = peer, .left = true, .status = Unavailable("it has left")};
      return true;
    }
    return false;
  }

 private:
  std::shared_ptr<World> world_;
  int rank_;
  std::vector<bool> seen_left_;
};

}  // namespace

std::vector<std::unique_ptr<Transport>> LoopbackTransport::Make(int ranks) {
  auto world = std::make_shared<World>(ranks);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  const bool crowded =
      sched_getaffinity(0, sizeof(cores), &cores) == 0 && ranks > CPU_COUNT(&cores);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < ranks; ++rank) {
    memory::HostRanks host{
        .rank = rank, .size = ranks, .own = world->mailbox(rank), .crowded = crowded};
    for (int peer = 0; peer < ranks; ++peer) {
      host.reachable.push_back({.rank = peer, .mailbox = world->mailbox(peer)});
    }
    transports.push_back(std::make_unique<memory::MemoryTransport>(
        std::make_unique<LoopbackSpace>(world, rank), host));
  }
  return transports;
}

}  // namespace tutti::net
