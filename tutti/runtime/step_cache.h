#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tutti/runtime/master.h"

namespace tutti {

// What tells one compiled step from another: feeds with dtype and shape, fetches, targets, as
// numbers.
using StepKey = std::vector<uint64_t>;
void SetKey(const MasterRunRequest& request, StepKey& key);

// The compiled steps of a session. Beyond `most`, the least recently used are evicted. Thread-safe.
template <typename Step>
class StepCache {
 public:
  explicit StepCache(size_t most) : most_(most) {}

  // Null when there is none.
  std::shared_ptr<Step> Find(const StepKey& key) {
    const uint64_t hash = HashOf(key);
    std::lock_guard lock(mutex_);
    for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it) {
      if (it->second->key != key) continue;
      if (it->second != entries_.begin()) entries_.splice(entries_.begin(), entries_, it->second);
      return it->second->step;
    }
    return nullptr;
  }

  // Takes the place of a step with the same key.
  void Add(StepKey key, std::shared_ptr<Step> step) {
    const uint64_t hash = HashOf(key);
    std::list<Entry> evicted;  // destroyed after the lock
    std::lock_guard lock(mutex_);
    for (auto [it, end] = by_hash_.equal_range(hash); it != end; ++it) {
      if (it->second->key != key) continue;
      evicted.splice(evicted.begin(), entries_, it->second);
      by_hash_.erase(it);
      break;
    }
    entries_.push_front({std::move(key), hash, std::move(step)});
    by_hash_.emplace(hash, entries_.begin());
    if (entries_.size() <= most_) return;
    const auto last = std::prev(entries_.end());
    for (auto [it, end] = by_hash_.equal_range(last->hash); it != end; ++it) {
      if (it->second == last) {
        by_hash_.erase(it);
        break;
      }
    }
    evicted.splice(evicted.begin(), entries_, last);
  }

 private:
  struct Entry {
    StepKey key;
    uint64_t hash;
    std::shared_ptr<Step> step;
  };

  static uint64_t HashOf(const StepKey& key) {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (const uint64_t word : key) {
      hash = (hash ^ word) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return hash;
  }

  const size_t most_;
  std::mutex mutex_;
  std::list<Entry> entries_;  // most recently used first
  std::unordered_multimap<uint64_t, typename std::list<Entry>::iterator> by_hash_;
};

}  // namespace tutti
