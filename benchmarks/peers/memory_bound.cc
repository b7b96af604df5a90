// What memory allows: two threads do a = b = a + b on two arrays of each size, half of them each,
// 16 bytes an element. Prints the best rate of several turns and the median, a JSON object a line:
//
//   {"bytes": 67108864, "gb_per_second": 43.1, "median": 41.7}
#include <atomic>
#include <thread>

#include "benchmarks/peers/collective_peer.h"

namespace {

__attribute__((target_clones("avx512f", "avx2", "default"), optimize("O3"))) void AddBoth(
    float* a, float* b, size_t count) {
#pragma GCC ivdep
  for (size_t i = 0; i < count; ++i) a[i] = b[i] = a[i] + b[i];
}

// Seconds until both threads are done; they start together.
double Turn(float* a, float* b, size_t count, size_t repeats) {
  std::atomic<int> ready{0};
  double begin[2], end[2];
  const auto work = [&](size_t which) {
    const size_t half = count / 2;
    ready.fetch_add(1);
    while (ready.load() < 2) {
    }
    begin[which] = peers::Now();
    for (size_t i = 0; i < repeats; ++i) AddBoth(a + which * half, b + which * half, half);
    end[which] = peers::Now();
  };
  std::thread other(work, 1);
  work(0);
  other.join();
  return std::max(end[0], end[1]) - std::min(begin[0], begin[1]);
}

}  // namespace

int main(int argc, char** argv) {
  const peers::Options options = peers::Parse(argc, argv);
  for (const size_t bytes : options.bytes) {
    const size_t count = bytes / sizeof(float);
    peers::Array a(bytes), b(bytes);
    const size_t repeats = std::max<size_t>(1, (8 << 20) / bytes);
    Turn(a.data(), b.data(), count, repeats);
    std::vector<double> rates;
    for (const double until = peers::Now() + options.seconds;
         rates.size() < 5 || peers::Now() < until;) {
      rates.push_back(16e-9 * double(count * repeats) / Turn(a.data(), b.data(), count, repeats));
    }
    std::printf("{\"bytes\": %zu, \"gb_per_second\": %.4g, \"median\": %.4g}\n", bytes,
                *std::max_element(rates.begin(), rates.end()), peers::Median(rates));
  }
}
