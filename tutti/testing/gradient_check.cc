#include "tutti/testing/gradient_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tutti/autodiff/gradients.h"
#include "tutti/graph/ops/source.h"
#include "tutti/testing/elements.h"
#include "tutti/testing/magnitude.h"

namespace tutti::testing {
namespace {

// How many roundings of float64 the values that differences are taken of may have gone through.
constexpr double kRoundings = 64;
// Differences of fourth order are off by step^4 / 30 of the fifth derivative. Where the first one
// is not zero that is lost beside it; but of products with two zeros among their factors it is
// zero, and the fifth derivative of 30 factors of about 1 reaches some thousands.
constexpr double kFifthDerivative = 3000;

std::string IndexOf(const Shape& shape, int64_t flat) {
  std::vector<int64_t> index(size_t(shape.rank()));
  for (int i = shape.rank() - 1; i >= 0; --i) {
    index[size_t(i)] = flat % shape.dim(i);
    flat /= shape.dim(i);
  }
  std::string text;
  for (const int64_t i : index) text += fmt::format("{}{}", text.empty() ? "" : ", ", i);
  return "[" + text + "]";
}

// The gradients as outputs, and where the vectors that arrive at the ys are fed.
struct GradientGraph {
  std::vector<Output> arriving;
  std::vector<Output> gradients;
};

absl::StatusOr<GradientGraph> BuildGradients(std::span<const Output> ys,
                                             std::span<const Output> xs) {
  try {
    GradientGraph built;
    for (const Output& y : ys) {
      built.arriving.push_back(Placeholder(y.graph(), y.dtype(), y.shape()));
    }
    built.gradients = Gradients(ys, xs, {.initial = built.arriving});
    return built;
  } catch (...) {
    return StatusFromCurrentException();
  }
}

// The function whose gradient is checked: the sum over all ys of their products with fixed vectors.
class Projection {
 public:
  Projection(std::span<const Output> ys, const Feeds& feeds, std::vector<Tensor> vectors)
      : runner_(KernelChoice::kReference), ys_(ys), feeds_(feeds), vectors_(std::move(vectors)) {}

  absl::StatusOr<double> At(Output x, const Tensor& value) {
    Feeds feeds = feeds_;
    feeds[x] = value;
    runner_.set_random_step(0);
    TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> results, runner_.Run(feeds, ys_));
    double sum = 0;
    magnitude_ = 0;
    for (size_t k = 0; k < results.size(); ++k) {
      for (int64_t i = 0; i < results[k].elements(); ++i) {
        const double term = results[k].data<double>()[i] * vectors_[k].data<double>()[i];
        sum += term;
        magnitude_ += std::abs(term);
      }
    }
    return sum;
  }
  // The sum of the sizes of what the last At added up.
  double magnitude() const { return magnitude_; }

  // d/dt of At(x, value + t * direction) at t = 0.
  absl::StatusOr<double> Derivative(Output x, const std::vector<double>& direction, double step) {
    double sum = 0;
    for (const auto& [times, weight] : {std::pair{-2, 1.0}, {-1, -8.0}, {1, 8.0}, {2, -1.0}}) {
      Tensor moved = feeds_.at(x).Clone();
      for (int64_t i = 0; i < moved.elements(); ++i) {
        moved.data<double>()[i] += times * step * direction[size_t(i)];
      }
      TUTTI_ASSIGN_OR_RETURN(const double value, At(x, moved));
      sum += weight * value;
    }
    return sum / (12 * step);
  }

 private:
  KernelRunner runner_;
  std::span<const Output> ys_;
  const Feeds& feeds_;
  std::vector<Tensor> vectors_;
  double magnitude_ = 0;
};

// The directions to look along: single elements (`place` says which), then dense ones.
struct Direction {
  std::vector<double> vector;
  int64_t place = -1;
};

std::vector<Direction> ChooseDirections(int64_t elements, Random& random,
                                        const GradientCheckOptions& options) {
  std::vector<Direction> directions;
  const auto add_element = [&](int64_t i) {
    Direction direction{std::vector<double>(size_t(elements), 0.0), i};
    direction.vector[size_t(i)] = 1;
    directions.push_back(std::move(direction));
  };
  if (elements <= options.every_element_up_to) {
    for (int64_t i = 0; i < elements; ++i) add_element(i);
    return directions;
  }
  for (int k = 0; k < options.directions; ++k) {
    add_element(random.Integer(0, elements - 1));
    Direction dense{std::vector<double>(size_t(elements)), -1};
    for (double& value : dense.vector) value = random.Uniform();
    directions.push_back(std::move(dense));
  }
  return directions;
}

}  // namespace

