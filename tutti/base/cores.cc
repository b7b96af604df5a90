#include "tutti/base/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace tutti {

int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (::sched_getaffinity(0, sizeof(cores), &cores) != 0) {
    return std::max(1, int(std::thread::hardware_concurrency()));
  }
  return std::max(1, CPU_COUNT(&cores));
}

}  // namespace tutti
