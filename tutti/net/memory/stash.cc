#include "tutti/net/memory/stash.h"

#include <bit>
#include <cstring>
#include <utility>

namespace tutti::net::memory {

size_t Stash::ClassOf(size_t bytes) {
  return bytes <= 64 ? 0 : static_cast<size_t>(std::bit_width((bytes - 1) >> 6));
}

Stash::Buffer Stash::Keep(ConstBytes payload) {
  const size_t size_class = ClassOf(payload.size());
  const size_t size = size_t{64} << size_class;
  if (used_ + size > kMostBytes) return nullptr;
  used_ += size;
  std::vector<Buffer>& free = free_[size_class];
  Buffer buffer;
  if (free.empty()) {
    buffer = std::make_unique_for_overwrite<std::byte[]>(size);
  } else {
    buffer = std::move(free.back());
    free.pop_back();
  }
  if (!payload.empty()) std::memcpy(buffer.get(), payload.data(), payload.size());
  return buffer;
}

void Stash::Release(Buffer buffer, size_t bytes) {
  const size_t size_class = ClassOf(bytes);
  used_ -= size_t{64} << size_class;
  if (free_[size_class].size() < kKept) free_[size_class].push_back(std::move(buffer));
}

}  // namespace tutti::net::memory
