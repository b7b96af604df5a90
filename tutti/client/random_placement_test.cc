// Random graphs, placed at random over 1 to 4 devices, give what they give on one device, forward
// and backward. TUTTI_SWEEP=long runs a thousand of them.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "tutti/autodiff/gradients.h"
#include "tutti/base/error.h"
#include "tutti/client/session.h"
#include "tutti/compile/extract.h"
#include "tutti/compile/partition.h"
#include "tutti/compile/place.h"
#include "tutti/graph/build.h"
#include "tutti/graph/op_def.h"
#include "tutti/graph/ops/activation.h"
#include "tutti/graph/ops/arrange.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/elementwise.h"
#include "tutti/graph/ops/matmul.h"
#include "tutti/graph/ops/queue.h"
#include "tutti/graph/ops/reduce.h"
#include "tutti/graph/ops/shape.h"
#include "tutti/graph/ops/source.h"
#include "tutti/graph/ops/state.h"
#include "tutti/kernels/register.h"
#include "tutti/testing/sweep.h"

namespace tutti {
namespace {

constexpr int64_t kSide = 4;
constexpr int kSteps = 2;

// A graph of matrices with variables, a queue, control edges, If and While. The seed gives the
// graph; `placement`, if there is one, the device of each node, of so many.
class RandomModel {
 public:
  RandomModel(uint32_t seed, int devices)
      : random_(seed), where_(seed ^ 0x5eed), devices_(devices) {
    x_ = At([&] { return Placeholder(graph_, kFloat32, {kSide, kSide}, "x"); });
    p_ = At([&] { return Placeholder(graph_, kBool, Shape{}, "p"); });
    values_ = {x_};
    for (int i = 0; i < 2 + Below(2); ++i) AddVariable(i);
    if (Below(2) == 0) AddQueue();
    const int count = 5 + Below(20);
    for (int i = 0; i < count; ++i) AddNode();
    const Output loss = At([&] { return Mean(Tanh(values_.back())); });
    fetches = {loss, Any(), Any()};
    const std::vector<Output> gradients = Gradients(loss, variables_);
    for (size_t i = 0; i < variables_.size(); ++i) {
      fetches.push_back(gradients[i]);
      // The update belongs to its variable, whatever scope it is built in.
      const ColocateWith beside(variables_[i]);
      targets.push_back(AssignSub(variables_[i], gradients[i] * 0.5f).node);
    }
  }

  // The values of all fetches of a few steps.
  std::vector<Tensor> Run(const SessionOptions& options) const {
    Session session(graph_, options);
    session.Initialize();
    for (const Node* filling : fillings_) session.Run({}, {}, std::span(&filling, 1));
    std::vector<Tensor> all;
    for (int step = 0; step < kSteps; ++step) {
      Tensor value(kFloat32, {kSide, kSide});
      for (int i = 0; float& v : value.values<float>()) v = std::sin(float(step * 100 + i++));
      const Feed feeds[] = {{x_, value}, {p_, Tensor::Scalar(step % 2 == 0)}};
      const std::vector<Tensor> results =
          session.Run(feeds, fetches, targets, {.timeout = std::chrono::seconds(60)});
      all.insert(all.end(), results.begin(), results.end());
    }
    return all;
  }

  StepRequest Request() const {
    StepRequest request;
    request.feeds = {{x_, {kFloat32, {kSide, kSide}}}, {p_, {kBool, Shape{}}}};
    request.fetches = fetches;
    request.targets = targets;
    return request;
  }
  const Graph& graph() const { return graph_; }

  std::vector<Output> fetches;
  std::vector<const Node*> targets;

 private:
  int Below(int limit) { return int(random_() % uint32_t(limit)); }
  Output Any() { return values_[size_t(Below(int(values_.size())))]; }

  // What `build` gives, on a device that the second source of chance names. It is asked as often
  // for one device as for many, so that graphs of one seed are the same.
  Output At(const std::function<Output()>& build) {
    const int device = int(where_() % 4);
    if (devices_ == 0 || device >= devices_) return build();
    const DeviceScope scope(graph_, "/cpu:" + std::to_string(device));
    return build();
  }

