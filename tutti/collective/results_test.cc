// Every algorithm x operation x dtype x reduction x ranks x size gives the right numbers, the same
// bits on all ranks.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "tutti/collective/algorithms/algorithm.h"
#include "tutti/collective/ranks_under_test.h"
#include "tutti/collective/reduce.h"
#include "tutti/collective/reduction_names.h"

namespace tutti::collective {
namespace {

struct Case {
  std::string algorithm;
  Operation operation;
  DType dtype;
  Reduction reduction;
  int64_t count;
  int root;
  bool registered;
  bool unaligned;
};

std::string Describe(const Case& c, int ranks) {
  return fmt::format("{} {} of {} {}, {}, {} ranks, root {}, {}{}", c.algorithm,
                     NameOf(c.operation), c.count, NameOf(c.dtype), NameOf(c.reduction), ranks,
                     c.root, c.registered ? "registered" : "ordinary",
                     c.unaligned ? ", unaligned" : "");
}

// What rank brings as its i-th element: small numbers whose sums and products are exact in all
// types but the 16-bit ones, and nearly so there.
double ValueOf(int rank, int64_t i) {
  return static_cast<double>((rank * 7 + i * 3 + i / 64) % 5) - 1;
}

void Fill(DType dtype, std::byte* data, int64_t index, double value) {
  VisitDType(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T typed;
    if constexpr (std::is_class_v<T>) {
      typed = T(static_cast<float>(value));
    } else {
      typed = static_cast<T>(value);
    }
    std::memcpy(data + index * sizeof(T), &typed, sizeof(T));
  });
}

double Read(DType dtype, const std::byte* data, int64_t index) {
  return VisitDType(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    T typed;
    std::memcpy(&typed, data + index * sizeof(T), sizeof(T));
    return static_cast<double>(static_cast<float>(typed));
  });
}

double Expected(const Case& c, int ranks, int64_t i) {
  double result = ValueOf(0, i);
  for (int r = 1; r < ranks; ++r) {
    const double value = ValueOf(r, i);
    switch (c.reduction) {
      case Reduction::kSum:
      case Reduction::kMean:
        result += value;
        break;
      case Reduction::kMin:
        result = std::min(result, value);
        break;
      case Reduction::kMax:
        result = std::max(result, value);
        break;
      case Reduction::kProduct:
        result *= value;
        break;
    }
  }
  if (c.reduction != Reduction::kMean) return result;
  result /= ranks;
  return IsFloating(c.dtype) ? result : std::trunc(result);
}

// One rank's buffer: chunks of c.count elements, or c.count elements in all.
class Buffer {
 public:
  Buffer(Communicator& communicator, const Case& c, int64_t elements) : dtype_(c.dtype) {
    const size_t bytes = elements * SizeOf(c.dtype) + 64;
    const size_t shift = c.unaligned ? SizeOf(c.dtype) : 0;
    if (c.registered) {
      memory_ = std::move(communicator.Allocate(bytes)).value();
      data_ = memory_->bytes().data() + shift;
    } else {
      own_.resize(bytes);
      data_ = own_.data() + shift;
    }
  }
  std::byte* data() { return data_; }
  void Set(int64_t i, double value) { Fill(dtype_, data_, i, value); }
  double Get(int64_t i) const { return Read(dtype_, data_, i); }

 private:
  DType dtype_;
  std::unique_ptr<net::RegisteredMemory> memory_;
  std::vector<std::byte> own_;
  std::byte* data_;
};

double Tolerance(const Case& c, double expected) {
  if (c.dtype == kFloat16) return std::abs(expected) * 4e-3;
  if (c.dtype == kBFloat16) return std::abs(expected) * 4e-2;
  return std::abs(expected) * 1e-6;
}

// The handle of the operation on `buffer`, whose chunks are those of the rank's memory.
Handle Start(Group& group, const Case& c, Buffer& buffer, Buffer& output) {
  const CallOptions call{.algorithm = c.algorithm, .reduction = c.reduction, .root = c.root};
  switch (c.operation) {
    case Operation::kAllReduce:
      return group.AllReduce(buffer.data(), c.count, c.dtype, call);
    case Operation::kReduce:
      return group.Reduce(buffer.data(), c.count, c.dtype, call);
    case Operation::kBroadcast:
      return group.Broadcast(buffer.data(), c.count, c.dtype, call);
    case Operation::kReduceScatter:
      return group.ReduceScatter(buffer.data(), c.count, c.dtype, call);
    case Operation::kAllGather:
      return group.AllGather(buffer.data(), c.count, c.dtype, call);
    case Operation::kGather:
      return group.Gather(buffer.data(), c.count, c.dtype, call);
    case Operation::kScatter:
      return group.Scatter(buffer.data(), c.count, c.dtype, call);
    case Operation::kAllToAll:
      return group.AllToAll(buffer.data(), output.data(), c.count, c.dtype, call);
    case Operation::kBarrier:
      break;
  }
  return group.Barrier(call);
}

