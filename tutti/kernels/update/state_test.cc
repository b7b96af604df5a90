#include "tutti/graph/ops/state.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tutti/graph/ops/source.h"
#include "tutti/kernels/node_under_test.h"

namespace tutti {
namespace {

class StateTest : public ::testing::Test {
 protected:
  Output MakeVariable(DType dtype, const Shape& shape, std::string_view name) {
    return Variable(
        graph_, {dtype, shape, [=](Graph& g) { return Constant(g, Tensor::Zeros(dtype, shape)); }},
        name);
  }
  Tensor Value(const std::string& name) { return *device_.variables().Find("", name)->Read(); }
  void Set(const std::string& name, Tensor value) {
    const ValueType type{value.dtype(), value.shape()};
    device_.variables().FindOrCreate("", name, type).value()->Assign(std::move(value));
  }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 1};
};

TEST_F(StateTest, AssignCopiesAndReadsShare) {
  const Output w = MakeVariable(kFloat32, {2}, "w");
  const Output value = Placeholder(graph_, kFloat32, {2});
  NodeUnderTest read(device_, w);
  EXPECT_EQ(MessageOf(read.Run({})),
            "variable \"w\" has no value yet; call Session::Initialize() or Assign first");
  EXPECT_TRUE(read.Run({}, 0).ok()) << "nobody reads it, so it needs no value";
  NodeUnderTest initialized(device_, IsInitialized(w));
  ASSERT_TRUE(initialized.Run({}).ok());
  EXPECT_FALSE(initialized.output().scalar<bool>());

  NodeUnderTest assign(device_, Assign(w, value));
  Tensor given = Tensor::Of<float>({2}, {1, 2});
  ASSERT_TRUE(assign.Run({{}, given}, 0).ok());
  given.values<float>()[0] = 100;
  ASSERT_TRUE(read.Run({}).ok());
  EXPECT_TRUE(read.output().BitwiseEquals(Tensor::Of<float>({2}, {1, 2})));
  EXPECT_EQ(read.output().raw(), Value("w").raw());
  ASSERT_TRUE(initialized.Run({}).ok());
  EXPECT_TRUE(initialized.output().scalar<bool>());

  // The reader keeps what it has; the variable moves to fresh memory.
  ASSERT_TRUE(assign.Run({{}, Tensor::Of<float>({2}, {3, 4})}, 0).ok());
  EXPECT_EQ(read.output().values<float>()[0], 1);
  EXPECT_EQ(Value("w").values<float>()[0], 3);
  read.DropValues();
  const void* before = Value("w").raw();
  ASSERT_TRUE(assign.Run({{}, Tensor::Of<float>({2}, {5, 6})}, 0).ok());
  EXPECT_EQ(Value("w").raw(), before);
  ASSERT_TRUE(assign.Run({{}, Tensor::Of<float>({2}, {5, 6})}).ok());
  EXPECT_EQ(assign.output().raw(), before) << "the result is a reference, not a copy";
}

TEST_F(StateTest, AValueOfAnotherGraphIsNamed) {
  const Output w = MakeVariable(kFloat32, {2}, "w");
  Set("w", Tensor::Of<double>({3}, {1, 2, 3}));
  const absl::Status status = NodeUnderTest(device_, w).Run({});
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(MessageOf(status),
            "variable \"w\" is float64 [3] on this device, but this graph declares it as float32 "
            "[2]; another graph declared it first: use the same declaration, another name or "
            "another container");
}

TEST_F(StateTest, AddsAndSubtractsInEveryNumericType) {
  for (const DType dtype : kAllDTypes) {
    if (dtype == kBool) continue;
    VisitDType(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      const std::string name = "v_" + std::string(NameOf(dtype));
      const Output v = MakeVariable(dtype, {3}, name);
      const Output value = Placeholder(graph_, dtype, {3});
      Set(name, Tensor::Of<T>({3}, {T(1), T(2), T(3)}));
      const Tensor delta = Tensor::Of<T>({3}, {T(4), T(5), T(6)});
      ASSERT_TRUE(NodeUnderTest(device_, AssignAdd(v, value)).Run({{}, delta}).ok());
      EXPECT_TRUE(Value(name).BitwiseEquals(Tensor::Of<T>({3}, {T(5), T(7), T(9)})));
      ASSERT_TRUE(NodeUnderTest(device_, AssignSub(v, value)).Run({{}, delta}).ok());
      EXPECT_TRUE(Value(name).BitwiseEquals(Tensor::Of<T>({3}, {T(1), T(2), T(3)})));
    });
  }
  const Output flag = MakeVariable(kBool, {}, "flag");
  EXPECT_THROW(AssignAdd(flag, Placeholder(graph_, kBool, {})), std::exception);
}

TEST_F(StateTest, UpdatesInPlaceUnlessTheResultIsRead) {
  const Output w = MakeVariable(kFloat32, {2}, "w");
  Set("w", Tensor::Of<float>({2}, {1, 2}));
  NodeUnderTest add(device_, AssignAdd(w, Placeholder(graph_, kFloat32, {2})));
  const void* before = Value("w").raw();
  const Tensor one = Tensor::Of<float>({2}, {1, 1});
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(add.Run({{}, one}, 0).ok());
    EXPECT_EQ(Value("w").raw(), before);
  }
  const Tensor snapshot = Value("w");
  ASSERT_TRUE(add.Run({{}, one}, 0).ok());
  EXPECT_NE(Value("w").raw(), before);
  EXPECT_EQ(snapshot.values<float>()[0], 4);
  EXPECT_EQ(Value("w").values<float>()[0], 5);
}

