#include "tutti/net/shm/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/net/socket.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

// Large pages. A memfd gets none by itself, and MADV_HUGEPAGE does not change that; MADV_COLLAPSE
// does, where a page of it is filled and it is mapped at a multiple of 2 MiB. Every process that
// maps it then has to enter the large pages into its own page table, which Populate does.
namespace tutti::net::shm {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kLargePage = 2 << 20;

// What a region of so many bytes takes; 0 if that cannot be.
size_t SizeFor(size_t bytes) {
  const size_t unit = bytes >= kLargePage ? kLargePage : kPage;
  if (bytes > (size_t{1} << 46)) return 0;
  return bytes == 0 ? kPage : (bytes + unit - 1) / unit * unit;
}

absl::Status SystemError(const char* what, size_t bytes) {
  return ResourceExhausted("shared memory of {} bytes: {}: {}", bytes, what, std::strerror(errno));
}

}  // namespace

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (fd_ >= 0) close(fd_);
}

int FileDescriptor::Release() { return std::exchange(fd_, -1); }

SharedPages::SharedPages(SharedPages&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})), mapped_(std::exchange(other.mapped_, 0)) {}

SharedPages& SharedPages::operator=(SharedPages&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_, other.mapped_);
  return *this;
}

SharedPages::~SharedPages() {
  if (mapped_ != 0) munmap(bytes_.data(), mapped_);
}

absl::StatusOr<SharedPages> SharedPages::Map(const FileDescriptor& fd, size_t bytes) {
  const size_t size = SizeFor(bytes);
  const size_t alignment = size >= kLargePage ? kLargePage : kPage;
  // Reserves more addresses than it needs, and cuts off what lies before and behind the aligned
  // part.
  void* reserved = mmap(nullptr, size + alignment, PROT_NONE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reserved == MAP_FAILED) return SystemError("mmap", bytes);
  auto* begin = static_cast<std::byte*>(reserved);
  const size_t before = (alignment - reinterpret_cast<uintptr_t>(begin) % alignment) % alignment;
  std::byte* aligned = begin + before;
  if (before > 0) munmap(begin, before);
  munmap(aligned + size, alignment - before);
  if (mmap(aligned, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd.get(), 0) ==
      MAP_FAILED) {
    absl::Status status = SystemError("mmap", bytes);
    munmap(aligned, size);
    return status;
  }
  SharedPages pages;
  pages.bytes_ = Bytes(aligned, bytes);
  pages.mapped_ = size;
  return pages;
}

absl::StatusOr<SharedPages> SharedPages::Create(size_t bytes, FileDescriptor* fd) {
  const size_t size = SizeFor(bytes);
  if (size == 0) return ResourceExhausted("shared memory of {} bytes: that is too much", bytes);
  *fd = FileDescriptor(memfd_create("tutti", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd->ok()) return NoDescriptor(fmt::format("no shared memory of {} bytes", bytes), errno);
  if (ftruncate(fd->get(), static_cast<off_t>(size)) != 0) return SystemError("ftruncate", bytes);
  if (fcntl(fd->get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return SystemError("sealing", bytes);
  }
  TUTTI_ASSIGN_OR_RETURN(SharedPages pages, Map(*fd, bytes));
  // MADV_COLLAPSE wants a page in each large one. With all pages there it would copy them: 64 MiB
  // then took 260 to 600 ms, and 20 to 24 ms with one page in 512.
  std::byte* const begin = pages.bytes_.data();
  if (size >= kLargePage) {
    for (size_t at = 0; at < size; at += kLargePage) {
      madvise(begin + at, kPage, MADV_POPULATE_WRITE);
    }
    madvise(begin, size, MADV_COLLAPSE);
  }
  // Unlike a first touch this reports that there is no memory left, and does not kill.
  if (madvise(begin, size, MADV_POPULATE_WRITE) != 0 && errno != EINVAL) {
    return SystemError("filling it", bytes);
  }
  return pages;
}

absl::StatusOr<SharedPages> SharedPages::Open(const FileDescriptor& fd, size_t bytes) {
  struct stat file {};
  const size_t size = SizeFor(bytes);
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return DataLoss("it sent a file that is no memory sealed against shrinking");
  }
  if (fstat(fd.get(), &file) != 0 || size == 0 || static_cast<size_t>(file.st_size) < size) {
    return DataLoss("it sent shared memory of {} bytes; it should have {}", file.st_size, bytes);
  }
  return Map(fd, bytes);
}

void SharedPages::Populate() const {
  // Where the kernel refuses, the first touch does it.
  if (mapped_ >= kLargePage) madvise(bytes_.data(), mapped_, MADV_COLLAPSE);
  madvise(bytes_.data(), mapped_, MADV_POPULATE_WRITE);
}

void SharedPages::Hollow() const {
  mmap(bytes_.data(), mapped_, PROT_READ | PROT_WRITE,
       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}

}  // namespace tutti::net::shm
