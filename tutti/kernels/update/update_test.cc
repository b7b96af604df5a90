#include "tutti/graph/ops/update.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tutti/graph/build.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/graph/ops/update_table.h"
#include "tutti/kernels/node_under_test.h"

namespace tutti {
namespace {

class UpdateTest : public ::testing::Test {
 protected:
  Output MakeVariable(DType dtype, const Shape& shape, const std::string& name) {
    return Variable(
        graph_, {dtype, shape, [=](Graph& g) { return Constant(g, Tensor::Zeros(dtype, shape)); }},
        name);
  }
  Output Scalar(DType dtype = kFloat32) { return Placeholder(graph_, dtype, {}); }
  Tensor Value(const std::string& name) { return *device_.variables().Find("", name)->Read(); }
  void Set(const std::string& name, Tensor value) {
    const ValueType type{value.dtype(), value.shape()};
    device_.variables().FindOrCreate("", name, type).value()->Assign(std::move(value));
  }

  Graph graph_;
  Device device_{"/job:local/task:0/cpu:0", 1};
};

const Tensor kRate = Tensor::Scalar<float>(0.5f);

TEST_F(UpdateTest, GradientDescentScalesAndSkips) {
  const Output w = MakeVariable(kFloat32, {2}, "w");
  const Output g = Placeholder(graph_, kFloat32, {2});
  Set("w", Tensor::Of<float>({2}, {1, 2}));
  const Tensor gradient = Tensor::Of<float>({2}, {2, 4});
  for (const char* kind : {"ref", "cpu"}) {
    Set("w", Tensor::Of<float>({2}, {1, 2}));
    NodeUnderTest plain(device_, ApplyGradientDescent(w, Scalar(), g), kind);
    ASSERT_TRUE(plain.Run({{}, kRate, gradient}).ok());
    EXPECT_TRUE(plain.output().BitwiseEquals(Tensor::Of<float>({2}, {0, 0})));
    plain.DropValues();
    NodeUnderTest scaled(device_, ApplyGradientDescent(w, Scalar(), g, {.scale = Scalar()}), kind);
    ASSERT_TRUE(scaled.Run({{}, kRate, gradient, Tensor::Scalar<float>(0.25f)}).ok());
    EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<float>({2}, {-0.25f, -0.5f})));
    const Tensor nan = Tensor::Of<float>({2}, {NAN, NAN});
    ASSERT_TRUE(scaled.Run({{}, kRate, nan, Tensor::Scalar<float>(0)}).ok());
    EXPECT_TRUE(Value("w").BitwiseEquals(Tensor::Of<float>({2}, {-0.25f, -0.5f})));
  }
}

TEST_F(UpdateTest, MomentumByHand) {
  const Output w = MakeVariable(kFloat64, {1}, "w");
  const Output a = MakeVariable(kFloat64, {1}, "a");
  const Output g = Placeholder(graph_, kFloat64, {1});
  for (const bool nesterov : {false, true}) {
    Set("w", Tensor::Of<double>({1}, {1}));
    Set("a", Tensor::Of<double>({1}, {2}));
    NodeUnderTest apply(device_,
                        ApplyMomentum(w, a, Scalar(), g, {.momentum = 0.5, .nesterov = nesterov}));
    ASSERT_TRUE(apply.Run({{}, {}, kRate, Tensor::Of<double>({1}, {3})}).ok());
    EXPECT_EQ(Value("a").scalar<double>(), 4);
    EXPECT_EQ(Value("w").scalar<double>(), nesterov ? 1 - 0.5 * (3 + 0.5 * 4) : 1 - 0.5 * 4);
  }
}

