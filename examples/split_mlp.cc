// Model parallelism: an MLP whose layers live on two tasks, because neither may hold all of it. The
// tasks say how much memory placement may give their devices; the client asks for no device at all.
//
//   tutti server --config cluster.toml --job worker --task 0 --device-memory 5MB &
//   tutti server --config cluster.toml --job worker --task 1 --device-memory 5MB &
//   build/bin/split_mlp tutti://127.0.0.1:2223
//
// with a cluster.toml as in docs/placement.md prints the loss of every tenth step, where each
// variable lives, and ends with "the layers live on 2 tasks". Without the limits they live where
// the step is predicted to be shortest, which depends on the link between the tasks.
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <set>
#include <string>
#include <vector>

using namespace tutti;

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: split_mlp tutti://HOST:PORT\n");
    return 2;
  }
  constexpr int64_t kRows = 32, kInputs = 256, kWidth = 512;
  try {
    Graph graph;
    const Output x = Placeholder(graph, kFloat32, {kRows, kInputs}, "x");
    const Output y = Placeholder(graph, kFloat32, {kRows, 1}, "y");
    Output h = x;
    for (int i = 0; i < 3; ++i) h = nn::Dense(h, kWidth, {.activation = nn::kRelu});
    const Output loss = Mean(Square(nn::Dense(h, 1) - y));
    const Node* const train = Sgd({.learning_rate = 0.01}).Minimize(loss);

    Session session(graph, {.target = argv[1], .placement = "search"});
    session.Initialize();
    Tensor inputs(kFloat32, {kRows, kInputs}), labels(kFloat32, {kRows, 1});
    for (int step = 0; step < 50; ++step) {
      for (int64_t row = 0; row < kRows; ++row) {
        float sum = 0;
        for (int64_t i = 0; i < kInputs; ++i) {
          const float value = std::sin(float(step * 131 + row * 17 + i));
          inputs.data<float>()[row * kInputs + i] = value;
          sum += i % 3 == 0 ? value : 0;
        }
        labels.data<float>()[row] = sum;
      }
      const std::vector<Feed> feeds = {{x, inputs}, {y, labels}};
      const float value =
          session.Run(feeds, std::span(&loss, 1), std::span(&train, 1))[0].scalar<float>();
      if (step % 10 == 0) std::printf("step %d: loss %.5f\n", step, double(value));
    }
    std::set<std::string> tasks;
    for (const PlacementReport::NodeLine& node : session.Explain().nodes) {
      if (node.op != "Variable") continue;
      std::printf("%-24s on %s\n", node.name.c_str(), node.device.c_str());
      tasks.insert(node.device.substr(0, node.device.rfind('/')));
    }
    std::printf("the layers live on %zu task%s\n", tasks.size(), tasks.size() == 1 ? "" : "s");
  } catch (const Error& error) {
    std::fprintf(stderr, "split_mlp: %s\n", error.what());
    return 1;
  }
}
