#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/memory/copies.h"
#include "tutti/net/memory/link.h"
#include "tutti/net/memory/mailbox.h"
#include "tutti/net/memory/space.h"
#include "tutti/net/message/short_queue.h"
#include "tutti/net/message/stash.h"
#include "tutti/net/transport.h"

namespace tutti::net::memory {

// The ranks of one host, which share memory, when a transport is made.
struct HostRanks {
  int rank = 0;
  int size = 1;
  Mailbox own;
  // Those that can be reached, this rank among them, in ascending order: everyone's mailbox. Its
  // place in the list is the number of a rank's ring in the others' mailboxes.
  struct Rank {
    int rank;
    Mailbox mailbox;
  };
  std::vector<Rank> reachable;
  // Ranks outnumber cores: give the core away when there is nothing to do.
  bool crowded = false;
};

// The Transport of ranks that share memory. Where that memory comes from is the Space's business.
class MemoryTransport final : public Transport {
 public:
  MemoryTransport(std::unique_ptr<Space> space, const HostRanks& ranks);
  ~MemoryTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(links_.size()); }
  LinkKind link(int peer) const override;
  std::string Describe(int peer) const override;

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) override;
  // Peers cannot reach memory that is registered here: its key has region 0.
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(Bytes bytes) override;
  MemoryKey KeyOf(const void* data, size_t bytes) const override;
  absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) override;
  void Put(int peer, MemoryKey destination, ConstBytes source, Request* request) override;
  void Get(int peer, MemoryKey source, Bytes destination, Request* request) override;

  void Send(int peer, Tag tag, ConstBytes data, Request* request) override;
  void Receive(int peer, Tag tag, std::byte* destination, size_t bytes, Request* request) override;
  absl::Status SendShort(int peer, Tag tag, ConstBytes data) override;
  bool NextShort(ShortMessage* message) override;

  bool Progress() override;
  void Wait(int64_t timeout_nanos) override;
  void Wake() override;
  bool crowded() const override { return crowded_; }
  bool NeedsService() const override { return false; }

  void Fail(int peer, const absl::Status& status) override;
  bool NextBroken(BrokenLink* broken) override;

 private:
  // The link if it can be used, else null, and why. A peer that has left can be read from.
  enum class Use : uint8_t { kSend, kReceive };
  Link* Find(int peer, Use use, absl::Status* why);
  void Break(Link& link, const absl::Status& status);
  void Drop(Link& link, const absl::Status& status);

  bool Drain(Link& link, size_t* budget);
  absl::Status Handle(Link& link, const RingConsumer::Message& message, size_t* budget);
  absl::Status HandleShort(Link& link, Tag tag, ConstBytes payload);
  // Does so if it has not for a while.
  bool CheckPeersSometimes();
  void CheckPeers();
  void CopyNow(Link& link, const std::byte* from, std::byte* to, size_t bytes, Request* request);

  bool HasNews() const;
  bool Spin(int64_t until_nanos, bool yield, uint32_t seen);

  int rank_;
  bool crowded_;
  Doorbell* bell_;
  std::unique_ptr<Space> space_;
  Copies copies_;
  message::Stash stash_;
  std::vector<std::unique_ptr<Link>> links_;  // by rank; null where there is none
  std::vector<Link*> reachable_;
  message::ShortQueue shorts_;
  std::deque<BrokenLink> broken_;
  uint32_t calls_ = 0;  // of Progress, since the clock was read
  int64_t checked_at_ = 0;

  std::atomic<bool> busy_{false};   // Progress has more to do
  std::atomic<bool> woken_{false};  // Wake was called
  std::atomic<bool> check_{false};  // somebody slept long: see whether all peers live
};

}  // namespace tutti::net::memory