TEST_F(UpdateTest, AdamByHand) {
  const Output w = MakeVariable(kFloat64, {1}, "w");
  const Output m = MakeVariable(kFloat64, {1}, "m");
  const Output v = MakeVariable(kFloat64, {1}, "v");
  const Output g = Placeholder(graph_, kFloat64, {1});
  const Output step = Scalar(kInt64);
  for (const double decay : {0.0, 0.1}) {
    Set("w", Tensor::Of<double>({1}, {1}));
    Set("m", Tensor::Of<double>({1}, {0}));
    Set("v", Tensor::Of<double>({1}, {0}));
    const Output node =
        decay == 0 ? ApplyAdam(w, m, v, Scalar(kFloat64), step, g, {.beta1 = 0.9, .beta2 = 0.99})
                   : ApplyAdamW(w, m, v, Scalar(kFloat64), step, g,
                                {.beta1 = 0.9, .beta2 = 0.99, .weight_decay = decay});
    NodeUnderTest apply(device_, node);
    double ew = 1, em = 0, ev = 0;
    for (int64_t t = 1; t <= 5; ++t) {
      const double grad = 0.3 * double(t) - 0.7;
      ASSERT_TRUE(apply
                      .Run({{},
                            {},
                            {},
                            Tensor::Scalar<double>(0.01),
                            Tensor::Scalar<int64_t>(t),
                            Tensor::Of<double>({1}, {grad})},
                           0)
                      .ok());
      ew -= 0.01 * decay * ew;
      em = 0.9 * em + 0.1 * grad;
      ev = 0.99 * ev + 0.01 * grad * grad;
      ew -= 0.01 * (em / (1 - std::pow(0.9, double(t)))) /
            (std::sqrt(ev / (1 - std::pow(0.99, double(t)))) + 1e-8);
      EXPECT_NEAR(Value("w").scalar<double>(), ew, 1e-14);
    }
    EXPECT_EQ(MessageOf(apply.Run({{},
                                   {},
                                   {},
                                   Tensor::Scalar<double>(0.01),
                                   Tensor::Scalar<int64_t>(0),
                                   Tensor::Of<double>({1}, {1})})),
              "step is 0; the first update has step 1");
  }
}

// Every op of the table, as a node over variables "w", "s0", "s1".
class EveryUpdate : public UpdateTest, public ::testing::WithParamInterface<int> {
 protected:
  const UpdateOp& op() const { return UpdateOps()[GetParam()]; }

  // The node of the op, dense or sparse, on variables of this type. Attributes as in kAttrs.
  Node* MakeNode(bool sparse, const ValueType& type, const std::string& suffix) {
    OpBuilder builder(op().name + (sparse ? "Sparse" : ""), "");
    for (int i = 0; i < op().references(); ++i) {
      builder.In(MakeVariable(type.dtype, type.shape, Name(i) + suffix));
    }
    builder.In(Scalar());
    if (op().takes_step) builder.In(Scalar(kInt64));
    if (sparse) builder.In(Placeholder(graph_, kInt64, {-1}));
    builder.In(
        Placeholder(graph_, type.dtype, sparse ? type.shape.WithDim(0, kUnknownDim) : type.shape));
    builder.In(Scalar());
    for (const AttrDef& attr : op().attrs) {
      if (attr.name == "l1") builder.Attr("l1", 0.05);
      if (attr.name == "l2") builder.Attr("l2", 0.1);
      if (attr.name == "momentum") builder.Attr("momentum", 0.8);
      if (attr.name == "nesterov") builder.Attr("nesterov", true);
    }
    return builder.BuildNode();
  }
  std::string Name(int i) const { return i == 0 ? "w" : fmt::format("s{}", i - 1); }

  std::vector<Tensor> Inputs(std::vector<Tensor> gradient) const {
    std::vector<Tensor> inputs(op().references());
    inputs.push_back(Tensor::Scalar<float>(0.1f));
    if (op().takes_step) inputs.push_back(Tensor::Scalar<int64_t>(3));
    inputs.insert(inputs.end(), gradient.begin(), gradient.end());
    inputs.push_back(Tensor::Scalar<float>(0.5f));
    return inputs;
  }

  Tensor Random(DType dtype, const Shape& shape, bool positive) {
    Tensor t(dtype, shape);
    std::uniform_real_distribution<double> draw(positive ? 0.1 : -1.0, 1.0);
    VisitDType(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      if constexpr (!std::is_same_v<T, bool>) {
        for (T& v : t.values<T>()) v = T(float(draw(random_)));
      }
    });
    return t;
  }

  // Slots that are squares must not be negative.
  std::vector<Tensor> RandomState(const ValueType& type) {
    std::vector<Tensor> state;
    for (int i = 0; i < op().references(); ++i) {
      state.push_back(Random(type.dtype, type.shape, i > 0));
    }
    return state;
  }
  void SetState(const std::vector<Tensor>& state, const std::string& suffix) {
    for (size_t i = 0; i < state.size(); ++i) Set(Name(int(i)) + suffix, state[i].Clone());
  }
  void ExpectSameState(const std::string& a, const std::string& b) {
    for (int i = 0; i < op().references(); ++i) {
      const Tensor va = Value(Name(i) + a), vb = Value(Name(i) + b);
      EXPECT_TRUE(va.BitwiseEquals(vb))
          << Name(i) << ": " << va.ToString() << " against " << vb.ToString();
    }
  }
  void ExpectNearState(const std::vector<Tensor>& expected, const std::string& suffix,
                       double tolerance) {
    for (size_t i = 0; i < expected.size(); ++i) {
      const Tensor value = Value(Name(int(i)) + suffix);
      for (int64_t j = 0; j < value.elements(); ++j) {
        const double e = expected[i].data<float>()[j];
        EXPECT_NEAR(value.data<float>()[j], e, tolerance * (1 + std::abs(e))) << Name(int(i));
      }
    }
  }

  std::mt19937 random_{12345};
};

