#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/net/memory/space.h"
#include "tutti/net/shm/packet_socket.h"
#include "tutti/net/shm/shared_pages.h"

namespace tutti::net::shm {

// The memory that a rank allocated. Thread-safe; shared by the transport and the memory it gave.
class OwnRegions {
 public:
  uint32_t Add(Bytes bytes);
  void Remove(uint32_t region);
  MemoryKey KeyOf(const std::byte* data, size_t bytes) const;
  Bytes Find(uint32_t region) const;  // empty if there is none
  // The regions removed since the last call.
  std::vector<uint32_t> TakeRemoved();

 private:
  struct Region {
    Bytes bytes;
    uint32_t id;
  };
  mutable std::mutex mutex_;
  std::vector<Region> regions_;  // by address
  std::vector<uint32_t> removed_;
  uint32_t last_ = 0;
};

// A process of this host, as another sees it.
struct ShmPeer {
  int rank = -1;
  int pid = 0;
  FileDescriptor socket;
  SharedPages mailbox;
};

// Memory of processes of one host. A region is a memfd. Its owner sends it to every peer at once,
// over the socket that joins each pair; a peer reads its socket when it meets a region it does not
// know, and from time to time. A closed socket means that the peer has ended; if no goodbye came
// before, it died.
class ShmSpace final : public memory::Space {
 public:
  ShmSpace(int rank, SharedPages mailbox, std::vector<ShmPeer> peers);
  ~ShmSpace() override;  // says goodbye

  std::string Describe(int peer) const override;
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) override;
  MemoryKey KeyOf(const void* data, size_t bytes) const override;
  absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) override;
  bool NextEvent(Event* event) override;

 private:
  enum class PacketKind : uint32_t { kRegion = 1, kFreed = 2, kLeaving = 3 };
  struct Packet {
    PacketKind kind;
    uint32_t region;
    uint64_t bytes;
  };
  struct Outgoing {
    Packet packet;
    std::shared_ptr<FileDescriptor> file;
  };
  struct Region {
    SharedPages pages;
    bool used = false;  // entered into the page table
  };
  struct Peer {
    ShmPeer base;
    std::deque<Outgoing> outgoing;
    std::map<uint32_t, Region> regions;
    bool over = false;  // the socket is of no use any more
  };

  Peer* Find(int rank);
  void Announce(Peer& peer, Outgoing outgoing);
  void Flush(Peer& peer);
  void AnnounceRemoved();
  // Reads what the peer sent; an end of the peer becomes an event.
  void Read(Peer& peer);
  absl::Status Handle(Peer& peer, const Packet& packet, size_t bytes, const FileDescriptor& file);
  void Retire(SharedPages pages);
  void End(Peer& peer, bool left, absl::Status status);

  int rank_;
  SharedPages mailbox_;
  std::shared_ptr<OwnRegions> own_ = std::make_shared<OwnRegions>();
  std::vector<Peer> peers_;
  std::deque<SharedPages> retired_;
  std::deque<Event> events_;
};

}  // namespace tutti::net::shm
