#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace tutti::net::message {

// First in, first out. Keeps the memory it has grown to: a std::deque gives blocks back and takes
// them anew, which the steady state must not. Elements move when one is added.
template <typename T>
class Fifo {
 public:
  bool empty() const { return head_ == elements_.size(); }
  size_t size() const { return elements_.size() - head_; }
  T& front() { return elements_[head_]; }
  void push_back(T element) {
    MakeRoom();
    elements_.push_back(std::move(element));
  }
  T& emplace_back() {
    MakeRoom();
    return elements_.emplace_back();
  }
  void pop_front() {
    if (++head_ == elements_.size()) {
      elements_.clear();
      head_ = 0;
    }
  }
  auto begin() { return elements_.begin() + static_cast<std::ptrdiff_t>(head_); }
  auto end() { return elements_.end(); }

 private:
  // Before it grows, what was taken out goes, if that is worth the moves.
  void MakeRoom() {
    if (elements_.size() < elements_.capacity() || head_ * 2 < elements_.size()) return;
    elements_.erase(elements_.begin(), begin());
    head_ = 0;
  }

  std::vector<T> elements_;
  size_t head_ = 0;
};

}  // namespace tutti::net::message
