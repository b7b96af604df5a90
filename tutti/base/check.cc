#include "tutti/base/check.h"

#include <cstdio>
#include <cstdlib>

namespace tutti {

void CheckFailed(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: internal error: %s does not hold; this is a bug in Tutti\n", file,
               line, condition);
  std::abort();
}

}  // namespace tutti
