#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tutti/net/transport.h"

namespace tutti::net {

// Two transports of one rank as one: memory to the peers of its host, sockets to all others.
//
// Sleeping for both at once: the rank sleeps in the memory transport, where peers ring a bell; a
// thread sleeps in the sockets, and rings that bell when something comes.
//
// Memory belongs to the memory transport, and peers on other hosts cannot reach it: Put and Get to
// them need memory from Register.
class Mesh final : public Transport {
 public:
  // `memory` reaches some ranks (kMemory), `sockets` all. Both are of the same rank and size.
  // RESOURCE_EXHAUSTED where the system gives no thread.
  static absl::StatusOr<std::unique_ptr<Transport>> Create(std::unique_ptr<Transport> memory,
                                                           std::unique_ptr<Transport> sockets);
  ~Mesh() override;

  int rank() const override { return memory_->rank(); }
  int size() const override { return memory_->size(); }
  LinkKind link(int peer) const override { return Of(peer).link(peer); }
  std::string Describe(int peer) const override { return Of(peer).Describe(peer); }

  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Allocate(size_t bytes) override {
    return memory_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<RegisteredMemory>> Register(Bytes bytes) override {
    return sockets_->Register(bytes);
  }
  MemoryKey KeyOf(const void* data, size_t bytes) const override {
    return memory_->KeyOf(data, bytes);
  }
  absl::StatusOr<std::byte*> Map(int peer, MemoryKey key, size_t bytes) override {
    return Of(peer).Map(peer, key, bytes);
  }
  void Put(int peer, MemoryKey destination, ConstBytes source, Request* request) override {
    Of(peer).Put(peer, destination, source, request);
  }
  void Get(int peer, MemoryKey source, Bytes destination, Request* request) override {
    Of(peer).Get(peer, source, destination, request);
  }
  void Send(int peer, Tag tag, ConstBytes data, Request* request) override {
    Of(peer).Send(peer, tag, data, request);
  }
  void Receive(int peer, Tag tag, std::byte* destination, size_t bytes, Request* request) override {
    Of(peer).Receive(peer, tag, destination, bytes, request);
  }
  absl::Status SendShort(int peer, Tag tag, ConstBytes data) override {
    return Of(peer).SendShort(peer, tag, data);
  }
  bool NextShort(ShortMessage* message) override {
    return memory_->NextShort(message) || sockets_->NextShort(message);
  }
  bool Progress() override;
  void Wait(int64_t timeout_nanos) override { memory_->Wait(timeout_nanos); }
  void Wake() override { memory_->Wake(); }
  bool crowded() const override { return memory_->crowded(); }
  bool NeedsService() const override { return true; }
  void Fail(int peer, const absl::Status& status) override { Of(peer).Fail(peer, status); }
  bool NextBroken(BrokenLink* broken) override {
    return memory_->NextBroken(broken) || sockets_->NextBroken(broken);
  }

 private:
  Mesh(std::unique_ptr<Transport> memory, std::unique_ptr<Transport> sockets);
  bool Near(int peer) const { return near_[static_cast<size_t>(peer)]; }
  Transport& Of(int peer) const { return Near(peer) ? *memory_ : *sockets_; }
  void Watch();

  const std::unique_ptr<Transport> memory_;
  const std::unique_ptr<Transport> sockets_;
  std::vector<bool> near_;  // by rank: reached by memory; itself too

  std::mutex mutex_;
  std::condition_variable progressed_;
  bool rung_ = false;  // the bell, since the last progress on sockets
  bool stopping_ = false;
  std::thread watcher_;
};

}  // namespace tutti::net
