#pragma once

#include <pthread.h>

#include <cstddef>

namespace tutti::testing {

// While it lives no thread can be started in this process, as on a machine at its limits: every
// thread would get a stack larger than the address space. One at a time.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t impossible;
    pthread_getattr_default_np(&impossible);
    pthread_attr_setstacksize(&impossible, size_t{1} << 50);
    pthread_setattr_default_np(&impossible);
    pthread_attr_destroy(&impossible);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace tutti::testing
