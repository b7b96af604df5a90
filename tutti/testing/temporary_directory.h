#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace tutti::testing {

// A new directory that goes with the object, so that tests which run at the same time never meet.
// On a disk, or in memory where there is such a place: for what is made thousands of times.
// Header-only, so that the tests of every folder can use it without linking anything.
class TemporaryDirectory {
 public:
  enum Place { kDisk, kMemory };
  explicit TemporaryDirectory(Place place = kDisk) {
    const bool memory = place == kMemory && ::access("/dev/shm", W_OK) == 0;
    std::string pattern =
        (memory ? "/dev/shm/" : ::testing::TempDir()) + std::string("test-directory-XXXXXX");
    path_ = ::mkdtemp(pattern.data());
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

  const std::string& path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace tutti::testing
