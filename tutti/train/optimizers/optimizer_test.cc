#include "tutti/train/optimizers/optimizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/gather.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/nn/initializers.h"
#include "tutti/nn/norm.h"
#include "tutti/nn/variables.h"
#include "tutti/train/optimizers/optimizers.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

std::vector<float> FloatsOf(const Tensor& tensor) {
  const auto values = tensor.values<float>();
  return {values.begin(), values.end()};
}

class Optimizers : public testing::Test {
 protected:
  static void SetUpTestSuite() { RegisterCpuKernels(); }

  // w after each of three steps on sum(w * g), whose gradient is g.
  static std::vector<float> ThreeSteps(const Optimizer& optimizer) {
    Graph graph;
    const Output w = Variable(graph, Value(Tensor::Vector<float>({1})), "w");
    const Output g = Placeholder(graph, kFloat32, {1}, "g");
    const Node* train = optimizer.Minimize(Sum(Mul(w, g)));
    Session session(graph);
    session.Initialize();
    std::vector<float> values;
    for (const float gradient : {1.0f, -2.0f, 3.0f}) {
      session.RunTargets({{g, Tensor::Vector<float>({gradient})}}, {train});
      values.push_back(session.Run(w).scalar<float>());
    }
    EXPECT_EQ(session.Run(GlobalStep(graph)).scalar<int64_t>(), 3);
    return values;
  }
  // The same by a formula: step(gradient, number of the step) changes w.
  static void ExpectSteps(const Optimizer& optimizer,
                          const std::function<void(double&, double, int)>& step) {
    const std::vector<float> found = ThreeSteps(optimizer);
    double w = 1;
    int count = 0;
    for (const double gradient : {1.0, -2.0, 3.0}) {
      step(w, gradient, ++count);
      EXPECT_NEAR(found[size_t(count - 1)], w, 1e-5 * std::max(1.0, std::abs(w))) << count;
    }
  }

  Graph graph_;
};

TEST_F(Optimizers, Sgd) {
  ExpectSteps(Sgd({.learning_rate = 0.1}), [](double& w, double g, int) { w -= 0.1 * g; });
  ExpectSteps(Sgd({.learning_rate = ExponentialDecay({.initial = 1, .steps = 1, .factor = 0.5})}),
              [](double& w, double g, int t) { w -= std::pow(0.5, t - 1) * g; });
}

TEST_F(Optimizers, MomentumAndNesterov) {
  for (const bool nesterov : {false, true}) {
    double a = 0;
    ExpectSteps(Momentum({.learning_rate = 0.1, .momentum = 0.8, .nesterov = nesterov}),
                [&](double& w, double g, int) {
                  a = 0.8 * a + g;
                  w -= 0.1 * (nesterov ? g + 0.8 * a : a);
                });
  }
}

TEST_F(Optimizers, Adagrad) {
  double s = 0.5;
  ExpectSteps(Adagrad({.learning_rate = 0.1, .initial_sum = 0.5}), [&](double& w, double g, int) {
    s += g * g;
    w -= 0.1 * g / (std::sqrt(s) + 1e-10);
  });
}

TEST_F(Optimizers, RMSProp) {
  for (const double momentum : {0.0, 0.9}) {
    double s = 0;
    double b = 0;
    ExpectSteps(RMSProp({.learning_rate = 0.1, .rho = 0.7, .momentum = momentum}),
                [&](double& w, double g, int) {
                  s = 0.7 * s + 0.3 * g * g;
                  b = momentum * b + g / (std::sqrt(s) + 1e-8);
                  w -= 0.1 * b;
                });
  }
}

TEST_F(Optimizers, AdamAndAdamW) {
  for (const double decay : {0.0, 0.1}) {
    double m = 0;
    double v = 0;
    const auto step = [&](double& w, double g, int t) {
      w -= 0.1 * decay * w;
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      w -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
    };
    if (decay == 0) ExpectSteps(Adam({.learning_rate = 0.1}), step);
    m = v = 0;
    ExpectSteps(AdamW({.learning_rate = 0.1, .weight_decay = decay}), step);
  }
}

