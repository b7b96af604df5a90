// Learns which points of a square lie inside a circle.
#include <tutti/tutti.h>

#include <cstdio>

using namespace tutti;

int main() {
  constexpr int64_t kSide = 32;
  Tensor points(kFloat32, {kSide * kSide, 2}), inside(kInt32, {kSide * kSide});
  for (int64_t i = 0; i < kSide * kSide; ++i) {
    const float x = float(i % kSide) / 16 - 1, y = float(i / kSide) / 16 - 1;
    points.data<float>()[2 * i] = x;
    points.data<float>()[2 * i + 1] = y;
    inside.data<int32_t>()[i] = x * x + y * y < 0.5f ? 1 : 0;
  }

  Graph graph;
  SetSeed(graph, 1);
  Output point = Placeholder(graph, kFloat32, {-1, 2}, "point");
  Output label = Placeholder(graph, kInt32, {-1}, "label");
  Output hidden = nn::Dense(point, 16, {.activation = nn::kRelu}, "hidden");
  Output logits = nn::Dense(hidden, 2, {}, "logits");
  Output loss = nn::SparseSoftmaxLoss(logits, label);
  Output accuracy = nn::Accuracy(logits, label);
  const Node* train = Adam({.learning_rate = 0.02}).Minimize(loss);

  Session session(graph);
  session.Initialize();
  const std::vector<Feed> feeds = {{point, points}, {label, inside}};
  for (int step = 0; step < 300; ++step) session.Run(feeds, {}, {{train}});
  std::printf("%lld parameters\n", (long long)nn::CountParameters(nn::TrainableVariables(graph)));
  const float right = session.Run({{point, points}, {label, inside}}, accuracy).scalar<float>();
  std::printf("%s\n", right > 0.95f ? "more than 95% of the points are right" : "not learned");
}
