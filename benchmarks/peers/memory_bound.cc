// What memory allows: two threads do a = b = a + b on two arrays of each size, half of them each,
// 16 bytes an element, after each has written one of the arrays, as two ranks do. The writing is
// not timed. Prints the best rate of several turns and the median, a JSON object a line:
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

// Two threads, this one and one of its own, that do turn after turn together. The other one spins
// between turns, as the ranks of an all-reduce do: a thread that is made or woken for every turn
// would have its start counted as time of the memory.
class Pair {
 public:
  Pair(float* a, float* b, size_t count)
      : a_(a), b_(b), count_(count), half_(count / 2), other_([this] { Follow(); }) {}
  ~Pair() {
    stop_ = true;
    ++turn_;
    other_.join();
  }

  // Seconds of the sums, until both are done.
  double Turn() {
    Together([this] { std::fill(a_, a_ + count_, 1.0f); });
    const double begin = peers::Now();
    Together([this] { AddBoth(a_, b_, half_); });
    return peers::Now() - begin;
  }

 private:
  template <class Work>
  void Together(const Work& work) {
    const int turn = turn_.load() + 1;
    turn_ = turn;
    work();
    while (done_.load() < turn) {
    }
  }
  // Odd turns write, even ones add.
  void Follow() {
    for (int turn = 1;; ++turn) {
      while (turn_.load() < turn) {
      }
      if (stop_) return;
      if (turn % 2 != 0) {
        std::fill(b_, b_ + count_, 2.0f);
      } else {
        AddBoth(a_ + half_, b_ + half_, half_);
      }
      done_ = turn;
    }
  }

  float* const a_;
  float* const b_;
  const size_t count_, half_;
  std::atomic<bool> stop_{false};
  std::atomic<int> turn_{0}, done_{0};
  std::thread other_;
};

}  // namespace

int main(int argc, char** argv) {
  const peers::Options options = peers::Parse(argc, argv);
  for (const size_t bytes : options.bytes) {
    const size_t count = bytes / sizeof(float);
    peers::Array a(bytes), b(bytes);
    Pair pair(a.data(), b.data(), count);
    pair.Turn();
    std::vector<double> rates;
    for (const double until = peers::Now() + options.seconds;
         rates.size() < 5 || peers::Now() < until;) {
      rates.push_back(16e-9 * double(count) / pair.Turn());
    }
    std::printf("{\"bytes\": %zu, \"gb_per_second\": %.4g, \"median\": %.4g}\n", bytes,
                *std::max_element(rates.begin(), rates.end()), peers::Median(rates));
  }
}
