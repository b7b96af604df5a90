// Planned memory. Every request has a life [first, last] and a size; two requests may have the same
// bytes when their lives do not overlap. Finding the smallest arena is NP-hard; largest first, each
// at the lowest offset that is free for its whole life, comes within a few percent of the bound on
// most steps, because the large ones settle the peak and the small ones fill the holes. Where it
// stays above the bound, what lies on top is placed first in another try, and again: two values
// that live together may each have to lie beside a large one, at either end of the arena, and only
// the first to be placed gets the lower end. For the step of the benchmarks' CNN at batch 256 that
// finds the bound, 34 MB, in place of 40. All this looks at all pairs, so steps beyond kAllPairs
// requests are walked in time order instead, with a list of free holes (best fit).
#include "tutti/compile/memory_plan.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "tutti/base/checked.h"
#include "tutti/device/memory_limit.h"
#include "tutti/tensor/buffer.h"

namespace tutti {
namespace {

constexpr size_t kAllPairs = 4096;
// Tries, of which large steps get fewer: a million pairs take about a millisecond.
constexpr size_t kTries = 64;
constexpr size_t kPairsTried = 1'000'000;

size_t Rounded(size_t bytes) { return size_t(RoundUp(int64_t(bytes), kBufferAlignment)); }

// No sum of so few sizes overflows.
static_assert(kMostBytes < SIZE_MAX / 2 / kAllPairs);

// Places the requests of `order` one after the other, each at the lowest offset that is free for
// its whole life. Returns the peak.
size_t PlaceInOrder(std::span<const MemoryRequest> requests, const std::vector<size_t>& order,
                    std::vector<Placement>& placements) {
  std::vector<size_t> placed;  // by offset
  size_t peak = 0;
  for (const size_t i : order) {
    const size_t bytes = Rounded(requests[i].bytes);
    size_t offset = 0;
    for (const size_t j : placed) {
      if (requests[j].last < requests[i].first || requests[i].last < requests[j].first) continue;
      if (placements[j].offset >= offset + bytes) break;
      offset = std::max(offset, placements[j].offset + Rounded(requests[j].bytes));
    }
    placements[i] = {0, offset};
    peak = std::max(peak, offset + bytes);
    const auto at =
        std::lower_bound(placed.begin(), placed.end(), offset,
                         [&](size_t j, size_t value) { return placements[j].offset < value; });
    placed.insert(at, i);
  }
  return peak;
}

// The most bytes that are wanted at one time: no plan needs less.
size_t LeastPeak(std::span<const MemoryRequest> requests, const std::vector<size_t>& which) {
  std::vector<std::pair<int64_t, size_t>> begins, ends;
  for (const size_t i : which) {
    begins.emplace_back(requests[i].first, Rounded(requests[i].bytes));
    ends.emplace_back(requests[i].last, Rounded(requests[i].bytes));
  }
  std::sort(begins.begin(), begins.end());
  std::sort(ends.begin(), ends.end());
  size_t live = 0, most = 0;
  auto end = ends.begin();
  for (const auto& [first, bytes] : begins) {
    for (; end != ends.end() && end->first < first; ++end) live -= end->second;
    live += bytes;
    most = std::max(most, live);
  }
  return most;
}

size_t PlaceLargestFirst(std::span<const MemoryRequest> requests, const std::vector<size_t>& which,
                         std::vector<Placement>& placements) {
  std::vector<size_t> order = which;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return requests[a].bytes > requests[b].bytes; });
  size_t peak = PlaceInOrder(requests, order, placements);
  const size_t least = LeastPeak(requests, which);
  const size_t pairs = std::max<size_t>(which.size() * which.size(), 1);
  const size_t tries = std::min(kTries, kPairsTried / pairs);
  std::vector<Placement> tried = placements;
  for (size_t i = 0; i < tries && peak > least; ++i) {
    const auto top = std::max_element(order.begin(), order.end(), [&](size_t a, size_t b) {
      return tried[a].offset + requests[a].bytes < tried[b].offset + requests[b].bytes;
    });
    std::rotate(order.begin(), top, top + 1);
    const size_t reached = PlaceInOrder(requests, order, tried);
    if (reached >= peak) continue;
    peak = reached;
    placements = tried;
  }
  return peak;
}

