// Fits a line to five points by gradient descent, written out.
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti;

int main() {
  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1}, "x");
  Output y = Placeholder(graph, kFloat32, {-1}, "y");
  Output w = Variable(graph, Zeros({}), "w");
  Output b = Variable(graph, Zeros({}), "b");
  Output loss = Mean(Square(w * x + b - y));
  std::vector<Output> gradients = Gradients(loss, {w, b});
  Output new_w = AssignSub(w, 0.1f * gradients[0]);
  Output new_b = AssignSub(b, 0.1f * gradients[1]);

  Session session(graph);
  session.Initialize();
  const Tensor xs = Tensor::Vector<float>({-2, -1, 0, 1, 2});
  const Tensor ys = Tensor::Vector<float>({-7, -4, -1, 2, 5});
  for (int step = 0; step <= 40; ++step) {
    std::vector<Tensor> now = session.Run({{x, xs}, {y, ys}}, {loss, new_w, new_b});
    if (step % 20 > 0) continue;
    std::printf("step %2d: loss %7.4f, w %.3f, b %.3f\n", step, double(now[0].scalar<float>()),
                double(now[1].scalar<float>()), double(now[2].scalar<float>()));
  }
}
