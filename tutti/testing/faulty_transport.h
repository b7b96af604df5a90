#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tutti/net/transport.h"

namespace tutti::testing {

// What goes wrong with the messages that a rank sends. Chances are per message, and drawn from the
// seed in the order of the calls.
struct Faults {
  uint64_t seed = 1;
  double drop = 0;   // it is lost, though its Send succeeds
  double flip = 0;   // one of its bits arrives changed
  double delay = 0;  // it waits, and whatever is sent to that peer after it waits behind it
  int64_t delay_nanos = 1'000'000;
  int64_t cut_after = -1;  // after so many messages the link that the next one wants is cut
};

// Any transport, made unreliable. Only messages suffer, Send and SendShort alike: Put, Get and Map
// go through, as loads and stores do. Sees nothing of what comes in. Thread safety is that of the
// transport.
class FaultyTransport final : public net::Transport {
 public:
  FaultyTransport(std::unique_ptr<net::Transport> inner, const Faults& faults);

  // Cuts the link, as if the peer had died: what is open ends with UNAVAILABLE, and NextBroken
  // tells of it. The peer notices nothing.
  void Cut(int peer);

  int64_t dropped() const { return dropped_; }
  int64_t flipped() const { return flipped_; }
  int64_t delayed() const { return delayed_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  net::LinkKind link(int peer) const override { return inner_->link(peer); }
  std::string Describe(int peer) const override { return inner_->Describe(peer); }

  absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Allocate(size_t bytes) override;
  absl::StatusOr<std::unique_ptr<net::RegisteredMemory>> Register(net::Bytes bytes) override;
  net::MemoryKey KeyOf(const void* data, size_t bytes) const override;
  absl::StatusOr<std::byte*> Map(int peer, net::MemoryKey key, size_t bytes) override;
  void Put(int peer, net::MemoryKey destination, net::ConstBytes source,
           net::Request* request) override;
  void Get(int peer, net::MemoryKey source, net::Bytes destination, net::Request* request) override;

  void Send(int peer, net::Tag tag, net::ConstBytes data, net::Request* request) override;
  void Receive(int peer, net::Tag tag, std::byte* destination, size_t bytes,
               net::Request* request) override;
  absl::Status SendShort(int peer, net::Tag tag, net::ConstBytes data) override;
  bool NextShort(ShortMessage* message) override { return inner_->NextShort(message); }

  bool Progress() override;
  void Wait(int64_t timeout_nanos) override;
  void Wake() override { inner_->Wake(); }
  bool NeedsService() const override { return inner_->NeedsService(); }

  void Fail(int peer, const absl::Status& status) override;
  bool NextBroken(BrokenLink* broken) override;

 private:
  // A message on its way to the inner transport. Keeps what of it must outlive the call, and stands
  // in for the caller's request.
  struct Message final : net::Request {
    void Done(const absl::Status& status) override;

    int peer = -1;
    net::Tag tag;
    net::ConstBytes data;
    std::vector<std::byte> copy;      // `data` lies here, where it was changed or short
    net::Request* request = nullptr;  // null: a short message
    int64_t due = 0;
    bool done = false;
  };

  bool Happens(double chance);
  void Flip(Message& message);
  void Post(std::unique_ptr<Message> message);
  absl::Status Forward(std::unique_ptr<Message> message);
  bool Release();
  void DropHeld(int peer, const absl::Status& status);

  std::unique_ptr<net::Transport> inner_;
  Faults faults_;
  std::mt19937_64 random_;
  std::vector<std::deque<std::unique_ptr<Message>>> held_;  // by peer, in the order of the calls
  std::vector<std::unique_ptr<Message>> under_way_;         // changed ones that are not done
  std::vector<absl::Status> failed_;                        // by peer; OK while the link is whole
  std::deque<BrokenLink> broken_;
  std::atomic<int64_t> next_due_{INT64_MAX};
  int64_t messages_ = 0;
  int64_t dropped_ = 0;
  int64_t flipped_ = 0;
  int64_t delayed_ = 0;
};

}  // namespace tutti::testing
