// Four mistakes, and what each Error says. After every one the session is as usable as before.
#include <tutti/tutti.h>

#include <chrono>
#include <cstdio>
#include <functional>

using namespace tutti;

void Try(const char* what, const std::function<void()>& mistake) {
  try {
    mistake();
    std::printf("%s: no error\n", what);
  } catch (const Error& error) {
    std::printf("%s: %s\n  %s\n", what, CodeName(error.code()), error.what());
  }
}

int main() {
  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1, 3}, "x");
  Output w = Variable(graph, Ones({4, 2}), "w");
  Output rows = Gather(w, Constant(graph, Tensor::Vector<int32_t>({1, 9})));
  Output queue = FIFOQueue(graph, {{kFloat32, Shape{}}}, {}, "jobs");
  Output job = Dequeue(queue)[0];
  Session session(graph);

  Try("shapes that do not fit", [&] { MatMul(x, w, {}, "product"); });
  Try("no first value", [&] { session.Run(w); });
  session.Initialize();
  Try("a row that is not there", [&] { session.Run(rows); });
  Try("a wait that is too long",
      [&] { session.Run(job, {.timeout = std::chrono::milliseconds(50)}); });
  std::printf("and still w[0, 0] is %g\n", double(session.Run(w).data<float>()[0]));
}