INSTANTIATE_TEST_SUITE_P(Ops, EveryUpdate, ::testing::Range(0, int(UpdateOps().size())),
                         [](const auto& info) { return UpdateOps()[info.param].name; });

TEST_P(EveryUpdate, CpuAgreesWithTheReference) {
  int serial = 0;
  for (const int64_t size : {0, 1, 7, 8, 33, 40000}) {
    const ValueType type{kFloat32, {size}};
    const std::vector<Tensor> state = RandomState(type);
    const Tensor gradient = Random(kFloat32, type.shape, false);
    std::vector<Tensor> expected;
    for (const char* kind : {"ref", "cpu"}) {
      const std::string suffix = fmt::format("_{}", serial++);
      NodeUnderTest node(device_, *MakeNode(false, type, suffix), kind);
      SetState(state, suffix);
      const absl::Status status = node.Run(Inputs({gradient}), 0);
      ASSERT_TRUE(status.ok()) << status;
      if (expected.empty()) {
        for (int i = 0; i < op().references(); ++i) expected.push_back(Value(Name(i) + suffix));
      } else {
        ExpectNearState(expected, suffix, 1e-5);
      }
    }
  }
}

// A sparse update is the dense one with the summed gradient, on the rows that it names.
TEST_P(EveryUpdate, SparseEqualsDenseOnItsRows) {
  for (const char* kind : {"ref", "cpu"}) {
    const std::string k = kind;
    const ValueType type{kFloat32, {4, 300}};
    const std::vector<Tensor> state = RandomState(type);
    const Tensor indices = Tensor::Of<int64_t>({5}, {3, 1, 3, 3, 0});
    const Tensor rows = Random(kFloat32, {5, 300}, false);
    Tensor dense = Tensor::Zeros(kFloat32, type.shape);
    for (int64_t i = 0; i < 5; ++i) {
      for (int64_t j = 0; j < 300; ++j) {
        dense.data<float>()[indices.data<int64_t>()[i] * 300 + j] +=
            rows.data<float>()[i * 300 + j];
      }
    }
    NodeUnderTest whole(device_, *MakeNode(false, type, "_d" + k), kind);
    NodeUnderTest sparse(device_, *MakeNode(true, type, "_s" + k), kind);
    SetState(state, "_d" + k);
    SetState(state, "_s" + k);
    ASSERT_TRUE(whole.Run(Inputs({dense}), 0).ok());
    ASSERT_TRUE(sparse.Run(Inputs({indices, rows}), 0).ok());
    for (int i = 0; i < op().references(); ++i) {
      const Tensor from_dense = Value(Name(i) + "_d" + k), from_rows = Value(Name(i) + "_s" + k);
      for (const int64_t row : {0, 1, 3}) {
        const Tensor a = from_dense.Rows(row, row + 1), b = from_rows.Rows(row, row + 1);
        for (int64_t j = 0; j < 300; ++j) {
          EXPECT_NEAR(a.data<float>()[j], b.data<float>()[j], 1e-6) << Name(i) << " row " << row;
        }
      }
      EXPECT_TRUE(from_rows.Rows(2, 3).BitwiseEquals(state[i].Rows(2, 3))) << "was not named";
    }
    // An index out of range, or a scale of 0, changes nothing.
    const std::vector<Tensor> before = {Value("w_s" + k).Clone()};
    EXPECT_EQ(sparse.Run(Inputs({Tensor::Of<int64_t>({5}, {0, 1, 2, 3, 4}), rows})).code(),
              absl::StatusCode::kOutOfRange);
    std::vector<Tensor> inputs = Inputs({indices, rows});
    inputs.back() = Tensor::Scalar<float>(0);
    ASSERT_TRUE(sparse.Run(inputs, 0).ok());
    EXPECT_TRUE(Value("w_s" + k).BitwiseEquals(before[0]));
  }
}

