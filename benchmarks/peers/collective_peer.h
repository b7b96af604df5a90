#pragma once

// What every all-reduce peer does (or broadcast, with `--broadcast 1`), whatever its library: for
// each size some calls to warm up, then timed calls. Before each of them every rank writes its data
// anew and waits in a barrier, and after it checks its result; neither is timed. The slowest rank's
// time of a call counts; the median over the calls is printed by rank 0, a JSON object a line:
//
//   {"bytes": 1048576, "us": 97.1, "calls": 2000, "back_to_back_us": 95.2}
//
// "back_to_back_us", for sizes up to 4 KB: many calls without a barrier, their time divided by
// their number, with the writing and the check in it; the median of five turns.
//
// A library is a class with rank(), size(), Barrier(), AllReduce(const float* from, float* to,
// size_t count), where `from` may be `to`, and MaxOverRanks(double*, size_t count). It may have
// Broadcast(float* data, size_t count), from rank 0.

#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace peers {

struct Options {
  std::vector<size_t> bytes;
  double seconds = 0.2;    // of timed calls, about, for each size
  bool in_place = true;    // or from one array into another
  bool broadcast = false;  // of rank 0's data, instead of an all-reduce
  int rank = 0, size = 1;  // where no launcher tells them
  std::string store;       // a folder in which ranks find each other
};

inline Options Parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    const char* const value = argv[i + 1];
    if (flag == "--bytes") {
      for (const char* p = value; *p;) {
        char* end;
        options.bytes.push_back(std::strtoull(p, &end, 10));
        p = *end == ',' ? end + 1 : end + std::strlen(end);
      }
    } else if (flag == "--seconds") {
      options.seconds = std::atof(value);
    } else if (flag == "--in-place") {
      options.in_place = std::atoi(value) != 0;
    } else if (flag == "--broadcast") {
      options.broadcast = std::atoi(value) != 0;
    } else if (flag == "--rank") {
      options.rank = std::atoi(value);
    } else if (flag == "--size") {
      options.size = std::atoi(value);
    } else if (flag == "--store") {
      options.store = value;
    } else {
      throw std::runtime_error("unknown flag " + flag);
    }
  }
  if (options.bytes.empty()) throw std::runtime_error("--bytes is missing");
  return options;
}

// Memory as a training program has it: anonymous, in huge pages where the system gives them.
class Array {
 public:
  explicit Array(size_t bytes) : bytes_((bytes + kHuge - 1) / kHuge * kHuge) {
    data_ = static_cast<float*>(std::aligned_alloc(kHuge, bytes_));
    if (!data_) throw std::bad_alloc();
    madvise(data_, bytes_, MADV_HUGEPAGE);
    std::memset(data_, 0, bytes_);
  }
  Array(const Array&) = delete;
  ~Array() { std::free(data_); }
  float* data() { return data_; }

 private:
  static constexpr size_t kHuge = 2 << 20;
  size_t bytes_;
  float* data_;
};

inline double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

inline double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + long(values.size() / 2), values.end());
  return values[values.size() / 2];
}

template <class Library>
class Measurement {
 public:
  Measurement(Library& library, const Options& options) : library_(library), options_(options) {}

  void Run() {
    for (const size_t bytes : options_.bytes) RunSize(bytes);
  }

 private:
  void RunSize(size_t bytes) {
    const size_t count = std::max<size_t>(1, bytes / sizeof(float));
    Array from(count * sizeof(float)), other(options_.in_place ? 1 : count * sizeof(float));
    float* const to = options_.in_place ? from.data() : other.data();

    double estimate[1] = {Median(Timed(from.data(), to, count, 5))};
    library_.MaxOverRanks(estimate, 1);
    const auto calls = [&](double most) {
      return size_t(std::clamp(options_.seconds / std::max(estimate[0], 1e-7), 5.0, most));
    };
    std::vector<double> times = Timed(from.data(), to, count, calls(5000));
    library_.MaxOverRanks(times.data(), times.size());
    double back_to_back = 0;
    if (bytes <= kBackToBack) back_to_back = BackToBack(from.data(), to, count, calls(20000) / 5);
    if (library_.rank() != 0) return;
    std::printf("{\"bytes\": %zu, \"us\": %.4g, \"calls\": %zu", bytes, Median(times) * 1e6,
                times.size());
    if (back_to_back > 0) std::printf(", \"back_to_back_us\": %.4g", back_to_back * 1e6);
    std::printf("}\n");
    std::fflush(stdout);
  }