  void AddVariable(int number) {
    const Shape shape = {kSide, kSide};
    variables_.push_back(At([&] {
      return Variable(graph_,
                      {kFloat32, shape,
                       [=](Graph& g) {
                         Tensor value(kFloat32, shape);
                         for (int i = number; float& v : value.values<float>()) {
                           v = float(i++ % 5) / 8;
                         }
                         return Constant(g, value);
                       }},
                      "v" + std::to_string(number));
    }));
    values_.push_back(variables_.back());
  }

  // What a step takes from the queue was put there before it; it puts something back.
  void AddQueue() {
    const Output queue = At([&] {
      return FIFOQueue(graph_, {{kFloat32, {kSide, kSide}}}, {.capacity = 8});
    });
    Tensor value(kFloat32, {kSide, kSide});
    for (int i = 0; float& v : value.values<float>()) v = float(i++) / 16;
    const Output first = Constant(graph_, value);
    fillings_.push_back(Enqueue(queue, {first}));
    values_.push_back(Dequeue(queue)[0]);
    targets.push_back(Enqueue(queue, {At([&] { return Tanh(values_.back()); })}));
  }

  void AddNode() {
    std::vector<const Node*> before;
    // A fed placeholder does not run, so nothing can run after it.
    if (Below(5) == 0) before.push_back(Any().node);
    std::erase(before, x_.node);
    const ControlScope control(graph_, before);
    values_.push_back(At([&]() -> Output {
      const Output a = Any(), b = Any();
      switch (Below(12)) {
        case 0:
          return MatMul(a, b);
        case 1:
          return Add(a, b);
        case 2:
          return Mul(a, b);
        case 3:
          return Sub(a, b);
        case 4:
          return Tanh(a);
        case 5:
          return Relu(a);
        case 6:
          return Transpose(a, {1, 0});
        case 7:
          return Reshape(Reshape(a, {kSide * kSide}), {kSide, kSide});
        case 8:
          return Mul(a, Constant(graph_, Tensor::Scalar(0.25f)));
        case 9:
          return Sigmoid(Add(a, b));
        case 10:
          return If(
              p_, [&] { return std::vector{Tanh(a)}; }, [&] { return std::vector{Mul(b, b)}; })[0];
        default:
          return While(
              {Constant(graph_, Tensor::Scalar(int32_t{0})), a},
              [](std::span<const Output> v) { return Less(v[0], 3); },
              [](std::span<const Output> v) {
                return std::vector<Output>{v[0] + 1, Tanh(v[1])};
              })[1];
      }
    }));
  }