absl::Status CompareTensors(const Tensor& actual, const Tensor& expected, double tolerance,
                            std::span<const double> magnitudes) {
  if (actual.dtype() != expected.dtype() || !(actual.shape() == expected.shape())) {
    return Internal("got {} {}, expected {} {}", NameOf(actual.dtype()), actual.shape().ToString(),
                    NameOf(expected.dtype()), expected.shape().ToString());
  }
  if (!IsFloating(expected.dtype())) tolerance = 0;
  double largest = 0;
  for (int64_t i = 0; i < expected.elements() && magnitudes.empty(); ++i) {
    const double value = std::abs(ElementOf(expected, i));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  double worst = 0;  // beyond what is allowed
  double allowed_there = 0;
  int64_t place = -1;
  for (int64_t i = 0; i < expected.elements(); ++i) {
    const double a = ElementOf(actual, i);
    const double e = ElementOf(expected, i);
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    const double difference = std::isfinite(a) && std::isfinite(e) ? std::abs(a - e) : INFINITY;
    const double allowed = tolerance * (magnitudes.empty() ? largest : magnitudes[size_t(i)]);
    if (difference - allowed > worst) {
      worst = difference - allowed;
      allowed_there = allowed;
      place = i;
    }
  }
  if (place < 0) return absl::OkStatus();
  return Internal("element {} is {}, expected {} (of {} {}; allowed difference {})",
                  IndexOf(expected.shape(), place), ElementOf(actual, place),
                  ElementOf(expected, place), NameOf(expected.dtype()), expected.shape().ToString(),
                  allowed_there);
}

absl::Status CheckGradient(std::span<const Output> ys, std::span<const Output> xs,
                           const Feeds& feeds, Random& random,
                           const GradientCheckOptions& options) {
  KernelRunner runner(KernelChoice::kReference);
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> values, runner.Run(feeds, ys));
  std::vector<Tensor> vectors;
  for (const Tensor& value : values) {
    vectors.push_back(RandomTensor(random, kFloat64, value.shape()));
  }
  TUTTI_ASSIGN_OR_RETURN(const GradientGraph graph, BuildGradients(ys, xs));
  Feeds all = feeds;
  for (size_t k = 0; k < ys.size(); ++k) all[graph.arriving[k]] = vectors[k];
  runner.set_random_step(0);
  const auto gradients = runner.Run(all, graph.gradients);
  if (!gradients.ok()) return WithPrefix(gradients.status(), "computing the gradient: ");

  Projection projection(ys, feeds, vectors);
  const double truncation = kFifthDerivative / 30 * std::pow(options.step, 4);
  for (size_t k = 0; k < xs.size(); ++k) {
    const Tensor& gradient = (*gradients)[k];
    const Tensor& at = feeds.at(xs[k]);
    if (gradient.dtype() != kFloat64 || !(gradient.shape() == at.shape())) {
      return Internal("the gradient of {} is {} {}, its value is float64 {}", xs[k].name(),
                      NameOf(gradient.dtype()), gradient.shape().ToString(), at.shape().ToString());
    }
    for (const Direction& direction : ChooseDirections(at.elements(), random, options)) {
      double analytic = 0;
      double terms = 0;  // what it is the sum of
      for (int64_t i = 0; i < at.elements(); ++i) {
        if (direction.vector[size_t(i)] == 0) continue;
        const double term = gradient.data<double>()[i] * direction.vector[size_t(i)];
        analytic += term;
        terms += std::abs(term);
      }
      TUTTI_ASSIGN_OR_RETURN(const double numeric,
                             projection.Derivative(xs[k], direction.vector, options.step));
      const double size = std::max(projection.magnitude(), options.least_magnitude);
      const double allowed =
          options.tolerance * std::abs(numeric) + truncation +
          kRoundings * std::numeric_limits<double>::epsilon() * (size / options.step + terms);
      if (std::abs(analytic - numeric) <= allowed) continue;
      return Internal(
          "the gradient of {} {} is {}, finite differences give {} (value float64 {}, allowed "
          "difference {})",
          xs[k].name(),
          direction.place < 0 ? "along a random direction"
                              : "at " + IndexOf(at.shape(), direction.place),
          analytic, numeric, at.shape().ToString(), allowed);
    }
  }
  return absl::OkStatus();
}

absl::Status CompareGradients(KernelRunner& actual, KernelRunner& expected,
                              std::span<const Output> ys, std::span<const Output> xs,
                              const Feeds& feeds, Random& random, double tolerance, double least) {
  expected.set_random_step(0);
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> values, expected.Run(feeds, ys));
  TUTTI_ASSIGN_OR_RETURN(const GradientGraph graph, BuildGradients(ys, xs));
  Feeds all = feeds;
  for (size_t k = 0; k < ys.size(); ++k) {
    all[graph.arriving[k]] = RandomTensor(random, ys[k].dtype(), values[k].shape());
  }
  actual.set_random_step(0);
  expected.set_random_step(0);
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> wanted, expected.Run(all, graph.gradients));
  TUTTI_ASSIGN_OR_RETURN(const std::vector<Tensor> got, actual.Run(all, graph.gradients));
  TUTTI_ASSIGN_OR_RETURN(auto magnitudes,
                         MagnitudesOf(expected, all, graph.gradients, {}, wanted, random));
  for (size_t k = 0; k < xs.size(); ++k) {
    for (double& magnitude : magnitudes[k]) magnitude = std::max(magnitude, least);
    if (const absl::Status status = CompareTensors(got[k], wanted[k], tolerance, magnitudes[k]);
        !status.ok()) {
      return WithPrefix(status, fmt::format("the gradient of {}: ", xs[k].name()));
    }
  }
  return absl::OkStatus();
}

}  // namespace tutti::testing
