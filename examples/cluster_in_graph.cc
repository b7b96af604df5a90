// In-graph replication: one client builds one graph for a whole cluster. The parameters of a linear
// model live on ps 0, each worker computes the gradient of its part of the batch, and the ps task
// sums them up and updates. The client itself computes nothing.
//
//   tutti server --config cluster.toml --job ps --task 0 --coordinator /job:ps/task:0 &
//   tutti server --config cluster.toml --job worker --task 0 --coordinator /job:ps/task:0 &
//   tutti server --config cluster.toml --job worker --task 1 --coordinator /job:ps/task:0 &
//   build/bin/cluster_in_graph tutti://127.0.0.1:2223 2
//
// with a cluster.toml as in docs/cluster.md prints the loss of every tenth step and ends with
// "w is near 3 and b near -1".
#include <tutti/tutti.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace tutti;

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: cluster_in_graph tutti://HOST:PORT WORKERS\n");
    return 2;
  }
  const int workers = std::atoi(argv[2]);
  constexpr int64_t kRows = 64;  // of each worker
  try {
    Graph graph;
    Output w, b;
    {
      DeviceScope on_ps(graph, "/job:ps/task:0");
      w = Variable(graph, Zeros({}), "w");
      b = Variable(graph, Zeros({}), "b");
    }
    const Output x = Placeholder(graph, kFloat32, {workers * kRows}, "x");
    const Output y = Placeholder(graph, kFloat32, {workers * kRows}, "y");
    std::vector<Output> losses, w_gradients, b_gradients;
    for (int i = 0; i < workers; ++i) {
      DeviceScope on_worker(graph, "/job:worker/task:" + std::to_string(i));
      const Output own_x = Slice(x, {i * kRows}, {kRows});
      const Output own_y = Slice(y, {i * kRows}, {kRows});
      const Output error = w * own_x + b - own_y;
      losses.push_back(Mean(error * error));
      const std::vector<Output> gradients = Gradients(losses.back(), {w, b});
      w_gradients.push_back(gradients[0]);
      b_gradients.push_back(gradients[1]);
    }
    const auto mean = [&](const std::vector<Output>& values) {
      Output sum = values[0];
      for (size_t i = 1; i < values.size(); ++i) sum = sum + values[i];
      return sum * (1.0f / float(values.size()));
    };
    Output loss;
    std::vector<const Node*> updates;
    {
      DeviceScope on_ps(graph, "/job:ps/task:0");
      loss = mean(losses);
      updates.push_back(AssignSub(w, mean(w_gradients) * 0.1f).node);
      updates.push_back(AssignSub(b, mean(b_gradients) * 0.1f).node);
    }

    Session session(graph, {.target = argv[1]});
    session.Initialize();
    Tensor inputs(kFloat32, {workers * kRows}), labels(kFloat32, {workers * kRows});
    for (int step = 0; step < 200; ++step) {
      for (int64_t i = 0; i < workers * kRows; ++i) {
        const float value = std::sin(float(step * 1000 + i));
        inputs.data<float>()[i] = value;
        labels.data<float>()[i] = 3 * value - 1;
      }
      const std::vector<Feed> feeds = {{x, inputs}, {y, labels}};
      const Output fetches[] = {loss};
      const float value = session.Run(feeds, fetches, updates)[0].scalar<float>();
      if (step % 10 == 0) std::printf("step %d: loss %.5f\n", step, double(value));
    }
    const float end_w = session.Run(w).scalar<float>(), end_b = session.Run(b).scalar<float>();
    std::printf("w is %s 3 and b %s -1\n", std::abs(end_w - 3) < 0.05f ? "near" : "far from",
                std::abs(end_b + 1) < 0.05f ? "near" : "far from");
  } catch (const Error& error) {
    std::fprintf(stderr, "cluster_in_graph: %s\n", error.what());
    return 1;
  }
}
