#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "tutti/net/transport.h"

namespace tutti::net::tcp {

// Values under tags, several under one where need be: the one added first comes out first.
template <typename T>
class TagQueue {
 public:
  size_t size() const { return size_; }

  void Add(Tag tag, T value) {
    queues_[tag].push_back(std::move(value));
    ++size_;
  }

  // The oldest value of the tag, or null.
  T* Front(Tag tag) {
    return FindIf(tag, [](const T&) { return true; });
  }
  // The oldest one that the predicate accepts, or null.
  template <typename Predicate>
  T* FindIf(Tag tag, Predicate predicate) {
    const auto found = queues_.find(tag);
    if (found == queues_.end()) return nullptr;
    for (T& value : found->second) {
      if (predicate(value)) return &value;
    }
    return nullptr;
  }

  // REQUIRES: `value` came from Front or FindIf, and nothing was added or taken since.
  T Take(Tag tag, T* value) {
    const auto found = queues_.find(tag);
    T taken = std::move(*value);
    found->second.erase(found->second.begin() + (value - found->second.data()));
    if (found->second.empty()) queues_.erase(found);
    --size_;
    return taken;
  }

  // Empties the table and calls visit(value) for each.
  template <typename Visit>
  void TakeAll(Visit visit) {
    auto queues = std::exchange(queues_, {});
    size_ = 0;
    for (auto& [tag, queue] : queues) {
      for (T& value : queue) visit(value);
    }
  }

 private:
  struct Hash {
    size_t operator()(const Tag& tag) const { return absl::HashOf(tag.operation, tag.index); }
  };
  absl::flat_hash_map<Tag, std::vector<T>, Hash> queues_;
  size_t size_ = 0;
};

}  // namespace tutti::net::tcp