TEST_P(EveryUpdate, FusedEqualsSingle) {
  Device two_cores("/job:local/task:0/cpu:0", 2);
  const std::vector<Shape> shapes = {{5}, {0}, {30000}, {2, 3}, {}};
  OpBuilder builder(op().fused_name(), "fused");
  builder.In(Scalar()).In(Scalar()).Attr("scaled", true);
  std::vector<Tensor> inputs = {Tensor::Scalar<float>(0.1f), Tensor::Scalar<float>(0.5f)};
  if (op().takes_step) {
    builder.In(Scalar(kInt64));
    inputs.push_back(Tensor::Scalar<int64_t>(3));
  }
  const Node* single_node = nullptr;
  for (size_t v = 0; v < shapes.size(); ++v) {
    const std::string suffix = fmt::format("_single{}", v);
    const ValueType type{kFloat32, shapes[v]};
    const std::vector<Tensor> state = RandomState(type);
    const Tensor gradient = Random(kFloat32, shapes[v], false);
    single_node = MakeNode(false, type, suffix);
    NodeUnderTest single(device_, *single_node);
    SetState(state, suffix);
    ASSERT_TRUE(single.Run(Inputs({gradient}), 0).ok());
    for (int i = 0; i < op().references(); ++i) {
      const std::string name = fmt::format("{}_fused{}", Name(i), v);
      builder.In(MakeVariable(kFloat32, shapes[v], name));
      inputs.emplace_back();
      Set(name, state[i].Clone());
      two_cores.variables()
          .FindOrCreate("", name, {kFloat32, shapes[v]})
          .value()
          ->Assign(state[i].Clone());
    }
    builder.In(Placeholder(graph_, kFloat32, shapes[v]));
    inputs.push_back(gradient);
  }
  for (const auto& [name, value] : single_node->attrs()) builder.Attr(name, value);
  const Node* const node = builder.BuildNode();
  ASSERT_TRUE(NodeUnderTest(device_, *node).Run(inputs).ok());
  ASSERT_TRUE(NodeUnderTest(two_cores, *node).Run(inputs).ok());
  for (size_t v = 0; v < shapes.size(); ++v) {
    ExpectSameState(fmt::format("_single{}", v), fmt::format("_fused{}", v));
    for (int i = 0; i < op().references(); ++i) {
      const std::string name = fmt::format("{}_fused{}", Name(i), v);
      EXPECT_TRUE(two_cores.variables().Find("", name)->Read()->BitwiseEquals(Value(name)));
    }
  }
}

TEST_P(EveryUpdate, RunsInEveryFloatingType) {
  for (const DType dtype : {kFloat16, kBFloat16, kFloat64}) {
    const std::string suffix = fmt::format("_{}", NameOf(dtype));
    const ValueType type{dtype, {2, 2}};
    const std::vector<Tensor> state = RandomState(type);
    NodeUnderTest node(device_, *MakeNode(false, type, suffix));
    SetState(state, suffix);
    ASSERT_TRUE(node.Run(Inputs({Random(dtype, type.shape, false)}), 0).ok());
    EXPECT_FALSE(Value("w" + suffix).BitwiseEquals(state[0]));
    NodeUnderTest sparse(device_, *MakeNode(true, type, suffix + "_sparse"));
    SetState(state, suffix + "_sparse");
    ASSERT_TRUE(
        sparse.Run(Inputs({Tensor::Of<int64_t>({2}, {1, 1}), Random(dtype, type.shape, false)}), 0)
            .ok());
    EXPECT_TRUE(Value("w" + suffix + "_sparse").Rows(0, 1).BitwiseEquals(state[0].Rows(0, 1)));
  }
}

TEST_F(UpdateTest, FtrlByHandAndItsLimits) {
  const Output w = MakeVariable(kFloat64, {2}, "w");
  const Output n = MakeVariable(kFloat64, {2}, "n");
  const Output z = MakeVariable(kFloat64, {2}, "z");
  Set("w", Tensor::Of<double>({2}, {0.5, 0}));
  Set("n", Tensor::Of<double>({2}, {4, 0}));
  Set("z", Tensor::Of<double>({2}, {1, 0}));
  const Output g = Placeholder(graph_, kFloat64, {2});
  NodeUnderTest apply(device_,
                      ApplyFtrl(w, n, z, Scalar(kFloat64), g, {.l1 = 0.5, .l2 = 0.25, .beta = 1}));
  const Tensor gradient = Tensor::Of<double>({2}, {std::sqrt(5.0), 0.4});
  ASSERT_TRUE(apply.Run({{}, {}, {}, Tensor::Scalar<double>(0.5), gradient}, 0).ok());
  // n = 4 + 5; sigma = (3 - 2) / 0.5; z = 1 + sqrt(5) - 2 * 0.5.
  const double expected_z = std::sqrt(5.0);
  EXPECT_NEAR(Value("n").values<double>()[0], 9, 1e-12);
  EXPECT_NEAR(Value("z").values<double>()[0], expected_z, 1e-12);
  EXPECT_NEAR(Value("w").values<double>()[0], (0.5 - expected_z) / ((1 + 3) / 0.5 + 0.25), 1e-12);
  EXPECT_EQ(Value("w").values<double>()[1], 0) << "below l1";
  EXPECT_EQ(MessageOf(apply.Run({{}, {}, {}, Tensor::Scalar<double>(0), gradient})),
            "learning_rate is 0; ApplyFtrl divides by it and needs a positive one");
}