  // The data of a rank in call `call_`: small whole numbers, others in every call, as
  // tools/tutti/bench/allreduce_data.h has them.
  void Write(float* data, size_t count) const {
    float row[kRow];
    for (size_t i = 0; i < std::min(kRow, count); ++i) {
      row[i] = float((1 + (i + call_) % kRow) * size_t(1 + library_.rank() % 7));
    }
    size_t i = 0;
    for (; i + kRow <= count; i += kRow) std::memcpy(data + i, row, sizeof(row));
    if (i < count) std::memcpy(data + i, row, (count - i) * sizeof(float));
  }

  void Check(const float* data, size_t count) const {
    size_t factor = 0;
    const int contributors = options_.broadcast ? 1 : library_.size();
    for (int rank = 0; rank < contributors; ++rank) factor += size_t(1 + rank % 7);
    float row[kRow];
    for (size_t i = 0; i < std::min(kRow, count); ++i) {
      row[i] = float((1 + (i + call_) % kRow) * factor);
    }
    for (size_t begin = 0; begin < count; begin += kRow) {
      const size_t n = std::min(kRow, count - begin);
      if (std::memcmp(data + begin, row, n * sizeof(float)) == 0) continue;
      for (size_t i = 0; i < n; ++i) {
        if (data[begin + i] == row[i]) continue;
        throw std::runtime_error("element " + std::to_string(begin + i) + " is " +
                                 std::to_string(data[begin + i]) + ", not " +
                                 std::to_string(row[i]));
      }
    }
  }

  // The second form is chosen for a library without a Broadcast.
  template <class L = Library>
  auto Call(float* from, float* to, size_t count, int)
      -> decltype(std::declval<L&>().Broadcast(to, count)) {
    if (options_.broadcast) return library_.Broadcast(to, count);
    library_.AllReduce(from, to, count);
  }
  void Call(float* from, float* to, size_t count, long) {
    if (options_.broadcast) throw std::runtime_error("--broadcast: this library has none here");
    library_.AllReduce(from, to, count);
  }

  std::vector<double> Timed(float* from, float* to, size_t count, size_t calls) {
    std::vector<double> times(calls);
    for (double& time : times) {
      ++call_;
      Write(from, count);
      library_.Barrier();
      const double before = Now();
      Call(from, to, count, 0);
      time = Now() - before;
      Check(to, count);
    }
    return times;
  }

  double BackToBack(float* from, float* to, size_t count, size_t calls) {
    std::vector<double> times(5);
    for (double& time : times) {
      library_.Barrier();
      const double before = Now();
      for (size_t i = 0; i < calls; ++i) {
        ++call_;
        Write(from, count);
        Call(from, to, count, 0);
        Check(to, count);
      }
      time = (Now() - before) / double(calls);
    }
    library_.MaxOverRanks(times.data(), times.size());
    return Median(times);
  }

  static constexpr size_t kRow = 32;
  static constexpr size_t kBackToBack = 4096;
  Library& library_;
  const Options& options_;
  size_t call_ = 0;
};

// `make` makes the library of the options; it is called once.
template <class Make>
int Main(int argc, char** argv, Make make) {
  try {
    const Options options = Parse(argc, argv);
    auto library = make(options);
    Measurement(library, options).Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", argv[0], error.what());
    std::_Exit(1);  // the launcher ends the other ranks
  }
  return 0;
}

}  // namespace peers
