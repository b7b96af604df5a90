// A set of graphs that give the same results wherever they run.
//
//   graph_set                  in this process
//   graph_set TARGET TASK...   over the tasks of a cluster, in turns
//
// Prints a line for each graph: its name, and every value to the last bit.
// tests/cluster/same_results.py and tests/netlab/cluster_netlab.py compare the lines.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <future>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

struct Place {
  std::string target;
  std::vector<std::string> tasks;

  // The i-th of them, again and again; "" where there are none.
  std::string operator()(size_t i) const { return tasks.empty() ? "" : tasks[i % tasks.size()]; }
  SessionOptions session() const {
    if (target.empty()) return {.cores_per_device = 1};
    return {.target = target};
  }
};

using Results = std::vector<Tensor>;

Tensor Wave(const Shape& shape, int64_t phase) {
  Tensor tensor(kFloat32, shape);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    tensor.data<float>()[i] = float((i * 31 + phase * 17) % 23) / 23 - 0.4f;
  }
  return tensor;
}

Tensor Labels(int64_t count, int64_t classes) {
  Tensor tensor(kInt64, {count});
  for (int64_t i = 0; i < count; ++i) tensor.data<int64_t>()[i] = i * 7 % classes;
  return tensor;
}

// Losses of five steps, and every variable after them.
Results Train(Graph& graph, const Place& place, const Output& x, const Shape& shape,
              const Output& labels, const Output& loss) {
  const Node* const train = Sgd({.learning_rate = 0.1}).Minimize(loss);
  Session session(graph, place.session());
  session.Initialize();
  Results results;
  for (int64_t step = 0; step < 5; ++step) {
    const std::vector<Feed> feeds = {{x, Wave(shape, step)}, {labels, Labels(shape[0], 4)}};
    const Output fetches[] = {loss};
    const Node* const targets[] = {train};
    results.push_back(session.Run(feeds, fetches, targets)[0]);
  }
  for (const Output& variable : nn::TrainableVariables(graph))
    results.push_back(session.Run(variable));
  return results;
}

Results Mlp(const Place& place) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {8, 20}, "x");
  const Output labels = Placeholder(graph, kInt64, {8}, "labels");
  Output h = x;
  for (size_t layer = 0; layer < 3; ++layer) {
    DeviceScope there(graph, place(layer));
    h = nn::Dense(h, layer == 2 ? 4 : 16, {.activation = layer == 2 ? nn::kLinear : nn::kRelu},
                  "dense" + std::to_string(layer));
  }
  return Train(graph, place, x, {8, 20}, labels, nn::SparseSoftmaxLoss(h, labels));
}

Results Cnn(const Place& place) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {4, 12, 12, 1}, "x");
  const Output labels = Placeholder(graph, kInt64, {4}, "labels");
  Output h = x;
  for (size_t layer = 0; layer < 2; ++layer) {
    DeviceScope there(graph, place(layer));
    h = nn::Conv2d(h, 8, {3, 3}, {.activation = nn::kRelu}, "conv" + std::to_string(layer));
    h = nn::MaxPool(h, {2, 2});
  }
  DeviceScope there(graph, place(2));
  h = nn::Dense(Reshape(h, {4, 72}), 4);
  return Train(graph, place, x, {4, 12, 12, 1}, labels, nn::SparseSoftmaxLoss(h, labels));
}

// x times w, five times, in a loop on one task, and what w contributed.
Results WhileWithGradient(const Place& place) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {3}, "x");
  Output w, product;
  {
    DeviceScope there(graph, place(1));
    w = Variable(graph, Ones({3}), "w") * 1.25f;
    const Output first = Constant(graph, int64_t{0});
    product = While(
        {first, x}, [](std::span<const Output> v) { return Less(v[0], int64_t{5}); },
        [&](std::span<const Output> v) {
          return std::vector{v[0] + int64_t{1}, v[1] * w};
        })[1];
  }
  const Output gradient = Gradients(Sum(product), {w})[0];
  Session session(graph, place.session());
  session.Initialize();
  const std::vector<Feed> feeds = {{x, Wave({3}, 1)}};
  const Output fetches[] = {product, gradient};
  return session.Run(feeds, fetches);
}

