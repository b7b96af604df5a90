#pragma once

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti::testing {

// Captures the stderr of this process for a test that waits for a line. The test must not write
// much more than it reads: a pipe holds 64 KB.
class LogUnderTest {
 public:
  LogUnderTest() : stderr_(dup(STDERR_FILENO)) {
    int ends[2];
    if (stderr_ < 0 || pipe2(ends, O_CLOEXEC) != 0)
      throw Error(Code::kResourceExhausted, "no pipe");
    dup2(ends[1], STDERR_FILENO);
    close(ends[1]);
    from_ = ends[0];
  }
  ~LogUnderTest() {
    dup2(stderr_, STDERR_FILENO);
    close(stderr_);
    close(from_);
  }
  LogUnderTest(const LogUnderTest&) = delete;
  LogUnderTest& operator=(const LogUnderTest&) = delete;

  // Returns once `text` was written, after what was found before; throws after 60 s without it.
  void Await(std::string_view text) {
    for (;;) {
      if (const size_t at = seen_.find(text); at != std::string::npos) {
        seen_.erase(0, at + text.size());
        return;
      }
      pollfd readable = {from_, POLLIN, 0};
      if (poll(&readable, 1, 60'000) != 1) {
        throw Error(Code::kDeadlineExceeded, "stderr does not have: " + std::string(text));
      }
      char bytes[4096];
      const ssize_t count = read(from_, bytes, sizeof(bytes));
      if (count <= 0) throw Error(Code::kDataLoss, "stderr has ended");
      seen_.append(bytes, size_t(count));
    }
  }

 private:
  int stderr_;
  int from_ = -1;
  std::string seen_;
};

}  // namespace tutti::testing
