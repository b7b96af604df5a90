// How much work random tests and very large ones do. The environment variable TUTTI_SWEEP chooses:
// "long" for many times the usual number of cases, "short" for a tenth of it, where a sanitizer
// makes everything slower and larger by an order of magnitude. Header-only, so that the tests of
// every folder can use it without linking anything.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
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

// The seed of a random test: the number in the environment variable TUTTI_SEED, or else a random
// one. The same in the whole process, which prints it when it is first asked for.
inline uint64_t SweepSeed() {
  static const uint64_t seed = [] {
    const char* text = std::getenv("TUTTI_SEED");
    const uint64_t chosen =
        text != nullptr ? std::strtoull(text, nullptr, 10) : std::random_device()();
    std::fprintf(stderr, "repeat with TUTTI_SEED=%llu\n", static_cast<unsigned long long>(chosen));
    return chosen;
  }();
  return seed;
}

// For tests of one very large case: a million, or a tenth of it in a short sweep. What recurses
// once per node overflows its stack at either.
inline int AMillion() { return SweepCount(1'000'000, 1'000'000); }

}  // namespace tutti::testing
