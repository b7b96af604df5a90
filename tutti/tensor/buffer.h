#pragma once

#include <atomic>
#include <cstddef>
#include <utility>

namespace tutti {

// Every tensor's memory starts at a multiple of this.
inline constexpr size_t kBufferAlignment = 64;

// A block of memory with a count of the references to it. Subclasses say where the memory comes
// from and what happens when the last reference goes (free it, give it back to a pool, nothing for
// memory that a plan owns). The count is thread-safe; the bytes are not guarded.
class Buffer {
 public:
  Buffer(void* data, size_t size) : data_(data), size_(size) {}
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void* data() const { return data_; }
  size_t size() const { return size_; }

  void AddReference() { references_.fetch_add(1, std::memory_order_relaxed); }
  void DropReference() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) Release();
  }
  // Exact only while nobody else can copy or drop a reference.
  int references() const { return references_.load(std::memory_order_acquire); }

 protected:
  virtual ~Buffer() = default;
  // Called when the last reference is gone. The default deletes this.
  virtual void Release() { delete this; }

  void* data_;
  size_t size_;

 private:
  std::atomic<int> references_{0};
};

// Counts as one reference as long as it lives.
class BufferRef {
 public:
  BufferRef() = default;
  explicit BufferRef(Buffer* buffer) : buffer_(buffer) {
    if (buffer_ != nullptr) buffer_->AddReference();
  }
  BufferRef(const BufferRef& other) : BufferRef(other.buffer_) {}
  BufferRef(BufferRef&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferRef& operator=(BufferRef other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferRef() {
    if (buffer_ != nullptr) buffer_->DropReference();
  }

  Buffer* get() const { return buffer_; }
  Buffer* operator->() const { return buffer_; }
  explicit operator bool() const { return buffer_ != nullptr; }

 private:
  Buffer* buffer_ = nullptr;
};

// Memory of the system allocator, kBufferAlignment aligned, not initialised; at least one byte. An
// empty reference when there is not enough.
BufferRef AllocateBuffer(size_t size);

// Memory that somebody else owns and keeps alive for longer than the buffer.
BufferRef BorrowBuffer(void* data, size_t size);

}  // namespace tutti
