// The sample of README.md: a layer with random weights, run in this process.
//
//   build/bin/quickstart
//
// prints ten results: float32 [1, 100], all of them at least 0.
#include <tutti/tutti.h>

using namespace tutti;

Tensor NextInput() { return Tensor::Zeros(kFloat32, {1, 784}); }

int main() {
  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1, 784}, "x");
  Output w = Variable(graph, RandomUniform({784, 100}, -1, 1), "W");
  Output b = Variable(graph, Zeros({100}), "b");
  Output relu = Relu(MatMul(x, w) + b);

  Session session(graph);
  session.Initialize();
  for (int step = 0; step < 10; ++step) Print(session.Run({{x, NextInput()}}, relu));
}
