#include "tutti/tensor/buffer.h"

#include <sys/mman.h>

#include <cstdlib>
#include <limits>

namespace tutti {
namespace {

// Large blocks lie in huge pages where the system gives them on request: filling 500 MB for the
// first time, as an update does while a checkpoint holds its variables, then takes a few hundred
// page faults and not 120,000.
constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kLeastHuge = 4 * kHugePage;

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
  const bool huge = size >= kLeastHuge;
  void* data = nullptr;
  if (::posix_memalign(&data, huge ? kHugePage : kBufferAlignment, rounded) != 0) return {};
  if (huge) (void)::madvise(data, rounded / kHugePage * kHugePage, MADV_HUGEPAGE);
  return BufferRef(new HeapBuffer(data, size));
}

BufferRef BorrowBuffer(void* data, size_t size) {
  return BufferRef(new BorrowedBuffer(data, size));
}

}  // namespace tutti
