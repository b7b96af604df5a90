// How much work random tests and very large ones do. The environment variable TUTTI_SWEEP chooses:
// "long" for many times the usual number of cases, "short" for a tenth of it, where a sanitizer
// makes everything slower and larger by an order of magnitude. Header-only, so that the tests of
// every folder can use it without linking anything.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string_view>

namespace tutti::testing {

// `usual` cases, or `most` of them in a long sweep, or a tenth (at least one) in a short one.
inline int SweepCount(int usual, int most) {
  const char* sweep = std::getenv("TUTTI_SWEEP");
  if (sweep == nullptr) return usual;
  if (std::string_view(sweep) == "long") return most;
  if (std::string_view(sweep) == "short") return std::max(usual / 10, 1);
  return usual;
}

// Whether a test that samples a product of cases should go through all of them.
inline bool IsLongSweep() {
  const char* sweep = std::getenv("TUTTI_SWEEP");
  return sweep != nullptr && std::string_view(sweep) == "long";
}

// For tests of one very large case: a million, or a tenth of it in a short sweep. What recurses
// once per node overflows its stack at either.
inline int AMillion() { return SweepCount(1'000'000, 1'000'000); }

}  // namespace tutti::testing
