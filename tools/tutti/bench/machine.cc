#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/cores.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/base/team.h"
#include "tutti/kernels/cpu/gemm.h"
#include "tutti/tutti.h"

namespace tutti::tools {
namespace {

std::string Threads(int threads) {
  return fmt::format("{} thread{}", threads, threads == 1 ? "" : "s");
}

// The median time of `run` in seconds, measured for about `seconds`.
template <typename Run>
double MedianTime(double seconds, const Run& run) {
  for (int i = 0; i < 2; ++i) run();
  std::vector<double> times;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  for (int64_t before = NowNanos(); before < end || times.size() < 3;) {
    run();
    const int64_t after = NowNanos();
    times.push_back(double(after - before) * 1e-9);
    before = after;
  }
  return Median(times);
}

}  // namespace

int ThreadsOf(const BenchOptions& options) {
  return options.threads > 0 ? options.threads : UsableCores();
}

void BenchGemm(const BenchOptions& options) {
  constexpr int64_t kSize = 2048;
  const int threads = ThreadsOf(options);
  Graph graph;
  const Output a = Variable(graph, RandomUniform({kSize, kSize}, -1, 1), "a");
  const Output b = Variable(graph, RandomUniform({kSize, kSize}, -1, 1), "b");
  const Output product = MatMul(a, b);
  Session session(graph, {.cores_per_device = threads});
  session.Initialize();
  const double time = MedianTime(options.seconds, [&] { session.RunTargets({}, {product.node}); });
  const double operations = 2.0 * kSize * kSize * kSize;
  Report({"gemm", fmt::format("{0} x {0} x {0}, {1}", kSize, Threads(threads)),
          operations / time * 1e-9, "GFLOP/s"},
         options.json);
  const TeamScope scope{Team(threads)};
  const std::vector<float> left(kSize * kSize, 0.5f), right(kSize * kSize, 2.0f);
  std::vector<float> result(kSize * kSize);
  const Gemm gemm{.m = kSize, .n = kSize, .k = kSize};
  for (const auto& [way, name] :
       {std::pair(Gemm::Way::kOneDnn, "oneDNN"), std::pair(Gemm::Way::kPacked, "packed")}) {
    const double alone = MedianTime(options.seconds, [&] {
      ThrowIfError(gemm.RunBy(way, left.data(), right.data(), result.data()));
    });
    if (result.back() != kSize) {
      throw Error(Code::kInternal, fmt::format("bench gemm: a wrong product by {}", name));
    }
    Report({"gemm", fmt::format("{0} x {0} x {0}, {1}, {2}", kSize, Threads(threads), name),
            operations / alone * 1e-9, "GFLOP/s"},
           options.json);
  }
}

void BenchMemory(const BenchOptions& options) {
  // Three arrays far larger than any cache.
  constexpr int64_t kCount = int64_t{1} << 25;
  const int threads = ThreadsOf(options);
  const Team team(threads);
  std::vector<float> a(kCount);
  std::vector<float> b(kCount, 1);
  std::vector<float> c(kCount, 2);
  const double time = MedianTime(options.seconds, [&] {
    team.ParallelFor(kCount, kCount / threads, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) a[size_t(i)] = b[size_t(i)] + 3 * c[size_t(i)];
    });
  });
  Report({"memory", fmt::format("triad of 3 x {} MB, {}", kCount * 4 >> 20, Threads(threads)),
          3.0 * kCount * sizeof(float) / time * 1e-9, "GB/s"},
         options.json);
}

}  // namespace tutti::tools
