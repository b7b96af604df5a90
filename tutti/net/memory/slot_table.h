#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::net::memory {

// Values under numbers that go to a peer and come back. A number is never 0 and is not used again
// for another value, so that one from outside can be trusted once Find knows it.
template <typename T>
class SlotTable {
 public:
  uint64_t Add(T value) {
    uint32_t slot;
    if (free_.empty()) {
      slot = static_cast<uint32_t>(slots_.size());
      slots_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slots_[slot].value = std::move(value);
    return (uint64_t{++slots_[slot].uses} << 32) | slot;
  }

  // Null if there is no such value.
  T* Find(uint64_t id) {
    const uint32_t slot = static_cast<uint32_t>(id);
    if (slot >= slots_.size() || slots_[slot].uses != id >> 32) return nullptr;
    return slots_[slot].value ? &*slots_[slot].value : nullptr;
  }

  // REQUIRES: Find(id) is not null.
  T Take(uint64_t id) {
    const uint32_t slot = static_cast<uint32_t>(id);
    T value = *std::move(slots_[slot].value);
    slots_[slot].value.reset();
    free_.push_back(slot);
    return value;
  }

  // Takes every value for which pick(value) is true, and calls visit(value).
  template <typename Pick, typename Visit>
  void TakeIf(Pick pick, Visit visit) {
    for (uint32_t slot = 0; slot < slots_.size(); ++slot) {
      if (!slots_[slot].value || !pick(*slots_[slot].value)) continue;
      T value = Take(slot);
      visit(value);
    }
  }

  template <typename Pick>
  bool Any(Pick pick) const {
    for (const Slot& slot : slots_) {
      if (slot.value && pick(*slot.value)) return true;
    }
    return false;
  }

 private:
  struct Slot {
    std::optional<T> value;
    uint32_t uses = 0;
  };
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_;
};

}  // namespace tutti::net::memory
