#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

// The names of values that cross devices (compile/partition.cc writes them):
// "SOURCE;DESTINATION;NAME", with full names of devices. Inside of loops the iterations follow,
// ";3;0".
namespace tutti {

inline std::string_view SourceOf(std::string_view key) { return key.substr(0, key.find(';')); }

inline std::string_view DestinationOf(std::string_view key) {
  const size_t first = key.find(';');
  if (first == key.npos) return {};
  key.remove_prefix(first + 1);
  return key.substr(0, key.find(';'));
}

// "/job:ps/task:1" of "/job:ps/task:1/cpu:0".
inline std::string_view TaskOfDevice(std::string_view device) {
  return device.substr(0, device.rfind('/'));
}

// A key as a message shows it, with its hash.
struct TransferKeyView {
  explicit TransferKeyView(std::string_view key)
      : text(key), hash(std::hash<std::string_view>()(key)) {}
  TransferKeyView(std::string_view key, size_t its_hash) : text(key), hash(its_hash) {}

  std::string_view text;
  size_t hash;
};

// A key that is hashed once, when a plan is made, and not in every step. Copies share the text.
class TransferKey {
 public:
  explicit TransferKey(std::string text = {})
      : text_(std::make_shared<const std::string>(std::move(text))),
        hash_(TransferKeyView(*text_).hash) {}
  explicit TransferKey(const TransferKeyView& view)
      : text_(std::make_shared<const std::string>(view.text)), hash_(view.hash) {}

  const std::string& text() const { return *text_; }
  TransferKeyView view() const { return {*text_, hash_}; }

  struct Hash {
    using is_transparent = void;
    size_t operator()(const TransferKey& key) const { return key.hash_; }
    size_t operator()(const TransferKeyView& key) const { return key.hash; }
  };
  struct Equal {
    using is_transparent = void;
    bool operator()(const TransferKey& a, const TransferKey& b) const {
      return a.text_ == b.text_ || *a.text_ == *b.text_;
    }
    bool operator()(const TransferKey& a, const TransferKeyView& b) const {
      return *a.text_ == b.text;
    }
  };

 private:
  std::shared_ptr<const std::string> text_;
  size_t hash_ = 0;
};

}  // namespace tutti