// What element i of rank r must be afterwards; NaN where it may be anything.
double Outcome(const Case& c, int ranks, int r, int64_t i) {
  const int chunk = c.count == 0 ? 0 : static_cast<int>(i / c.count);
  switch (c.operation) {
    case Operation::kAllReduce:
      return Expected(c, ranks, i);
    case Operation::kReduce:
      return r == c.root ? Expected(c, ranks, i) : NAN;
    case Operation::kBroadcast:
      return ValueOf(c.root, i);
    case Operation::kReduceScatter:
      return chunk == r ? Expected(c, ranks, i) : NAN;
    case Operation::kAllGather:
      return ValueOf(chunk, i);
    case Operation::kGather:
      return r == c.root ? ValueOf(chunk, i) : NAN;
    case Operation::kScatter:
      return chunk == r ? ValueOf(c.root, i) : NAN;
    case Operation::kAllToAll:
      return ValueOf(chunk, r * c.count + i % c.count);
    case Operation::kBarrier:
      break;
  }
  return NAN;
}

void Check(RanksUnderTest& ranks, const Case& c) {
  SCOPED_TRACE(Describe(c, ranks.size()));
  const bool whole = c.operation == Operation::kAllReduce || c.operation == Operation::kReduce ||
                     c.operation == Operation::kBroadcast;
  const int64_t elements = whole ? c.count : c.count * ranks.size();
  std::vector<std::vector<std::byte>> results(ranks.size());
  ranks.Run([&](Communicator& communicator) {
    const int r = communicator.rank();
    Buffer buffer(communicator, c, elements), output(communicator, c, elements);
    for (int64_t i = 0; i < elements; ++i) buffer.Set(i, ValueOf(r, i));
    const absl::Status status = Start(communicator.world(), c, buffer, output).Wait();
    ASSERT_TRUE(status.ok()) << status;
    Buffer& result = c.operation == Operation::kAllToAll ? output : buffer;
    for (int64_t i = 0; i < elements; ++i) {
      const double expected = Outcome(c, ranks.size(), r, i);
      if (std::isnan(expected)) continue;
      ASSERT_NEAR(result.Get(i), expected, Tolerance(c, expected)) << "rank " << r << ", " << i;
    }
    results[r].assign(result.data(), result.data() + elements * SizeOf(c.dtype));
    // Memory is given back only when nobody works in it any more.
    ASSERT_TRUE(communicator.world().Barrier().Wait().ok());
  });
  const bool alike = c.operation == Operation::kAllReduce || c.operation == Operation::kBroadcast ||
                     c.operation == Operation::kAllGather;
  for (int r = 1; alike && r < ranks.size(); ++r) {
    EXPECT_EQ(std::memcmp(results[r].data(), results[0].data(), results[0].size()), 0)
        << "rank " << r << " has other bits than rank 0";
  }
}

template <typename T>
const T& Any(const std::vector<T>& values, std::mt19937& random) {
  return values[random() % values.size()];
}

Case RandomCase(const Algorithm& algorithm, Operation operation, int ranks, std::mt19937& random) {
  static const std::vector<DType> kReducible = {kFloat16, kBFloat16, kFloat32,
                                                kFloat64, kInt32,    kInt64};
  static const std::vector<DType> kOthers = {kFloat32, kInt8, kInt64, kBFloat16, kInt16};
  static const std::vector<int64_t> kCounts = {0, 1, 2, 3, 17, 64, 255, 1000, 4099, 20011, 100003};
  const bool reduces = operation == Operation::kAllReduce || operation == Operation::kReduce ||
                       operation == Operation::kReduceScatter;
  Case c{.algorithm = std::string(algorithm.name),
         .operation = operation,
         .dtype = Any(reduces ? kReducible : kOthers, random),
         .reduction = static_cast<Reduction>(1 + random() % 5),
         .count = Any(kCounts, random),
         .root = static_cast<int>(random() % ranks),
         .registered = random() % 2 == 0,
         .unaligned = random() % 2 == 0};
  if (!reduces) c.reduction = Reduction::kSum;
  // Elements that a chunk per rank would make too many for a quick test.
  if (operation >= Operation::kReduceScatter && operation != Operation::kBroadcast &&
      operation != Operation::kReduce) {
    c.count = std::min<int64_t>(c.count, 20011);
  }
  return c;
}

TEST(Results, EveryAlgorithmAndOperation) {
  const uint32_t seed = std::random_device()();
  std::mt19937 random(seed);
  SCOPED_TRACE(fmt::format("seed {}", seed));
  for (int size : {1, 2, 3, 4, 5, 7, 8}) {
    RanksUnderTest ranks(size);
    for (const Algorithm& algorithm : Algorithms()) {
      for (int o = 1; o <= 9; ++o) {
        const Operation operation = static_cast<Operation>(o);
        if (!algorithm.supports(operation)) continue;
        for (int i = 0; i < 3; ++i) {
          Check(ranks, RandomCase(algorithm, operation, size, random));
          if (HasFailure()) return;
        }
      }
    }
  }
}

TEST(Results, LargeOrdinaryMemoryGoesWindowByWindow) {
  RanksUnderTest ranks(3);
  for (bool registered : {false, true}) {
    Check(ranks, {"direct", Operation::kAllReduce, kFloat32, Reduction::kMean, 1000003, 0,
                  registered, true});
  }
}

}  // namespace
}  // namespace tutti::collective
