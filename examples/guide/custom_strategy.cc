// A strategy of the program's own: one process whose updates follow the signs of the gradients.
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti;

class SignStrategy : public Strategy {
 public:
  std::string_view name() const override { return "signs"; }
  Output Differentiated(const WorkerStep& step) const override { return step.loss; }
  std::vector<GradientAndVariable> Aggregate(std::span<const GradientAndVariable> list,
                                             const WorkerStep& step,
                                             JointStep* joint) const override {
    *joint = {.loss = step.loss, .samples = step.samples, .stop = step.stop};
    std::vector<GradientAndVariable> signs(list.begin(), list.end());
    for (GradientAndVariable& entry : signs) {
      entry.gradient = {.dense = Sign(Densify(entry.gradient, entry.variable))};
    }
    return signs;
  }
};

ModelSpec Line(const Features& batch, Mode mode) {
  Output y = nn::Dense(batch["x"], 1, {.weights = Zeros}, "line");
  return RegressionHead().Spec(y, batch["y"], Sgd({.learning_rate = 0.01}), mode);
}

int main(int argc, char** argv) {
  RegisterStrategy({.name = "signs",
                    .summary = "one process, by the signs of gradients",
                    .one_trainer = true,
                    .make = [](const Launch&) { return std::make_shared<SignStrategy>(); }});
  const MainOptions options = {.defaults = {.max_steps = 100, .strategy = "signs", .quiet = true}};
  return Main(argc, argv, options, [](const RunConfig& config) {
    const Tensor x = Tensor::Of<float>({4, 1}, {-1, 0, 1, 2});
    const Tensor y = Tensor::Of<float>({4, 1}, {-4, -1, 2, 5});
    Estimator estimator(Line, config);
    estimator.Train({.input = [&] { return Dataset::FromTensors({{"x", x}, {"y", y}}).Repeat(); }});
    const float w = estimator.Variables().at("line/weights").scalar<float>();
    std::printf("after 100 steps with a rate of 0.01, w is %.2f\n", double(w));
  });
}
