// Builds a small graph and runs it, with nothing but what an installed Tutti offers.
#include <tutti/tutti.h>

#include <iostream>

int main() {
  using namespace tutti;

  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1, 2}, "x");
  Output w = Variable(graph, Zeros({2, 3}), "W");
  Output b = Variable(graph, Ones({3}), "b");
  Output y = Relu(MatMul(x, w) + b);

  Session session(graph);
  session.Initialize();
  const Tensor result = session.Run({{x, Tensor::Of<float>({2, 2}, {1, 2, 3, 4})}}, y);
  std::cout << result.ToString() << "\n";
  if (result.shape() != Shape({2, 3})) return 1;
  for (const float value : result.values<float>()) {
    if (value != 1.0f) return 1;
  }
  return 0;
}
