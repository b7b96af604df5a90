#include "tutti/tensor/buffer.h"

#include <cstdlib>
#include <limits>

namespace tutti {
namespace {

class HeapBuffer final : public Buffer {
 public:
  using Buffer::Buffer;

 private:
  ~HeapBuffer() override { std::free(data_); }
};

class BorrowedBuffer final : public Buffer {
 public:
  using Buffer::Buffer;
};

}  // namespace

BufferRef AllocateBuffer(size_t size) {
  if (size > std::numeric_limits<size_t>::max() - 2 * kBufferAlignment) return {};
  const size_t rounded = (size + kBufferAlignment) / kBufferAlignment * kBufferAlignment;
  void* data = std::aligned_alloc(kBufferAlignment, rounded);
  if (data == nullptr) return {};
  return BufferRef(new HeapBuffer(data, size));
}

BufferRef BorrowBuffer(void* data, size_t size) {
  return BufferRef(new BorrowedBuffer(data, size));
}

}  // namespace tutti
