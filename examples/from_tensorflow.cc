// The program of docs/from-tensorflow.md: a line learned in step by several workers, in a loop of
// one's own, with its variables on parameter servers.
#include <tutti/cluster/tf_config.h>
#include <tutti/tutti.h>

#include <cstdio>
#include <cstdlib>

using namespace tutti;

void Train(const TaskConfig& task, Server& server) {
  const int worker = task.TrainerRank(), workers = int(task.cluster.Trainers().size());
  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1}, "x");
  Output y = Placeholder(graph, kFloat32, {-1}, "y");
  SyncReplicas sync(Sgd({.learning_rate = 0.2}), {.aggregate = workers, .total = workers});
  Output w, b, loss;
  const Node* train = nullptr;
  {
    VariablePlacementScope placement(PlaceOn({"/job:ps/task:0/cpu:0"}));
    w = Variable(graph, Zeros({}), "w");
    b = Variable(graph, Zeros({}), "b");
    loss = Mean(Square(x * w + b - y));
    train = sync.Minimize(loss);
  }
  TrainingSession session(graph, {.run = {.max_steps = 200},
                                  .session = {.server = &server},
                                  .is_chief = worker == 0,
                                  .worker = worker,
                                  .workers = workers,
                                  .hooks = {sync.MakeHook()}});
  const Tensor xs = Tensor::Vector<float>({-2, -1, 0, 1, 2});
  const Tensor ys = Tensor::Vector<float>({-7, -4, -1, 2, 5});
  while (!session.ShouldStop()) session.Run({{x, xs}, {y, ys}}, {}, train);
  if (worker == 0) {
    const auto end = session.session().Run({}, {w, b});
    std::printf("w %.3f, b %.3f\n", double(end[0].scalar<float>()), double(end[1].scalar<float>()));
  }
  session.Close();
}

int main() try {
  const auto config = TfConfigFromEnvironment();
  if (!config.ok() || !*config) throw Error(Code::kInvalidArgument, "TF_CONFIG is missing");
  const TaskConfig& task = **config;
  const char* token = std::getenv("TUTTI_JOB_TOKEN");
  Server server({.job = task.task.job,
                 .task = task.task.index,
                 .cluster = task.cluster.jobs(),
                 .token = token == nullptr ? "" : token,
                 .coordinator = ToString(task.cluster.Chief())});
  if (task.task.job == "ps") server.Join();
  if (task.TrainerRank() >= 0) Train(task, server);
} catch (const Error& error) {
  std::fprintf(stderr, "from_tensorflow: %s\n", error.what());
  return 1;
}
