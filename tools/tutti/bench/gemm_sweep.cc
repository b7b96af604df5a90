// `tutti bench gemm --sweep`: where the thresholds of Gemm::Packs come from.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tools/tutti/bench/bench.h"
#include "tools/tutti/report.h"
#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/status.h"
#include "tutti/base/team.h"
#include "tutti/kernels/cpu/gemm.h"

namespace tutti::tools {
namespace {

// Multiples of 4 KB and others, none of them a size of the step benchmark's products.
constexpr int64_t kRows[] = {48, 192, 320, 640, 1536, 2048};
constexpr int64_t kColumns[] = {48, 192, 512, 1536, 2048, 3072};
constexpr int64_t kInner[] = {192, 512, 768, 1536, 2048};
constexpr double kMostOperations = 4e9;  // of a product that is measured
constexpr double kNoticed = 1.1;         // a choice that takes longer by less is noise

std::vector<float> Numbers(int64_t count) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> number(-1, 1);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = number(random);
  return values;
}

// The shortest times of both ways in seconds, which take turns.
struct Times {
  double one_dnn = 0;
  double packed = 0;
};

Times Measure(const Gemm& gemm, const std::vector<float>& a, const std::vector<float>& b,
              std::vector<float>& c, double seconds) {
  Times times{INFINITY, INFINITY};
  const auto run = [&](Gemm::Way way, double& shortest) {
    const int64_t before = NowNanos();
    ThrowIfError(gemm.RunBy(way, a.data(), b.data(), c.data()));
    shortest = std::min(shortest, double(NowNanos() - before) * 1e-9);
  };
  constexpr int kLeast = 3;
  const int64_t end = NowNanos() + int64_t(seconds * 1e9);
  for (int i = 0; i < kLeast || NowNanos() < end; ++i) {
    run(Gemm::Way::kOneDnn, times.one_dnn);
    run(Gemm::Way::kPacked, times.packed);
  }
  return times;
}

std::vector<Gemm> Shapes() {
  std::vector<Gemm> shapes;
  for (const auto& [transpose_a, transpose_b] :
       {std::pair(false, false), std::pair(true, false), std::pair(false, true)}) {
    for (const int64_t m : kRows) {
      for (const int64_t n : kColumns) {
        for (const int64_t k : kInner) {
          if (2.0 * double(m) * double(n) * double(k) > kMostOperations) continue;
          shapes.push_back(
              {.m = m, .n = n, .k = k, .transpose_a = transpose_a, .transpose_b = transpose_b});
        }
      }
    }
  }
  return shapes;
}

}  // namespace

void BenchGemmSweep(const BenchOptions& options) {
  const int threads = ThreadsOf(options);
  const TeamScope scope{Team(threads)};
  const int64_t most = 3072 * 2048;
  const std::vector<float> a = Numbers(most), b = Numbers(most);
  std::vector<float> c(static_cast<size_t>(most));
  const std::vector<Gemm> shapes = Shapes();
  double chosen = 0, always = 0, never = 0;  // logarithms of times over the best, added up
  int64_t wrong = 0;
  for (const Gemm& gemm : shapes) {
    const Times times = Measure(gemm, a, b, c, options.seconds / double(shapes.size()));
    const double best = std::min(times.one_dnn, times.packed);
    const double mine = gemm.Packs() ? times.packed : times.one_dnn;
    chosen += std::log(mine / best);
    always += std::log(times.packed / best);
    never += std::log(times.one_dnn / best);
    const bool bad = mine > kNoticed * best;
    wrong += bad ? 1 : 0;
    if (options.json) continue;
    const double giga = 2e-9 * double(gemm.m) * double(gemm.n) * double(gemm.k);
    FormatTo(stdout,
             "[{}, {}]{} x [{}, {}]{}: oneDNN {:.1f} GFLOP/s, packed {:.1f}; chosen: {}{}\n",
             gemm.transpose_a ? gemm.k : gemm.m, gemm.transpose_a ? gemm.m : gemm.k,
             gemm.transpose_a ? "^T" : "", gemm.transpose_b ? gemm.n : gemm.k,
             gemm.transpose_b ? gemm.k : gemm.n, gemm.transpose_b ? "^T" : "", giga / times.one_dnn,
             giga / times.packed, gemm.Packs() ? "packed" : "oneDNN",
             bad ? fmt::format(", {:.2f} times the better one's time", mine / best) : "");
  }
  const auto mean = [&](double sum) { return std::exp(sum / double(shapes.size())); };
  const std::string what =
      fmt::format("{} shapes, {} thread{}", shapes.size(), threads, threads == 1 ? "" : "s");
  Report({"gemm sweep", what + ", the choice", mean(chosen), "times the better way"}, options.json);
  Report({"gemm sweep", what + ", always oneDNN", mean(never), "times the better way"},
         options.json);
  Report({"gemm sweep", what + ", always packed", mean(always), "times the better way"},
         options.json);
  Report({"gemm sweep",
          fmt::format("{}, the choice takes over {:.0f}% longer", what, 100 * (kNoticed - 1)),
          double(wrong), "shapes"},
         options.json);
}

}  // namespace tutti::tools
