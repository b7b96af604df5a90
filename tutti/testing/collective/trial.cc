// Data repeats itself after kPeriod elements, so the outcome of a trial is a table of that length,
// however large the trial is.
#include "tutti/testing/collective/trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>

#include "tutti/base/status.h"
#include "tutti/collective/reduce/reduce_values.h"
#include "tutti/collective/reduce/reduction_names.h"

namespace tutti::collective {
namespace {

constexpr int64_t kPeriod = 320 * 7;

bool HasChunks(Operation operation) {
  return operation != Operation::kAllReduce && operation != Operation::kReduce &&
         operation != Operation::kBroadcast && operation != Operation::kBarrier;
}

std::vector<int64_t> CountsOf(const Trial& trial, int ranks) {
  std::vector<int64_t> counts(static_cast<size_t>(ranks), trial.count);
  for (int r = 0; trial.varying && r < ranks; ++r) {
    counts[size_t(r)] = trial.count * ((r + trial.salt) % 4) / 2;
  }
  return counts;
}

bool IsSum(Reduction reduction) {
  return reduction == Reduction::kSum || reduction == Reduction::kMean;
}

// What `rank` brings as its i-th element, before it is rounded to the dtype: small integers, whose
// products no dtype overflows, and for sums of floating types some tenths more, which no binary
// format has exactly.
double RawValue(const Trial& trial, int rank, int64_t i) {
  const int64_t turn = rank * 7 + trial.salt;
  const auto whole = static_cast<double>((turn + i * 3 + i / 64) % 5 - 1);
  if (!IsFloating(trial.dtype) || !IsSum(trial.reduction)) return whole;
  return whole + 0.1 * static_cast<double>((turn + i * 2) % 7);
}

template <typename T>
T Typed(double value) {
  if constexpr (std::is_class_v<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
double Plain(T value) {
  if constexpr (std::is_class_v<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<double>(value);
  }
}

// Unaligned memory may hold any type.
template <typename T>
T Load(const std::byte* data, int64_t index) {
  T value;
  std::memcpy(&value, data + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

// What `rank` brings, up to the period, as the dtype has it.
template <typename T>
std::vector<double> ValuesOf(const Trial& trial, int rank, int64_t elements) {
  std::vector<double> values(static_cast<size_t>(std::min(elements, kPeriod)));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = Plain(Typed<T>(RawValue(trial, rank, static_cast<int64_t>(i))));
  }
  return values;
}

// Half a unit in the last place of 1.
double RoundOff(DType dtype, Wire wire) {
  constexpr double kFloat16Half = 0x1p-11, kBFloat16Half = 0x1p-8;
  if (dtype == kBFloat16 || wire == Wire::kBFloat16) return kBFloat16Half;
  if (dtype == kFloat16 || wire == Wire::kFloat16) return kFloat16Half;
  if (dtype == kFloat32) return 0x1p-24;
  return dtype == kFloat64 ? 0x1p-53 : 0;
}

struct Bounds {
  double value;
  double error;
};

// The reduction of one element, in float64, and how far a result may be from it: every addition or
// multiplication may round, and every number may be rounded once more for its journey; so may the
// mean at the end.
Bounds Reduced(const Trial& trial, const std::vector<double>& values) {
  std::vector<double> sizes(values.size());
  std::transform(values.begin(), values.end(), sizes.begin(), [](double v) { return std::abs(v); });
  double result = ReduceValues(trial.reduction, values);
  const double magnitude = ReduceValues(trial.reduction, sizes);
  if (trial.reduction == Reduction::kMean && !IsFloating(trial.dtype)) result = std::trunc(result);
  const auto ranks = static_cast<double>(values.size());
  const bool exact = trial.reduction == Reduction::kMin || trial.reduction == Reduction::kMax;
  const double error = exact ? 0 : (2 * ranks + 2) * RoundOff(trial.dtype, trial.wire) * magnitude;
  return {result, error};
}

// Of every element, by its index modulo kPeriod.
template <typename T>
std::vector<Bounds> OutcomeTable(const Trial& trial, int source, int ranks, int64_t elements) {
  std::vector<std::vector<double>> values;
  for (int r = 0; r < ranks; ++r) {
    if (source < 0 || source == r) values.push_back(ValuesOf<T>(trial, r, elements));
  }
  std::vector<Bounds> table(values[0].size());
  std::vector<double> element(values.size());
  for (size_t i = 0; i < table.size(); ++i) {
    for (size_t r = 0; r < values.size(); ++r) element[r] = values[r][i];
    if (source < 0) {
      table[i] = Reduced(trial, element);
    } else {
      const double error =
          trial.wire == Wire::kAsIs ? 0 : RoundOff(trial.dtype, trial.wire) * std::abs(element[0]);
      table[i] = {element[0], error};
    }
  }
  return table;
}

}  // namespace

std::string Describe(const Trial& trial, int ranks) {
  return fmt::format("{} {}{} of {} {}, {}, travelling {}, {} ranks, root {}, salt {}",
                     trial.algorithm.empty() ? "auto" : trial.algorithm, NameOf(trial.operation),
                     trial.varying ? " with counts that differ" : "", trial.count,
                     NameOf(trial.dtype), NameOf(trial.reduction), NameOf(trial.wire), ranks,
                     trial.root, trial.salt);
}

int64_t ElementsOf(const Trial& trial, int ranks) {
  if (!HasChunks(trial.operation)) {
    return trial.operation == Operation::kBarrier ? 0 : trial.count;
  }
  const std::vector<int64_t> counts = CountsOf(trial, ranks);
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

TrialPart::TrialPart(const Trial& trial, int rank, int ranks, std::byte* data, std::byte* output)
    : trial_(trial),
      rank_(rank),
      ranks_(ranks),
      data_(data),
      output_(output),
      counts_(CountsOf(trial, ranks)) {}

void TrialPart::Fill() {
  const int64_t elements = ElementsOf(trial_, ranks_);
  VisitDType(trial_.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    constexpr auto kSize = static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < std::min(elements, kPeriod); ++i) {
      const T value = Typed<T>(RawValue(trial_, rank_, i));
      std::memcpy(data_ + i * kSize, &value, sizeof(T));
    }
    for (int64_t i = kPeriod; i < elements; i += kPeriod) {
      std::memcpy(data_ + i * kSize, data_,
                  static_cast<size_t>(std::min(kPeriod, elements - i) * kSize));
    }
  });
}

Handle TrialPart::Start(Group& group) const {
  const CallOptions call{.algorithm = trial_.algorithm,
                         .reduction = trial_.reduction,
                         .wire = trial_.wire,
                         .root = trial_.root};
  const int64_t count = trial_.count;
  switch (trial_.operation) {
    case Operation::kAllReduce:
      return group.AllReduce(data_, count, trial_.dtype, call);
    case Operation::kReduce:
      return group.Reduce(data_, count, trial_.dtype, call);
    case Operation::kBroadcast:
      return group.Broadcast(data_, count, trial_.dtype, call);
    case Operation::kReduceScatter:
      return group.ReduceScatter(data_, count, trial_.dtype, call);
    case Operation::kAllGather:
      return trial_.varying ? group.AllGatherV(data_, counts_, trial_.dtype, call)
                            : group.AllGather(data_, count, trial_.dtype, call);
    case Operation::kGather:
      return group.Gather(data_, count, trial_.dtype, call);
    case Operation::kScatter:
      return group.Scatter(data_, count, trial_.dtype, call);
    case Operation::kAllToAll:
      return group.AllToAll(data_, output_, count, trial_.dtype, call);
    case Operation::kBarrier:
      break;
  }
  return group.Barrier(call);
}

std::vector<TrialPart::Expected> TrialPart::Outcome() const {
  const int64_t count = trial_.count;
  const bool is_root = rank_ == trial_.root;
  std::vector<Expected> chunks;  // all ranks', each in its place
  int64_t begin = 0;
  for (int r = 0; r < ranks_; ++r) {
    chunks.push_back({begin, counts_[size_t(r)], r, 0});
    begin += counts_[size_t(r)];
  }
  switch (trial_.operation) {
    case Operation::kAllReduce:
      return {{0, count, -1, 0}};
    case Operation::kReduce:
      return {{0, is_root ? count : 0, -1, 0}};
    case Operation::kBroadcast:
      return {{0, count, trial_.root, 0}};
    case Operation::kReduceScatter:
      return {{rank_ * count, count, -1, 0}};
    case Operation::kScatter:
      return {{rank_ * count, count, trial_.root, 0}};
    case Operation::kAllGather:
      return chunks;
    case Operation::kGather:
      return is_root ? chunks : std::vector<Expected>{};
    case Operation::kAllToAll:
      for (Expected& chunk : chunks) chunk.shift = rank_ * count - chunk.begin;
      return chunks;
    case Operation::kBarrier:
      break;
  }
  return {};
}

absl::Status TrialPart::Check() const {
  const int64_t elements = ElementsOf(trial_, ranks_);
  if (elements == 0) return absl::OkStatus();
  return VisitDType(trial_.dtype, [&](auto tag) -> absl::Status {
    using T = typename decltype(tag)::type;
    const std::byte* const data = result().data();
    for (const Expected& part : Outcome()) {
      if (part.count == 0) continue;
      const std::vector<Bounds> table = OutcomeTable<T>(trial_, part.source, ranks_, elements);
      for (int64_t i = part.begin; i < part.begin + part.count; ++i) {
        const Bounds& expected = table[size_t((i + part.shift) % kPeriod)];
        const double value = Plain(Load<T>(data, i));
        if (std::abs(value - expected.value) <= expected.error) continue;  // false for NaN
        return DataLoss("{}: element {} of rank {} is {}, expected {} within {}",
                        Describe(trial_, ranks_), i, rank_, value, expected.value, expected.error);
      }
    }
    return absl::OkStatus();
  });
}

std::span<const std::byte> TrialPart::result() const {
  const auto bytes = static_cast<size_t>(ElementsOf(trial_, ranks_)) * SizeOf(trial_.dtype);
  return {trial_.operation == Operation::kAllToAll ? output_ : data_, bytes};
}

bool TrialPart::same_everywhere() const {
  return trial_.operation == Operation::kAllReduce || trial_.operation == Operation::kBroadcast ||
         trial_.operation == Operation::kAllGather;
}

}  // namespace tutti::collective
