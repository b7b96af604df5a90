#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/net/transport.h"

namespace tutti::net::message {

// Values kept under tags, several under one where need be: the one added first is taken first.
// Allocates only to grow beyond its largest size so far, so the steady state takes no memory. Not
// thread-safe.
template <typename T>
class TagTable {
 public:
  TagTable() : heads_(64, kNone) {}

  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  void Add(Tag tag, T value) {
    if (size_ == heads_.size()) Grow();
    uint32_t node = free_;
    if (node == kNone) {
      node = static_cast<uint32_t>(nodes_.size());
      nodes_.emplace_back();
    } else {
      free_ = nodes_[node].next;
    }
    nodes_[node] = {tag, kNone, std::move(value)};
    Append(node);
    ++size_;
  }

  // The oldest value of the tag that the predicate accepts, or null. Good until the table changes.
  template <typename Predicate>
  T* FindIf(Tag tag, Predicate predicate) {
    if (size_ == 0) return nullptr;
    for (uint32_t node = HeadOf(tag); node != kNone; node = nodes_[node].next) {
      if (nodes_[node].tag == tag && predicate(nodes_[node].value)) return &nodes_[node].value;
    }
    return nullptr;
  }
  T* Find(Tag tag) {
    return FindIf(tag, [](const T&) { return true; });
  }

  // Takes the oldest such value; false if there is none.
  template <typename Predicate>
  bool TakeIf(Tag tag, Predicate predicate, T* value) {
    if (size_ == 0) return false;
    for (uint32_t* link = &HeadOf(tag); *link != kNone; link = &nodes_[*link].next) {
      Node& node = nodes_[*link];
      if (node.tag != tag || !predicate(node.value)) continue;
      *value = std::move(node.value);
      Free(link);
      return true;
    }
    return false;
  }
  bool Take(Tag tag, T* value) {
    return TakeIf(
        tag, [](const T&) { return true; }, value);
  }

  // Empties the table, and calls visit(tag, value) for each.
  template <typename Visit>
  void TakeAll(Visit visit) {
    std::vector<Node> nodes = std::exchange(nodes_, {});
    const std::vector<uint32_t> heads = std::exchange(heads_, std::vector<uint32_t>(64, kNone));
    free_ = kNone;
    size_ = 0;
    for (const uint32_t head : heads) {
      for (uint32_t node = head; node != kNone; node = nodes[node].next) {
        visit(nodes[node].tag, nodes[node].value);
      }
    }
  }

 private:
  static constexpr uint32_t kNone = 0xffffffff;
  struct Node {
    Tag tag;
    uint32_t next = kNone;
    T value{};
  };

  uint32_t& HeadOf(Tag tag) {
    uint64_t hash = tag.operation * 0x9e3779b97f4a7c15;
    hash = (hash ^ (hash >> 32) ^ tag.index) * 0xd6e8feb86659fd93;
    return heads_[(hash >> 32) & (heads_.size() - 1)];
  }

  void Append(uint32_t node) {
    uint32_t* link = &HeadOf(nodes_[node].tag);
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

}  // namespace tutti::net::message