TEST_F(UpdateTest, AdagradAndRMSPropByHand) {
  const Output w = MakeVariable(kFloat64, {1}, "w");
  const Output s = MakeVariable(kFloat64, {1}, "s");
  const Output b = MakeVariable(kFloat64, {1}, "b");
  const Output g = Placeholder(graph_, kFloat64, {1});
  const Tensor rate = Tensor::Scalar<double>(0.1);
  const Tensor three = Tensor::Of<double>({1}, {3});
  const auto reset = [&] {
    Set("w", Tensor::Of<double>({1}, {1}));
    Set("s", Tensor::Of<double>({1}, {16}));
    Set("b", Tensor::Of<double>({1}, {2}));
  };
  reset();
  ASSERT_TRUE(NodeUnderTest(device_, ApplyAdagrad(w, s, Scalar(kFloat64), g, {.epsilon = 1}))
                  .Run({{}, {}, rate, three}, 0)
                  .ok());
  EXPECT_NEAR(Value("w").scalar<double>(), 1 - 0.1 * 3 / (5 + 1), 1e-15);
  reset();
  const double mean = 0.75 * 16 + 0.25 * 9;
  const double step = 3 / (std::sqrt(mean) + 1);
  ASSERT_TRUE(
      NodeUnderTest(device_, ApplyRMSProp(w, s, Scalar(kFloat64), g, {.rho = 0.75, .epsilon = 1}))
          .Run({{}, {}, rate, three}, 0)
          .ok());
  EXPECT_NEAR(Value("w").scalar<double>(), 1 - 0.1 * step, 1e-15);
  reset();
  ASSERT_TRUE(
      NodeUnderTest(device_,
                    ApplyRMSProp(w, s, Scalar(kFloat64), g,
                                 {.rho = 0.75, .epsilon = 1, .momentum = 0.5, .momentum_slot = b}))
          .Run({{}, {}, {}, rate, three}, 0)
          .ok());
  EXPECT_NEAR(Value("b").scalar<double>(), 0.5 * 2 + step, 1e-15);
  EXPECT_NEAR(Value("w").scalar<double>(), 1 - 0.1 * (1 + step), 1e-15);
  EXPECT_THROW(ApplyRMSProp(w, s, Scalar(), g, {.momentum = 0.5}), std::exception);
}

TEST_F(UpdateTest, MistakesAreNamed) {
  const Output w = MakeVariable(kFloat32, {2}, "w");
  const Output a = MakeVariable(kFloat32, {3}, "a");
  const Output g = Placeholder(graph_, kFloat32, {2});
  const auto message = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const std::exception& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_NE(message([&] {
              ApplyGradientDescent(w, 0.1, Placeholder(graph_, kFloat32, {3}));
            }).find("shapes differ: variable is [2], gradient is [3]"),
            std::string::npos);
  EXPECT_NE(message([&] { ApplyMomentum(w, a, 0.1, g); })
                .find("accumulator is float32 [3] but variable is float32 [2]; a slot has the "
                      "type and shape of its variable"),
            std::string::npos);
  EXPECT_NE(message([&] {
              ApplyMomentum(w, w, 0.1, g);
            }).find("variable and accumulator are both \"w\"; they must be different variables"),
            std::string::npos);
  EXPECT_NE(message([&] {
              ApplyGradientDescent(g, 0.1, g);
            }).find("variable must be a Variable, got Placeholder"),
            std::string::npos);
  NodeUnderTest apply(device_, ApplyGradientDescent(w, Scalar(), g));
  const Tensor gradient = Tensor::Of<float>({2}, {1, 1});
  EXPECT_EQ(MessageOf(apply.Run({{}, kRate, gradient})),
            "variable \"w\" has no value yet; call Session::Initialize() or Assign first");
}

}  // namespace
}  // namespace tutti
