#include "tutti/net/message/stash.h"

#include <bit>
#include <utility>

namespace tutti::net::message {

size_t Stash::ClassOf(size_t bytes) {
  return bytes <= 64 ? 0 : static_cast<size_t>(std::bit_width((bytes - 1) >> 6));
}

Stash::Buffer Stash::Take(size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  std::vector<Buffer>& free = free_[size_class];
  if (free.empty()) return std::make_unique_for_overwrite<std::byte[]>(size_t{64} << size_class);
  Buffer buffer = std::move(free.back());
  free.pop_back();
  return buffer;
}

void Stash::Release(Buffer buffer, size_t bytes) {
  std::vector<Buffer>& free = free_[ClassOf(bytes)];
  if (free.size() < kKept) free.push_back(std::move(buffer));
}

}  // namespace tutti::net::message
