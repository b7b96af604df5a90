#include "tutti/graph/ops/row_messages.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

#include "tutti/graph/ops/source.h"
#include "tutti/kernels/node_under_test.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// What one worker has of two tables: float32 rows of 3 numbers, and rows of another type.
struct Own {
  Tensor numbers[2];
  Tensor rows[2];
};

Tensor Joined(const std::vector<Tensor>& messages) {
  int64_t words = 0;
  for (const Tensor& message : messages) words += message.elements();
  Tensor all(kInt64, {words});
  auto* to = all.data<int64_t>();
  for (const Tensor& message : messages) {
    to = std::copy_n(message.data<int64_t>(), message.elements(), to);
  }
  return all;
}

class RowMessagesTest : public ::testing::Test {
 protected:
  void Declare(DType second, const std::string& wire) {
    tables_ = {{Placeholder(graph_, kInt64, {-1}), Placeholder(graph_, kFloat32, {-1, 3})},
               {Placeholder(graph_, kInt32, {-1}), Placeholder(graph_, second, {-1, 2, 2})}};
    pack_.emplace(device_, PackRows(tables_, wire));
    merge_.emplace(device_,
                   *MergeRows(Placeholder(graph_, kInt64, {-1}), tables_, wire)[0].numbers.node);
  }
  Tensor Pack(const Own& own) {
    const absl::Status status =
        pack_->Run({own.numbers[0], own.numbers[1], own.rows[0], own.rows[1]});
    EXPECT_TRUE(status.ok()) << status;
    return pack_->output().Clone();
  }
  absl::Status Merge(const Tensor& messages, const Own& own) {
    return merge_->Run({messages, own.rows[0], own.rows[1]});
  }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 2};
  std::vector<TableRows> tables_;
  std::optional<NodeUnderTest> pack_, merge_;
};

// Small whole numbers, so that every type holds their sums exactly.
Own RandomRows(std::mt19937& random, int64_t count, int64_t range, DType second) {
  std::uniform_int_distribution<int64_t> number(0, range - 1), value(-2, 2);
  Own own = {{Tensor(kInt64, {count}), Tensor(kInt32, {count})},
             {Tensor(kFloat32, {count, 3}), Tensor(second, {count, 2, 2})}};
  for (int64_t i = 0; i < count; ++i) {
    own.numbers[0].data<int64_t>()[i] = number(random);
    own.numbers[1].data<int32_t>()[i] = int32_t(number(random));
  }
  for (float& x : own.rows[0].values<float>()) x = float(value(random));
  VisitDType(second, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, bool>)
      return;
    else
      for (T& x : own.rows[1].values<T>()) x = T(float(value(random)));
  });
  return own;
}

std::vector<double> Numbers(const Tensor& tensor) {
  std::vector<double> numbers;
  VisitDType(tensor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    for (const T& value : tensor.values<T>()) {
      if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>) {
        numbers.push_back(double(float(value)));
      } else {
        numbers.push_back(double(value));
      }
    }
  });
  return numbers;
}

TEST_F(RowMessagesTest, RowsOfSeveralWorkersAreSummed) {
  const auto seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937 random(seed);
  for (const DType second : {kFloat32, kFloat64, kFloat16, kBFloat16}) {
    for (const char* wire : {"as-is", "bfloat16", "float16"}) {
      Declare(second, wire);
      // Workers without rows among them; 3000 rows are enough for two cores.
      for (const std::vector<int64_t>& counts :
           std::vector<std::vector<int64_t>>{{5}, {0, 0}, {7, 0, 9}, {300, 3000}}) {
        std::map<int64_t, std::vector<double>> expected[2];
        std::vector<Tensor> messages;
        Own own;
        for (const int64_t count : counts) {
          own = RandomRows(random, count, count < 100 ? 6 : 4000, second);
          messages.push_back(Pack(own));
          for (size_t t = 0; t < 2; ++t) {
            const std::vector<double> numbers = Numbers(own.numbers[t]),
                                      rows = Numbers(own.rows[t]);
            const size_t width = t == 0 ? 3 : 4;
            for (size_t i = 0; i < numbers.size(); ++i) {
              std::vector<double>& sum = expected[t][int64_t(numbers[i])];
              sum.resize(width);
              for (size_t k = 0; k < width; ++k) sum[k] += rows[i * width + k];
            }
          }
        }
        const absl::Status status = Merge(Joined(messages), own);
        ASSERT_TRUE(status.ok()) << status;
        for (size_t t = 0; t < 2; ++t) {
          std::vector<double> numbers, rows;
          for (const auto& [number, row] : expected[t]) {
            numbers.push_back(double(number));
            rows.insert(rows.end(), row.begin(), row.end());
          }
          EXPECT_EQ(Numbers(merge_->output(int(2 * t))), numbers);
          EXPECT_EQ(Numbers(merge_->output(int(2 * t + 1))), rows);
          EXPECT_EQ(merge_->output(int(2 * t + 1)).shape(),
                    own.rows[t].shape().WithDim(0, int64_t(numbers.size())));
        }
      }
    }
  }
}

TEST_F(RowMessagesTest, TheWireRoundsFloat32Alone) {
  Declare(kFloat64, "bfloat16");
  const Own own = {{Tensor::Vector<int64_t>({4}), Tensor::Vector<int32_t>({1})},
                   {Tensor::Of<float>({1, 3}, {1.0f / 3, 2, 1e30f}),
                    Tensor::Of<double>({1, 2, 2}, {1.0 / 3, 2, 3, 4})}};
  const Tensor message = Pack(own);
  EXPECT_EQ(message.elements(), 3 + (1 + 1) + (1 + 4)) << "6 bytes are one word";
  ASSERT_TRUE(Merge(message, own).ok());
  EXPECT_EQ(merge_->output(1).values<float>()[0], float(BFloat16(1.0f / 3)));
  EXPECT_EQ(merge_->output(3).values<double>()[0], 1.0 / 3);
}

TEST_F(RowMessagesTest, MessagesThatAreNone) {
  Declare(kFloat32, "as-is");
  std::mt19937 random(1);
  const Own own = RandomRows(random, 4, 1000, kFloat32);
  const Tensor message = Pack(own);
  const auto merged = [&](size_t word, int64_t value) {
    Tensor changed = message.Clone();
    changed.data<int64_t>()[word] = value;
    return Merge(changed, own);
  };
  EXPECT_THAT(MessageOf(merged(0, 2)),
              HasSubstr("the message at word 0 has 2 words; expected 3 to"));
  EXPECT_THAT(MessageOf(merged(0, 1000)), HasSubstr("has 1000 words"));
  for (const int64_t count : {int64_t{-1}, int64_t{9}, int64_t{1} << 60, INT64_MAX}) {
    EXPECT_THAT(MessageOf(merged(1, count)), HasSubstr("rows of table 0, 12 bytes each"));
  }
  EXPECT_THAT(MessageOf(merged(2, 3)), HasSubstr("its rows end after"));
  Own wrong = own;
  wrong.rows[1] = Tensor::Zeros(kFloat32, {3, 2, 2});
  EXPECT_EQ(
      MessageOf(pack_->Run({wrong.numbers[0], wrong.numbers[1], wrong.rows[0], wrong.rows[1]})),
      "table 1: 4 row numbers, and rows is [3, 2, 2]; expected a row for each");
}

}  // namespace
}  // namespace tutti
