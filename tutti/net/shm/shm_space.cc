#include "tutti/net/shm/shm_space.h"

#include <fmt/core.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/status.h"
#include "tutti/net/socket.h"

namespace tutti::net::shm {
namespace {

// A key comes after its region was sent, so the region is there or on its way: only an owner with a
// full socket makes a peer wait.
constexpr int64_t kMapWaitNanos = 200'000'000;
// Addresses of freed regions that are kept from being used for something else.
constexpr size_t kMostRetired = 64;
constexpr size_t kMostRegions = 1 << 16;  // of one peer

class ShmMemory final : public RegisteredMemory {
 public:
  ShmMemory(SharedPages pages, std::shared_ptr<OwnRegions> regions)
      : pages_(std::move(pages)), regions_(std::move(regions)), region_(regions_->Add(bytes())) {}
  ~ShmMemory() override { regions_->Remove(region_); }

  Bytes bytes() const override { return pages_.bytes(); }
  MemoryKey key() const override { return {.region = region_, .offset = 0}; }

 private:
  SharedPages pages_;
  std::shared_ptr<OwnRegions> regions_;
  uint32_t region_;
};

}  // namespace

// OwnRegions ------------------------------------------------------------------------------------

uint32_t OwnRegions::Add(Bytes bytes) {
  std::lock_guard lock(mutex_);
  const Region region{.bytes = bytes, .id = ++last_};
  regions_.insert(std::ranges::upper_bound(regions_, bytes.data(), {},
                                           [](const Region& r) { return r.bytes.data(); }),
                  region);
  return region.id;
}

void OwnRegions::Remove(uint32_t region) {
  std::lock_guard lock(mutex_);
  std::erase_if(regions_, [&](const Region& r) { return r.id == region; });
  removed_.push_back(region);
}

MemoryKey OwnRegions::KeyOf(const std::byte* data, size_t bytes) const {
  std::lock_guard lock(mutex_);
  auto after =
      std::ranges::upper_bound(regions_, data, {}, [](const Region& r) { return r.bytes.data(); });
  if (after == regions_.begin()) return {};
  const Region& region = *std::prev(after);
  const size_t offset = static_cast<size_t>(data - region.bytes.data());
  if (offset > region.bytes.size() || bytes > region.bytes.size() - offset) return {};
  return {.region = region.id, .offset = offset};
}

Bytes OwnRegions::Find(uint32_t region) const {
  std::lock_guard lock(mutex_);
  for (const Region& known : regions_) {
    if (known.id == region) return known.bytes;
  }
  return {};
}

std::vector<uint32_t> OwnRegions::TakeRemoved() {
  std::lock_guard lock(mutex_);
  return std::exchange(removed_, {});
}

// ShmSpace --------------------------------------------------------------------------------------

ShmSpace::ShmSpace(int rank, SharedPages mailbox, std::vector<ShmPeer> peers)
    : rank_(rank), mailbox_(std::move(mailbox)) {
  for (ShmPeer& peer : peers) peers_.emplace_back().base = std::move(peer);
}

ShmSpace::~ShmSpace() {
  for (Peer& peer : peers_) {
    if (!peer.over) Announce(peer, {.packet = {.kind = PacketKind::kLeaving}, .file = nullptr});
  }
}

ShmSpace::Peer* ShmSpace::Find(int rank) {
  for (Peer& peer : peers_) {
    if (peer.base.rank == rank) return &peer;
  }
  return nullptr;
}

std::string ShmSpace::Describe(int peer) const {
  for (const Peer& known : peers_) {
    if (known.base.rank == peer) return fmt::format("rank {} (pid {}, shm)", peer, known.base.pid);
  }
  return fmt::format("rank {} (pid {}, shm)", peer, getpid());
}

absl::StatusOr<std::unique_ptr<RegisteredMemory>> ShmSpace::Allocate(size_t bytes) {
  auto file = std::make_shared<FileDescriptor>();
  TUTTI_ASSIGN_OR_RETURN(SharedPages pages, SharedPages::Create(bytes, file.get()));
  auto memory = std::make_unique<ShmMemory>(std::move(pages), own_);
  AnnounceRemoved();
  const Packet packet{.kind = PacketKind::kRegion, .region = memory->key().region, .bytes = bytes};
  for (Peer& peer : peers_) Announce(peer, {.packet = packet, .file = file});
  return memory;
}

MemoryKey ShmSpace::KeyOf(const void* data, size_t bytes) const {
  return own_->KeyOf(static_cast<const std::byte*>(data), bytes);
}

absl::StatusOr<std::byte*> ShmSpace::Map(int rank, MemoryKey key, size_t bytes) {
  Bytes region;
  if (rank == rank_) {
    region = own_->Find(key.region);
  } else if (Peer* peer = Find(rank)) {
    auto found = peer->regions.find(key.region);
    const int64_t end = NowNanos() + kMapWaitNanos;
    while (found == peer->regions.end() && !peer->over) {
      Read(*peer);
      found = peer->regions.find(key.region);
      if (found != peer->regions.end() || NowNanos() > end) break;
      pollfd wait{.fd = peer->base.socket.get(), .events = POLLIN, .revents = 0};
      poll(&wait, 1, 10);
    }
    if (found != peer->regions.end()) {
      if (!found->second.used) found->second.pages.Populate();
      found->second.used = true;
      region = found->second.pages.bytes();
    }
  }
  if (region.data() == nullptr) {
    return NotFound("{} has no memory region {}; was it freed?", Describe(rank), key.region);
  }
  if (key.offset > region.size() || bytes > region.size() - key.offset) {
    return OutOfRange("{} bytes at {} of memory region {} of {}, which has {}", bytes, key.offset,
                      key.region, Describe(rank), region.size());
  }
  return region.data() + key.offset;
}

// Sockets ---------------------------------------------------------------------------------------

void ShmSpace::Announce(Peer& peer, Outgoing outgoing) {
  if (peer.over) return;
  peer.outgoing.push_back(std::move(outgoing));
  Flush(peer);
}

void ShmSpace::Flush(Peer& peer) {
  while (!peer.outgoing.empty()) {
    const Outgoing& next = peer.outgoing.front();
    const Transfer result = SendPacket(peer.base.socket, std::as_bytes(std::span(&next.packet, 1)),
                                       next.file ? next.file->get() : -1);
    // That the peer has closed is found when reading.
    if (result != Transfer::kDone) return;
    peer.outgoing.pop_front();
  }
}

void ShmSpace::AnnounceRemoved() {
  for (uint32_t region : own_->TakeRemoved()) {
    for (Peer& peer : peers_) {
      Announce(peer, {.packet = {.kind = PacketKind::kFreed, .region = region}, .file = nullptr});
    }
  }
}

void ShmSpace::Read(Peer& peer) {
  while (!peer.over) {
    Packet packet;
    size_t bytes = 0;
    FileDescriptor file;
    switch (ReceivePacket(peer.base.socket, std::as_writable_bytes(std::span(&packet, 1)), &bytes,
                          &file)) {
      case Transfer::kLater:
        return;
      case Transfer::kClosed:
        return End(peer, false, Unavailable("its process has ended"));
      case Transfer::kNoDescriptor:
        return End(peer, false, NoDescriptor("its memory cannot be opened", EMFILE));
      case Transfer::kDone:
        break;
    }
    if (absl::Status status = Handle(peer, packet, bytes, file); !status.ok()) {
      return End(peer, false, std::move(status));
    }
  }
}

absl::Status ShmSpace::Handle(Peer& peer, const Packet& packet, size_t bytes,
                              const FileDescriptor& file) {
  if (bytes != sizeof(Packet)) {
    return DataLoss("it sent a packet of {} bytes; expected {}", bytes, sizeof(Packet));
  }
  switch (packet.kind) {
    case PacketKind::kLeaving:
      End(peer, true, Unavailable("it has left"));
      return absl::OkStatus();
    case PacketKind::kFreed: {
      auto found = peer.regions.find(packet.region);
      if (found == peer.regions.end()) {
        return DataLoss("it freed memory region {}, which it had not given", packet.region);
      }
      Retire(std::move(found->second.pages));
      peer.regions.erase(found);
      return absl::OkStatus();
    }
    case PacketKind::kRegion: {
      if (packet.region == 0 || packet.region == kExposed || !file.ok() ||
          peer.regions.contains(packet.region) || peer.regions.size() >= kMostRegions) {
        return DataLoss("it sent memory region {}{}, of {} regions", packet.region,
                        file.ok() ? "" : " without its file", peer.regions.size());
      }
      TUTTI_ASSIGN_OR_RETURN(SharedPages pages, SharedPages::Open(file, packet.bytes));
      peer.regions[packet.region].pages = std::move(pages);
      return absl::OkStatus();
    }
  }
  return DataLoss("it sent a packet of kind {}", static_cast<uint32_t>(packet.kind));
}

// Somebody may still use a pointer that Map gave. That is a mistake, but perhaps the peer's: it
// must not end this process. So the addresses stay for a while, with zeroes behind them.
void ShmSpace::Retire(SharedPages pages) {
  pages.Hollow();
  retired_.push_back(std::move(pages));
  if (retired_.size() > kMostRetired) retired_.pop_front();
}

void ShmSpace::End(Peer& peer, bool left, absl::Status status) {
  peer.over = true;
  peer.outgoing.clear();
  peer.base.socket = FileDescriptor();
  events_.push_back({.peer = peer.base.rank, .left = left, .status = std::move(status)});
}

bool ShmSpace::NextEvent(Event* event) {
  if (events_.empty()) {
    AnnounceRemoved();
    std::vector<pollfd> sockets;
    for (Peer& peer : peers_) {
      if (!peer.over) Flush(peer);
      // A negative descriptor is left out.
      sockets.push_back({.fd = peer.base.socket.get(), .events = POLLIN, .revents = 0});
    }
    if (poll(sockets.data(), sockets.size(), 0) > 0) {
      for (size_t i = 0; i < sockets.size(); ++i) {
        if (sockets[i].revents != 0) Read(peers_[i]);
      }
    }
  }
  if (events_.empty()) return false;
  *event = std::move(events_.front());
  events_.pop_front();
  return true;
}

}  // namespace tutti::net::shm