TEST_F(Optimizers, Ftrl) {
  double n = 0;
  double z = 0;
  ExpectSteps(Ftrl({.learning_rate = 0.5, .l1 = 0.1, .l2 = 0.2}), [&](double& w, double g, int) {
    const double grown = n + g * g;
    z += g - (std::sqrt(grown) - std::sqrt(n)) / 0.5 * w;
    n = grown;
    w = std::abs(z) <= 0.1 ? 0 : ((z > 0 ? 0.1 : -0.1) - z) / ((1 + std::sqrt(n)) / 0.5 + 0.2);
  });
}

TEST_F(Optimizers, SlotsAreVariablesUnderTheVariablesName) {
  const Output x = Placeholder(graph_, kFloat32, {}, "x");
  Output w;
  const Node* train;
  {
    NameScope scope(graph_, "layer");
    w = Variable(graph_, Ones({}), "w");
    train = Adam().Minimize(Mul(w, x));
  }
  std::vector<std::string> names;
  for (const Output& variable : nn::Variables(graph_)) names.push_back(variable.name());
  EXPECT_THAT(names, UnorderedElementsAre("layer/w", "layer/w/m", "layer/w/v", "global_step"));
  EXPECT_THAT(nn::TrainableVariables(graph_), ElementsAre(w));
  EXPECT_EQ(train->op(), "NoOp");
  // A second update takes the same slots.
  Adam().Minimize(Mul(w, x));
  EXPECT_EQ(nn::Variables(graph_).size(), 4u);
}

TEST_F(Optimizers, RowsStayRowsAndOnlyTheyChange) {
  std::vector<std::unique_ptr<Optimizer>> all;
  all.push_back(std::make_unique<Sgd>());
  all.push_back(std::make_unique<Momentum>());
  all.push_back(std::make_unique<Adagrad>());
  all.push_back(std::make_unique<RMSProp>());
  all.push_back(std::make_unique<Adam>());
  all.push_back(std::make_unique<AdamW>());
  all.push_back(std::make_unique<Ftrl>());
  for (const auto& optimizer : all) {
    Graph graph;
    const Output table = Variable(graph, Ones({4, 2}), "table");
    const Output ids = Constant(graph, Tensor::Vector<int32_t>({2, 0, 2}));
    const auto list = optimizer->Gradients(Sum(Gather(table, ids)));
    ASSERT_EQ(list.size(), 1u);
    EXPECT_TRUE(list[0].gradient.sparse());
    const Node* train = optimizer->Apply(list);
    Session session(graph);
    session.Initialize();
    session.RunTargets({}, {train});
    const auto values = FloatsOf(session.Run(table));
    EXPECT_EQ(values[2], 1);
    EXPECT_EQ(values[3], 1);
    EXPECT_EQ(values[6], 1);
    EXPECT_LT(values[0], 1);
    EXPECT_LT(values[4], 1);
  }
}

TEST_F(Optimizers, ClippingScalesTheWholeListToTheNorm) {
  const Output a = Variable(graph_, Zeros({2}), "a");
  const Output b = Variable(graph_, Zeros({3, 1}), "b");
  const Output ids = Constant(graph_, Tensor::Vector<int64_t>({1, 1}));
  // The gradients: (3, 4) and, for row 1 of b, twice 6: norm 13.
  const Output coefficients = Constant(graph_, Tensor::Vector<float>({3, 4}));
  const Output loss = Add(Sum(Mul(a, coefficients)), Mul(Sum(Gather(b, ids)), 6.0f));
  const Sgd sgd({.learning_rate = 1.0});
  Output norm;
  const auto list = ClipByGlobalNorm(sgd.Gradients(loss), 6.5, &norm);
  EXPECT_TRUE(list[1].gradient.sparse());
  const Output after = GlobalNorm(list);
  const Node* train = sgd.Apply(list);
  Session session(graph_);
  session.Initialize();
  EXPECT_FLOAT_EQ(session.Run(norm).scalar<float>(), 13);
  EXPECT_FLOAT_EQ(session.Run(after).scalar<float>(), 6.5);
  session.RunTargets({}, {train});
  EXPECT_THAT(FloatsOf(session.Run(a)), ElementsAre(-1.5, -2));
  EXPECT_THAT(FloatsOf(session.Run(b)), ElementsAre(0, -6, 0));
}

