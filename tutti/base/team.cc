#include "tutti/base/team.h"

#include <omp.h>

#include <algorithm>

#include "tutti/base/checked.h"
#include "tutti/base/thread_sanitizer.h"

namespace tutti {

// The thread sanitizer sees neither that OpenMP's threads begin after what stands before the region
// nor that the region ends after them, so it is told; the region's own variables are passed between
// threads by code of the compiler and stay out of its sight.
TUTTI_NOT_WATCHED_FOR_RACES
void Team::Split(int64_t count, int64_t grain, RangeFunction function, const void* body) const {
  const int64_t most = DivideRoundUp(count, std::max<int64_t>(grain, 1));
  const int parts = static_cast<int>(std::min<int64_t>(cores_, most));
  if (parts == 1) {
    function(body, 0, count);
    return;
  }
  const int64_t share = DivideRoundUp(count, parts);
  char fork = 0, join = 0;  // two places: with one, a late thread would seem to follow an early one
  HandOver(&fork);
#pragma omp parallel num_threads(parts)
  {
    TakeOver(&fork);
    // OpenMP may give fewer threads than asked for (a nested region gives one): each takes every
    // n-th part.
    const int threads = omp_get_num_threads();
    for (int part = omp_get_thread_num(); part < parts; part += threads) {
      const int64_t begin = part * share;
      const int64_t end = std::min(count, begin + share);
      if (begin < end) function(body, begin, end);
    }
    HandOver(&join);
  }
  TakeOver(&join);
}

TeamScope::TeamScope(const Team& team) : previous_(omp_get_max_threads()) {
  if (previous_ != team.cores()) omp_set_num_threads(team.cores());
}

TeamScope::~TeamScope() {
  if (previous_ != omp_get_max_threads()) omp_set_num_threads(previous_);
}

}  // namespace tutti