// Values made on one task go through a queue on a second to a third.
Results QueueOverTasks(const Place& place) {
  Graph graph;
  Output queue, made, taken;
  const Output x = Placeholder(graph, kFloat32, {2}, "x");
  {
    DeviceScope there(graph, place(0));
    made = x * 2.0f;
  }
  {
    DeviceScope there(graph, place(1));
    queue = FIFOQueue(graph, {{kFloat32, Shape{2}}}, {.capacity = 2}, "queue");
  }
  const Node* const put = Enqueue(queue, {made});
  const Output element = Dequeue(queue)[0];
  {
    DeviceScope there(graph, place(2));
    taken = element + 1.0f;
  }
  Session session(graph, place.session());
  constexpr int kElements = 10;
  auto producer = std::async(std::launch::async, [&] {
    for (int i = 0; i < kElements; ++i) session.RunTargets({{x, Wave({2}, i)}}, {put});
  });
  Results results;
  for (int i = 0; i < kElements; ++i) results.push_back(session.Run(taken));
  producer.get();
  return results;
}

// Two clients at once go in and out of a section that a mutex on another task keeps to one at a
// time: whoever goes in finds nobody there. The results are what each found, and what is left.
Results MutexOverTasks(const Place& place) {
  Graph graph;
  Output inside, mutex, entered;
  {
    DeviceScope there(graph, place(0));
    inside = Variable(graph, Zeros({}), "inside");
  }
  {
    DeviceScope there(graph, place(1));
    mutex = Mutex(graph, "mutex");
  }
  const Output token = MutexAcquire(mutex);
  const Node* release = nullptr;
  {
    ControlScope held(graph, {token.node});
    entered = AssignAdd(inside, Constant(graph, 1.0f));
    // What it finds travels to another task before it goes out.
    Output seen;
    {
      DeviceScope there(graph, place(2));
      seen = entered * 1.0f;
    }
    ControlScope found(graph, {seen.node});
    const Output left = AssignAdd(inside, Constant(graph, -1.0f));
    ControlScope done(graph, {left.node});
    release = MutexRelease(mutex, token);
    entered = seen;
  }
  Session session(graph, place.session());
  session.Initialize();
  const auto run = [&] {
    Results found;
    for (int i = 0; i < 10; ++i) {
      const Output fetches[] = {entered};
      const Node* const targets[] = {release};
      found.push_back(session.Run({}, fetches, targets)[0]);
    }
    return found;
  };
  auto other = std::async(std::launch::async, run);
  Results results = run();
  for (Tensor& found : other.get()) results.push_back(std::move(found));
  for (const Tensor& found : results) {
    if (found.scalar<float>() != 1) {
      throw Error(Code::kInternal, "two clients were in the section of one mutex");
    }
  }
  results.push_back(session.Run(inside));
  return results;
}

// The example of the TensorFlow paper: relu(x W + b).
Results Paper(const Place& place) {
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {2, 784}, "x");
  Output w, b;
  {
    DeviceScope there(graph, place(1));
    w = Variable(graph, RandomUniform({784, 100}, -1, 1), "W");
  }
  {
    DeviceScope there(graph, place(2));
    b = Variable(graph, Zeros({100}), "b");
  }
  const Output relu = Relu(MatMul(x, w) + b);
  Session session(graph, place.session());
  session.Initialize();
  Results results;
  for (int64_t step = 0; step < 3; ++step) {
    results.push_back(session.Run({{x, Wave({2, 784}, step)}}, relu));
  }
  return results;
}

void PrintLine(const char* name, const Results& results) {
  std::printf("%s", name);
  for (const Tensor& tensor : results) {
    for (const float value : tensor.values<float>()) std::printf(" %a", double(value));
  }
  std::printf("\n");
}

int RunSet(int argc, char** argv) {
  const Place place{argc > 1 ? argv[1] : "", {argv + std::min(argc, 2), argv + argc}};
  constexpr std::pair<const char*, Results (*)(const Place&)> kGraphs[] = {
      {"mlp", Mlp},
      {"cnn", Cnn},
      {"while", WhileWithGradient},
      {"queue", QueueOverTasks},
      {"mutex", MutexOverTasks},
      {"paper", Paper}};
  for (const auto& [name, run] : kGraphs) {
    try {
      PrintLine(name, run(place));
    } catch (const Error& error) {
      std::printf("%s failed: %s\n", name, error.what());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::RunSet(argc, argv); }