// Stops once the peak passes kMostBytes.
size_t PlaceInTimeOrder(std::span<const MemoryRequest> requests, const std::vector<size_t>& which,
                        std::vector<Placement>& placements) {
  std::vector<size_t> starts = which;
  std::stable_sort(starts.begin(), starts.end(),
                   [&](size_t a, size_t b) { return requests[a].first < requests[b].first; });
  std::multimap<int64_t, size_t> ends;                // last -> request
  std::map<size_t, size_t> holes;                     // offset -> bytes
  std::set<std::pair<size_t, size_t>> holes_by_size;  // (bytes, offset)
  size_t peak = 0;
  const auto add_hole = [&](size_t offset, size_t bytes) {
    auto next = holes.lower_bound(offset);
    if (next != holes.end() && offset + bytes == next->first) {
      holes_by_size.erase({next->second, next->first});
      bytes += next->second;
      next = holes.erase(next);
    }
    if (next != holes.begin()) {
      const auto previous = std::prev(next);
      if (previous->first + previous->second == offset) {
        holes_by_size.erase({previous->second, previous->first});
        offset = previous->first;
        bytes += previous->second;
        holes.erase(previous);
      }
    }
    holes[offset] = bytes;
    holes_by_size.emplace(bytes, offset);
  };
  for (const size_t i : starts) {
    while (!ends.empty() && ends.begin()->first < requests[i].first) {
      const size_t done = ends.begin()->second;
      ends.erase(ends.begin());
      add_hole(placements[done].offset, Rounded(requests[done].bytes));
    }
    const size_t bytes = Rounded(requests[i].bytes);
    if (bytes == 0) continue;
    if (const auto fit = holes_by_size.lower_bound({bytes, 0}); fit != holes_by_size.end()) {
      const auto [hole_bytes, offset] = *fit;
      holes_by_size.erase(fit);
      holes.erase(offset);
      placements[i] = {0, offset};
      if (hole_bytes > bytes) add_hole(offset + bytes, hole_bytes - bytes);
    } else {
      placements[i] = {0, peak};
      peak += bytes;
      if (peak > kMostBytes) return peak;
    }
    ends.emplace(requests[i].last, i);
  }
  return peak;
}

absl::Status PlacePinned(std::span<const MemoryRequest> requests, std::vector<ArenaSpec>& arenas,
                         std::vector<Placement>& placements) {
  std::vector<size_t> pinned;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].pinned_arena >= 0) pinned.push_back(i);
  }
  std::sort(pinned.begin(), pinned.end(), [&](size_t a, size_t b) {
    return std::pair(requests[a].pinned_arena, requests[a].pinned_offset) <
           std::pair(requests[b].pinned_arena, requests[b].pinned_offset);
  });
  for (size_t k = 0; k < pinned.size(); ++k) {
    const MemoryRequest& request = requests[pinned[k]];
    const size_t end = request.pinned_offset + request.bytes;
    if (k + 1 < pinned.size()) {
      const MemoryRequest& next = requests[pinned[k + 1]];
      if (next.pinned_arena == request.pinned_arena && next.pinned_offset < end) {
        return InvalidArgument(
            "arena \"{}\": a value of {} bytes at offset {} overlaps one at offset {}",
            arenas[request.pinned_arena].name, request.bytes, request.pinned_offset,
            next.pinned_offset);
      }
    }
    placements[pinned[k]] = {request.pinned_arena, request.pinned_offset};
    arenas[request.pinned_arena].bytes = std::max(arenas[request.pinned_arena].bytes, end);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<Placement>> PlanMemory(std::span<const MemoryRequest> requests,
                                                  std::vector<ArenaSpec>& arenas) {
  std::vector<Placement> placements(requests.size());
  if (arenas.empty()) arenas.push_back({});
  for (const MemoryRequest& request : requests) {
    if (request.bytes <= kMostBytes && request.pinned_offset <= kMostBytes) continue;
    return ResourceExhausted(
        "a value of {} bytes at offset {} of its arena is too large; at most {} bytes can be had",
        request.bytes, request.pinned_offset, kMostBytes);
  }
  TUTTI_RETURN_IF_ERROR(PlacePinned(requests, arenas, placements));
  std::vector<size_t> shared;
  for (size_t i = 0; i < requests.size(); ++i) {
    if (requests[i].pinned_arena < 0) shared.push_back(i);
  }
  arenas[0].bytes = shared.size() <= kAllPairs ? PlaceLargestFirst(requests, shared, placements)
                                               : PlaceInTimeOrder(requests, shared, placements);
  for (const ArenaSpec& arena : arenas) {
    if (arena.bytes <= kMostBytes) continue;
    return ResourceExhausted("the values of a step need {} bytes or more; at most {} can be had",
                             arena.bytes, kMostBytes);
  }
  return placements;
}

}  // namespace tutti
