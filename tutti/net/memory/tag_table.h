#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/net/transport.h"

namespace tutti::net::memory {

// Values kept under (peer, tag), several under one where need be: the one added first is taken
// first. Allocates only to grow beyond its largest size so far.
template <typename T>
class TagTable {
 public:
  TagTable() : heads_(64, kNone) {}

  size_t size() const { return size_; }

  void Add(int peer, Tag tag, T value) {
    if (size_ == heads_.size()) Grow();
    uint32_t node = free_;
    if (node == kNone) {
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {peer, tag, kNone, std::move(value)};
    Append(node);
    ++size_;
  }

  // Takes the oldest value of the tag; false if there is none.
  bool Take(int peer, Tag tag, T* value) {
    if (size_ == 0) return false;
    for (uint32_t* link = &HeadOf(peer, tag); *link != kNone; link = &nodes_[*link].next) {
      Node& node = nodes_[*link];
      if (node.peer != peer || node.tag != tag) continue;
      *value = std::move(node.value);
      Free(link);
      return true;
    }
    return false;
  }

  // Takes all values of a peer, and calls visit(tag, value) for each.
  template <typename Visit>
  void TakeAll(int peer, Visit visit) {
    for (uint32_t& head : heads_) {
      for (uint32_t* link = &head; *link != kNone;) {
        Node& node = nodes_[*link];
        if (node.peer != peer) {
          link = &node.next;
          continue;
        }
        const Tag tag = node.tag;
        T value = std::move(node.value);
        Free(link);
        visit(tag, value);
      }
    }
  }

  bool Holds(int peer) const {
    for (uint32_t head : heads_) {
      for (uint32_t node = head; node != kNone; node = nodes_[node].next) {
        if (nodes_[node].peer == peer) return true;
      }
    }
    return false;
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Node {
    int peer = -1;
    Tag tag;
    uint32_t next = kNone;
    T value{};
  };

  uint32_t& HeadOf(int peer, Tag tag) {
    uint64_t hash = tag.operation * 0x9e3779b97f4a7c15;
    hash = (hash ^ (hash >> 32) ^ tag.index ^ (uint64_t{static_cast<uint32_t>(peer)} << 32)) *
           0xd6e8feb86659fd93;
    return heads_[(hash >> 32) & (heads_.size() - 1)];
  }

  void Append(uint32_t node) {
    uint32_t* link = &HeadOf(nodes_[node].peer, nodes_[node].tag);
    while (*link != kNone) link = &nodes_[*link].next;
    *link = node;
  }

  void Free(uint32_t* link) {
    const uint32_t node = *link;
    *link = nodes_[node].next;
    nodes_[node].next = free_;
    free_ = node;
    --size_;
  }

  void Grow() {
    std::vector<uint32_t> old(heads_.size() * 2, kNone);
    old.swap(heads_);
    for (uint32_t head : old) {
      while (head != kNone) {
        const uint32_t node = head;
        head = nodes_[node].next;
        nodes_[node].next = kNone;
        Append(node);
      }
    }
  }

  std::vector<Node> nodes_;
  std::vector<uint32_t> heads_;
  uint32_t free_ = kNone;
  size_t size_ = 0;
};

}  // namespace tutti::net::memory
