// PackRows and MergeRows: what workers exchange of look-up tables
// (train/strategies/gather_rows.cc). A message is words of 64 bits:
//
//   words of the message, these included
//   for each table: how many rows
//   for each table: the rows' numbers, ascending, each once; then the rows, padded to whole words
//
// Several messages are concatenated. Both kernels group rows by row number (row_groups.h): PackRows
// sums the repeated rows of this worker, MergeRows those of different workers. Every worker sums in
// the order of the messages, so all results are bit-identical. The rows are in ascending order, so
// the update does not sort them again. Tables are divided among the cores.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/base/checked.h"
#include "tutti/kernels/cpu/register.h"
#include "tutti/kernels/dynamic_kernel.h"
#include "tutti/kernels/update/row_groups.h"
#include "tutti/kernels/update/row_indices.h"

namespace tutti {
namespace {

constexpr int64_t kRowsPerCore = 1024;  // fewer are not worth another core
constexpr int64_t kWord = sizeof(int64_t);

// What float32 is written as.
DType WireType(const Node& node, DType dtype) {
  const auto& wire = node.attr<std::string>("wire");
  if (dtype != kFloat32 || wire == "as-is") return dtype;
  return wire == "bfloat16" ? kBFloat16 : kFloat16;
}

int64_t WordsOfRows(int64_t count, int64_t width, DType wire) {
  return DivideRoundUp(count * width * int64_t(SizeOf(wire)), kWord);
}

// Do `count` rows and their numbers fit into `words`? The count may be anything.
bool Fits(int64_t count, int64_t width, DType wire, int64_t words) {
  if (count <= 0 || count > words) return count == 0;
  return width * int64_t(SizeOf(wire)) <= words * kWord / count &&
         count + WordsOfRows(count, width, wire) <= words;
}

template <typename To, typename From>
To ConvertTo(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<To, double> || std::is_same_v<From, double>) {
    return To(double(value));
  } else {
    return To(float(value));
  }
}

// The sum of rows of `width` elements, in the order of `group`; row(position) tells where one is.
template <typename From, typename To, typename RowAt>
void SumGroup(std::span<const RowGroups::Entry> group, const RowAt& row, int64_t width, To* to) {
  const From* const first = row(group[0].position);
  if (group.size() == 1) {
    if constexpr (std::is_same_v<From, To>) {
      std::memcpy(to, first, size_t(width) * sizeof(To));
    } else {
      for (int64_t i = 0; i < width; ++i) to[i] = ConvertTo<To>(first[i]);
    }
    return;
  }
  using Wide = std::conditional_t<std::is_same_v<From, double>, double, float>;
  for (int64_t i = 0; i < width; ++i) {
    auto sum = ConvertTo<Wide>(first[i]);
    for (const RowGroups::Entry& entry : group.subspan(1)) {
      sum += ConvertTo<Wide>(row(entry.position)[i]);
    }
    to[i] = ConvertTo<To>(sum);
  }
}

// Calls visit(Element(), Wire()) for the type of a table and that of its rows in a message.
template <typename Visit>
void VisitTypes(DType dtype, DType wire, const Visit& visit) {
  switch (dtype) {
    case kFloat64:
      return visit(double(), double());
    case kFloat16:
      return visit(Float16(), Float16());
    case kBFloat16:
      return visit(BFloat16(), BFloat16());
    default:
      if (wire == kBFloat16) return visit(float(), BFloat16());
      if (wire == kFloat16) return visit(float(), Float16());
      return visit(float(), float());
  }
}

// Calls `work` for each of `tables` tables of `rows` rows together.
template <typename Work>
void ForEachTable(const Team& team, int64_t tables, int64_t rows, const Work& work) {
  const int64_t grain = std::max<int64_t>(1, tables * kRowsPerCore / std::max<int64_t>(rows, 1));
  team.ParallelFor(tables, grain, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) work(t);
  });
}

class PackRowsKernel final : public DynamicKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const int64_t tables = c.num_inputs() / 2;
    groups_.resize(size_t(tables));
    places_.resize(size_t(tables));
    int64_t all = 0;
    for (int64_t t = 0; t < tables; ++t) {
      const Tensor& numbers = c.input(int(t));
      const Tensor& rows = c.input(int(tables + t));
      if (rows.shape().dim(0) != numbers.elements()) {
        return InvalidArgument("table {}: {} row numbers, and rows is {}; expected a row for each",
                               t, numbers.elements(), rows.shape().ToString());
      }
      all += numbers.elements();
    }
    ForEachTable(c.team(), tables, all, [&](int64_t t) { Group(c.input(int(t)), t); });
    int64_t words = 1 + tables;
    for (int64_t t = 0; t < tables; ++t) {
      const Tensor& rows = c.input(int(tables + t));
      const int64_t count = groups_[size_t(t)].size();
      places_[size_t(t)] = words;
      words += count + WordsOfRows(count, RowWidth(rows.shape()), WireType(*c.node, rows.dtype()));
    }
    TUTTI_RETURN_IF_ERROR(SetShape(c, 0, Shape{words}));
    auto* const message = c.output(0).data<int64_t>();
    message[0] = words;
    ForEachTable(c.team(), tables, all, [&](int64_t t) {
      message[1 + t] = groups_[size_t(t)].size();
      Write(*c.node, c.input(int(tables + t)), t, message + places_[size_t(t)]);
    });
    return absl::OkStatus();
  }

 private:
  void Group(const Tensor& numbers, int64_t t) {
    const RowIndices indices(numbers);
    RowGroups& groups = groups_[size_t(t)];
    groups.Begin(indices.size());
    for (int64_t i = 0; i < indices.size(); ++i) groups.Add(indices[i]);
    groups.Find();
  }

  void Write(const Node& node, const Tensor& rows, int64_t t, int64_t* to) const {
    const RowGroups& groups = groups_[size_t(t)];
    const int64_t count = groups.size(), width = RowWidth(rows.shape());
    if (count == 0) return;
    for (int64_t g = 0; g < count; ++g) to[g] = groups.row(g);
    to += count;
    const DType wire = WireType(node, rows.dtype());
    const int64_t words = WordsOfRows(count, width, wire);
    if (words == 0) return;
    to[words - 1] = 0;  // what pads it
    VisitTypes(rows.dtype(), wire, [&](auto element, auto on_wire) {
      using T = decltype(element);
      using Wire = decltype(on_wire);
      const T* const from = rows.data<T>();
      const auto row = [&](int64_t position) { return from + position * width; };
      for (int64_t g = 0; g < count; ++g) {
        SumGroup<T>(groups.entries(g), row, width, reinterpret_cast<Wire*>(to) + g * width);
      }
    });
  }

  std::vector<RowGroups> groups_;  // by table
  std::vector<int64_t> places_;    // in the message
};