  Graph graph_;
  std::mt19937 random_, where_;
  const int devices_;
  Output x_, p_;
  std::vector<Output> values_, variables_;
  std::vector<const Node*> fillings_;
};

// Passes fuse and reorder, and so round differently, but nothing else.
void ExpectSameButRounding(const std::vector<Tensor>& got, const std::vector<Tensor>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t k = 0; k < got.size(); ++k) {
    ASSERT_EQ(got[k].shape(), expected[k].shape()) << "fetch " << k;
    for (int64_t e = 0; e < expected[k].elements(); ++e) {
      const float want = expected[k].data<float>()[e], have = got[k].data<float>()[e];
      ASSERT_NEAR(have, want, 1e-4 * std::max(1.0f, std::abs(want)))
          << "fetch " << k << " element " << e;
    }
  }
}

class RandomPlacementTest : public ::testing::Test {
 protected:
  RandomPlacementTest() { RegisterCpuKernels(); }
};

TEST_F(RandomPlacementTest, AnyPlacementGivesWhatOneDeviceGives) {
  const int graphs = testing::IsLongSweep() ? 1000 : 40;
  // The same few in every run; a long sweep takes others each time.
  const uint32_t first = testing::IsLongSweep() ? uint32_t(testing::SweepSeed()) : 1000;
  for (int i = 0; i < graphs; ++i) {
    const uint32_t seed = first + uint32_t(i);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomModel plain(seed, 0);
    const int devices = 1 + int(seed % 4);
    const RandomModel placed(seed, devices);
    // By scopes, and the rest by the first device, or by the cost model. Without passes, which fuse
    // what lies on one device, all bits are the same.
    const std::vector<Tensor> expected = plain.Run({.cores_per_device = 1, .optimize = false});
    for (const char* method : {"manual", seed % 8 < 4 ? "greedy" : "search"}) {
      SCOPED_TRACE(method);
      const std::vector<Tensor> got = placed.Run(
          {.devices = devices, .cores_per_device = 1, .optimize = false, .placement = method});
      ASSERT_EQ(got.size(), expected.size());
      for (size_t k = 0; k < got.size(); ++k) {
        ASSERT_TRUE(got[k].BitwiseEquals(expected[k])) << "fetch " << k;
      }
      ASSERT_NO_FATAL_FAILURE(ExpectSameButRounding(
          placed.Run({.devices = devices, .cores_per_device = 1, .placement = method}), expected))
          << "with passes";
    }
  }
}

TEST_F(RandomPlacementTest, PassesChangeNothingButRounding) {
  const int graphs = testing::IsLongSweep() ? 5000 : 300;
  const uint32_t first = testing::IsLongSweep() ? uint32_t(testing::SweepSeed()) : 1;
  for (int i = 0; i < graphs; ++i) {
    const uint32_t seed = first + uint32_t(i);
    SCOPED_TRACE(fmt::format("seed {}", seed));
    const RandomModel model(seed, 0);
    const std::vector<Tensor> expected = model.Run({.cores_per_device = 1, .optimize = false});
    ASSERT_NO_FATAL_FAILURE(ExpectSameButRounding(model.Run({.cores_per_device = 1}), expected));
  }
}

// The parts without one of their transfers, or with one that goes astray, are no step.
TEST_F(RandomPlacementTest, AnEdgeWithoutItsSendIsCaught) {
  int transfers = 0;
  for (uint32_t seed = 1; seed <= 30; ++seed) {
    SCOPED_TRACE(seed);
    const RandomModel model(seed, 4);
    std::vector<DeviceInfo> devices;
    for (int d = 0; d < 4; ++d) {
      devices.push_back({.name = fmt::format("/job:local/task:0/cpu:{}", d), .type = "cpu"});
    }
    const auto program = Extract(model.graph(), model.Request());
    ASSERT_TRUE(program.ok()) << program.status();
    const auto placed = Place(*program, devices);
    ASSERT_TRUE(placed.ok()) << placed.status();
    const auto parts = CutByDevice(*placed, devices);
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_TRUE(CheckTransfers(*parts).ok());
    for (size_t at = 0; at < parts->size(); ++at) {
      for (const auto& node : (*parts)[at].program.graph->nodes()) {
        if (!node->def().transfer) continue;
        ++transfers;
        // The same parts, the one without the node.
        std::vector<Partition> mutated;
        for (size_t other = 0; other < parts->size(); ++other) {
          Partition& copy = mutated.emplace_back();
          copy.device = (*parts)[other].device;
          for (const auto& kept : (*parts)[other].program.graph->nodes()) {
            if (!kept->def().transfer || kept == node) continue;
            NodeSpec spec;
            spec.op = kept->op();
            spec.name = kept->name();
            spec.attrs = kept->attrs();
            if (kept->op() == "Send") {
              NodeSpec value;
              value.op = "Placeholder";
              value.attrs = {{"dtype", kept->input(0).dtype()}, {"shape", kept->input(0).shape()}};
              const auto source = AddNode(*copy.program.graph, std::move(value));
              ASSERT_TRUE(source.ok()) << source.status();
              spec.inputs = {(*source)->output()};
            }
            ASSERT_TRUE(AddNode(*copy.program.graph, std::move(spec)).ok());
          }
        }
        const absl::Status status = CheckTransfers(mutated);
        EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
        EXPECT_THAT(std::string(MessageOf(status)),
                    ::testing::HasSubstr(node->attr<std::string>("key")));
      }
    }
  }
  EXPECT_GT(transfers, 100);
}

}  // namespace
}  // namespace tutti
