#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "tutti/runtime/rendezvous/rendezvous.h"

namespace tutti {

// The unmatched values and receivers of one step. `Note` is additional data of a value. When the
// second side of a key arrives, the entry is erased and its content returned to that caller, who
// uses it without the lock. Not thread-safe: the rendezvous guards it.
template <typename Note>
class MeetingTable {
 public:
  struct Entry {
    Tensor value;
    Note note{};
    Rendezvous::Receiver receiver;  // empty: a value waits
  };
  enum class Outcome : uint8_t {
    kWaits,  // the other side has not come
    kMet,
    kTwice,  // the same side came twice
  };

  // kMet: `receiver` is the one that waited. kWaits: value and note were moved from.
  Outcome Send(const TransferKeyView& key, Tensor& value, Note& note,
               Rendezvous::Receiver& receiver) {
    const auto it = entries_.find(key);
    if (it == entries_.end()) {
      entries_.emplace(TransferKey(key), Entry{std::move(value), std::move(note), nullptr});
      return Outcome::kWaits;
    }
    if (it->second.receiver == nullptr) return Outcome::kTwice;
    receiver = std::move(it->second.receiver);
    entries_.erase(it);
    return Outcome::kMet;
  }

  // kMet: `value` and `note` are those that waited. kWaits: `receiver` was moved from.
  Outcome Receive(const TransferKey& key, Rendezvous::Receiver& receiver, Tensor& value,
                  Note& note) {
    const auto [it, first] = entries_.try_emplace(key);
    if (first) {
      it->second.receiver = std::move(receiver);
      return Outcome::kWaits;
    }
    if (it->second.receiver != nullptr) return Outcome::kTwice;
    value = std::move(it->second.value);
    note = std::move(it->second.note);
    entries_.erase(it);
    return Outcome::kMet;
  }

  using Entries = absl::flat_hash_map<TransferKey, Entry, TransferKey::Hash, TransferKey::Equal>;
  const Entries& entries() const { return entries_; }
  Entries TakeAll() { return std::exchange(entries_, {}); }

 private:
  Entries entries_;
};

}  // namespace tutti