class MergeRowsKernel final : public DynamicKernel {
 public:
  absl::Status Compute(KernelContext& c) override {
    const int64_t tables = c.num_inputs() - 1;
    merges_.resize(size_t(tables));
    for (Merge& merge : merges_) merge.parts.clear();
    TUTTI_ASSIGN_OR_RETURN(const int64_t all, FindParts(c));
    ForEachTable(c.team(), tables, all, [&](int64_t t) { merges_[size_t(t)].Group(); });
    for (int64_t t = 0; t < tables; ++t) {
      const int64_t count = merges_[size_t(t)].groups.size();
      TUTTI_RETURN_IF_ERROR(SetShape(c, int(2 * t), Shape{count}));
      TUTTI_RETURN_IF_ERROR(
          SetShape(c, int(2 * t + 1), c.input(int(1 + t)).shape().WithDim(0, count)));
    }
    ForEachTable(c.team(), tables, all, [&](int64_t t) { Write(c, t); });
    return absl::OkStatus();
  }

 private:
  // A table's rows in one message.
  struct Part {
    const int64_t* numbers;
    int64_t count;
    const std::byte* rows;
    int64_t row_bytes;
  };
  struct Merge {
    std::vector<Part> parts;
    RowGroups groups;
    std::vector<const std::byte*> rows;  // by position

    void Group() {
      int64_t count = 0;
      for (const Part& part : parts) count += part.count;
      groups.Begin(count);
      rows.clear();
      for (const Part& part : parts) {
        for (int64_t i = 0; i < part.count; ++i) {
          groups.Add(part.numbers[i]);
          rows.push_back(part.rows + i * part.row_bytes);
        }
      }
      groups.Find();
    }
  };

  // Finds the parts of all messages; returns how many rows there are in all.
  absl::StatusOr<int64_t> FindParts(KernelContext& c) {
    const int64_t tables = c.num_inputs() - 1;
    const Tensor& messages = c.input(0);
    const auto* const words = messages.data<int64_t>();
    int64_t all = 0;
    for (int64_t begin = 0, next = 0; begin < messages.elements(); begin = next) {
      const int64_t rest = messages.elements() - begin;
      if (words[begin] < 1 + tables || words[begin] > rest) {
        return InvalidArgument("the message at word {} has {} words; expected {} to {}", begin,
                               words[begin], 1 + tables, rest);
      }
      next = begin + words[begin];
      int64_t at = begin + 1 + tables;
      for (int64_t t = 0; t < tables; ++t) {
        const Tensor& like = c.input(int(1 + t));
        const DType wire = WireType(*c.node, like.dtype());
        const int64_t width = RowWidth(like.shape()), count = words[begin + 1 + t];
        const int64_t row_bytes = width * int64_t(SizeOf(wire));
        if (!Fits(count, width, wire, next - at)) {
          return InvalidArgument(
              "the message at word {} has {} rows of table {}, {} bytes each; {} words are left of "
              "it",
              begin, count, t, row_bytes, next - at);
        }
        merges_[size_t(t)].parts.push_back(
            {words + at, count, reinterpret_cast<const std::byte*>(words + at + count), row_bytes});
        at += count + WordsOfRows(count, width, wire);
        all += count;
      }
      if (at != next) {
        return InvalidArgument("the message at word {} has {} words; its rows end after {}", begin,
                               words[begin], at - begin);
      }
    }
    return all;
  }

  void Write(KernelContext& c, int64_t t) const {
    const Merge& merge = merges_[size_t(t)];
    Tensor& rows = c.output(int(2 * t + 1));
    const int64_t count = merge.groups.size(), width = RowWidth(rows.shape());
    auto* const numbers = c.output(int(2 * t)).data<int64_t>();
    for (int64_t g = 0; g < count; ++g) numbers[g] = merge.groups.row(g);
    VisitTypes(rows.dtype(), WireType(*c.node, rows.dtype()), [&](auto element, auto on_wire) {
      using T = decltype(element);
      using Wire = decltype(on_wire);
      const auto row = [&](int64_t position) {
        return reinterpret_cast<const Wire*>(merge.rows[size_t(position)]);
      };
      for (int64_t g = 0; g < count; ++g) {
        SumGroup<Wire>(merge.groups.entries(g), row, width, rows.data<T>() + g * width);
      }
    });
  }

  std::vector<Merge> merges_;  // by table
};

}  // namespace

void RegisterRowMessageCpuKernels(KernelRegistry& registry) {
  AddKernel<PackRowsKernel>(registry, "PackRows", "cpu");
  AddKernel<MergeRowsKernel>(registry, "MergeRows", "cpu");
}

}  // namespace tutti