TEST_F(StateTest, ScattersRowsInOrder) {
  const Output w = MakeVariable(kInt32, {3, 2}, "w");
  const Output indices = Placeholder(graph_, kInt64, {-1});
  const Output rows = Placeholder(graph_, kInt32, {-1, 2});
  const Tensor at = Tensor::Of<int64_t>({3}, {2, 0, 2});
  const Tensor by = Tensor::Of<int32_t>({3, 2}, {1, 2, 3, 4, 5, 6});
  Set("w", Tensor::Of<int32_t>({3, 2}, {10, 10, 20, 20, 30, 30}));
  ASSERT_TRUE(NodeUnderTest(device_, ScatterAdd(w, indices, rows)).Run({{}, at, by}).ok());
  EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<int32_t>({3, 2}, {13, 14, 20, 20, 36, 38})));
  ASSERT_TRUE(NodeUnderTest(device_, ScatterSub(w, indices, rows)).Run({{}, at, by}).ok());
  EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<int32_t>({3, 2}, {10, 10, 20, 20, 30, 30})));
  ASSERT_TRUE(NodeUnderTest(device_, ScatterUpdate(w, indices, rows)).Run({{}, at, by}).ok());
  EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<int32_t>({3, 2}, {3, 4, 20, 20, 5, 6})));
  // No indices, no change; a bad index changes nothing at all.
  const Tensor none(kInt64, {0});
  ASSERT_TRUE(NodeUnderTest(device_, ScatterAdd(w, indices, rows))
                  .Run({{}, none, Tensor(kInt32, {0, 2})})
                  .ok());
  for (const int64_t bad : {int64_t{-1}, int64_t{3}, int64_t{1} << 60}) {
    const absl::Status status = NodeUnderTest(device_, ScatterAdd(w, indices, rows))
                                    .Run({{}, Tensor::Of<int64_t>({3}, {0, 1, bad}), by});
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
    EXPECT_EQ(MessageOf(status),
              fmt::format("indices[2] is {}; variable \"w\" is [3, 2] and has rows 0 to 2", bad));
  }
  EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<int32_t>({3, 2}, {3, 4, 20, 20, 5, 6})));
}

// Rows wide enough for several cores, some of them named more than once.
TEST_F(StateTest, SeveralCoresScatterAsOneDoes) {
  constexpr int64_t kRows = 5, kWidth = 5003, kNamed = 40;
  std::mt19937 random(3);
  std::vector<float> start(kRows * kWidth), by(kNamed * kWidth);
  for (float& value : start) value = float(random() % 100);
  for (float& value : by) value = float(random() % 100);
  std::vector<int32_t> at(kNamed);
  for (int32_t& row : at) row = int32_t(random() % kRows);

  Device device("/job:local/task:0/cpu:0", 3);
  const Output w = MakeVariable(kFloat32, {kRows, kWidth}, "w");
  const Output indices = Placeholder(graph_, kInt32, {-1});
  const Output rows = Placeholder(graph_, kFloat32, {-1, kWidth});
  const std::vector<Tensor> inputs = {
      {}, Tensor::Of<int32_t>({kNamed}, at), Tensor::Of<float>({kNamed, kWidth}, by)};
  for (const Output& node : {ScatterAdd(w, indices, rows), ScatterSub(w, indices, rows),
                             ScatterUpdate(w, indices, rows)}) {
    std::vector<float> expected = start;
    for (int64_t i = 0; i < kNamed; ++i) {
      for (int64_t c = 0; c < kWidth; ++c) {
        float& to = expected[size_t(at[size_t(i)] * kWidth + c)];
        const float from = by[size_t(i * kWidth + c)];
        const std::string& op = node.node->op();
        to = op == "ScatterAdd" ? to + from : op == "ScatterSub" ? to - from : from;
      }
    }
    const auto state =
        device.variables().FindOrCreate("", "w", {kFloat32, {kRows, kWidth}}).value();
    state->Assign(Tensor::Of<float>({kRows, kWidth}, start));
    ASSERT_TRUE(NodeUnderTest(device, node).Run(inputs, 0).ok());
    EXPECT_TRUE(state->Read()->BitwiseEquals(Tensor::Of<float>({kRows, kWidth}, expected)))
        << node.node->op();
  }
}

TEST_F(StateTest, ScatterShapesAreCheckedWhenTheNodeIsMade) {
  const Output w = MakeVariable(kFloat32, {3, 2}, "w");
  const Output indices = Placeholder(graph_, kInt32, {4});
  try {
    ScatterAdd(w, indices, Placeholder(graph_, kFloat32, {4, 3}));
    FAIL();
  } catch (const std::exception& error) {
    EXPECT_NE(std::string_view(error.what())
                  .find("rows is float32 [4, 3]; expected [4, 2]: the shape of indices followed by "
                        "a row of the variable, which is [3, 2]"),
              std::string_view::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