TEST_F(Optimizers, ClippingLeavesSmallGradientsAlone) {
  const Output w = Variable(graph_, Zeros({1}), "w");
  const Sgd sgd({.learning_rate = 1.0});
  const Node* train = sgd.Apply(ClipByGlobalNorm(sgd.Gradients(Sum(Mul(w, 0.5f))), 10));
  Session session(graph_);
  session.Initialize();
  session.RunTargets({}, {train});
  EXPECT_THAT(FloatsOf(session.Run(w)), ElementsAre(-0.5));
  EXPECT_THROW(ClipByGlobalNorm(sgd.Gradients(Sum(w)), 0), Error);
}

TEST_F(Optimizers, ALossInTheSameRunSeesTheValueFromBefore) {
  const Output w = Variable(graph_, Ones({1}), "w");
  const Output loss = Sum(Square(w));
  const Node* train = Sgd({.learning_rate = 0.25}).Minimize(loss);
  Session session(graph_);
  session.Initialize();
  EXPECT_EQ(session.Run({}, {loss}, {train})[0].scalar<float>(), 1);
  EXPECT_EQ(session.Run({}, {loss}, {train})[0].scalar<float>(), 0.25);
}

TEST_F(Optimizers, MovingAveragesOfTheLayersInvolvedAreUpdated) {
  const Output x = Placeholder(graph_, kFloat32, {-1, 1}, "x");
  const Output loss = Sum(Square(nn::BatchNorm(x, {.momentum = 0.75}, "used")));
  nn::BatchNorm(x, {}, "unused");
  const Node* train = Sgd().Minimize(loss);
  Session session(graph_);
  session.Initialize();
  session.RunTargets({{x, Tensor::Of<float>({2, 1}, {2, 6})}}, {train});
  EXPECT_FLOAT_EQ(session.Run(graph_.FindOutput("used/moving_mean")).scalar<float>(), 1);
  EXPECT_FLOAT_EQ(session.Run(graph_.FindOutput("used/moving_variance")).scalar<float>(), 1.75);
  EXPECT_FLOAT_EQ(session.Run(graph_.FindOutput("unused/moving_mean")).scalar<float>(), 0);
}

TEST_F(Optimizers, SaysWhatIsWrong) {
  const auto error_of = [](const std::function<void()>& act) -> std::string {
    try {
      act();
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  const Output w = Variable(graph_, Ones({2}), "w");
  const Output x = Placeholder(graph_, kFloat32, {}, "x");
  EXPECT_THAT(error_of([&] { Sgd().Minimize(Mul(w, 2.0f)); }),
              HasSubstr("is [2]; expected a scalar, such as its Mean"));
  EXPECT_THAT(error_of([&] { Sgd().Minimize(Mul(x, 2.0f)); }),
              HasSubstr("depends on none of the 1 variables"));
  EXPECT_THAT(error_of([&] { Sgd().Apply({}); }), HasSubstr("the list is empty"));
  EXPECT_THAT(error_of([] { Adam({.beta1 = 1}); }),
              HasSubstr("Adam: beta1 is 1; expected at least 0 and below 1"));
  EXPECT_THAT(error_of([] { Momentum({.momentum = -0.1}); }), HasSubstr("momentum is -0.1"));
  for (const double rate : {-1.0, std::nan(""), HUGE_VAL, 1e300}) {
    EXPECT_THAT(error_of([&] { Sgd({.learning_rate = rate}); }), HasSubstr("from 0 on"));
    EXPECT_THAT(error_of([&] { CosineDecay({.initial = rate}); }), HasSubstr("from 0 on"));
  }
  EXPECT_THAT(error_of([] { Adam({.epsilon = HUGE_VAL}); }), HasSubstr("epsilon is inf"));
  const std::vector<Output> twice = {w, w};
  EXPECT_THAT(error_of([&] { Sgd().Minimize(Sum(w), twice); }), HasSubstr("Variable \"w\""));
  EXPECT_THAT(error_of([&] { Sgd().Minimize(Sum(w), twice); }), HasSubstr("is given twice"));
  const auto list = Sgd().Gradients(Sum(w));
  EXPECT_THAT(error_of([&] { ClipByGlobalNorm(list, HUGE_VAL); }), HasSubstr("the norm is inf"));
  Variable(graph_, Zeros({}), "w/momentum");
  EXPECT_THAT(error_of([&] { Momentum().Minimize(Sum(w)); }),
              HasSubstr("needs the name \"w/momentum\" for a Variable of float32 [2]"));
}

}  // namespace
}  // namespace tutti
