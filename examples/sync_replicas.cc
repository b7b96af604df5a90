// Synchronous training in a loop of one's own, without an Estimator: between-graph replication with
// variables on ps tasks. Every worker is a program with a graph of its own; worker 0 is the chief,
// gives the variables their values and saves them; SyncReplicas makes an update from the gradients
// of all workers, or of the first of them. A ps task only serves.
//
//   tutti run --workers 2 --ps 1 -- build/bin/sync_replicas
//
// learns y = 3x - 1 and prints, for worker 0, "after 300 updates w is 3.000 and b -1.000". With
// --model-dir DIR the training goes on where it was broken off, also after a ps was lost and
// started again.
#include <tutti/tutti.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/cluster/tf_config.h"

using namespace tutti;

namespace {

constexpr int64_t kBatch = 32;

// Every worker has samples of its own.
void MakeBatch(int64_t worker, int64_t number, Tensor& x, Tensor& y) {
  for (int64_t i = 0; i < kBatch; ++i) {
    const float value = float(((number * kBatch + i) * 37 + worker * 11) % 101) / 50 - 1;
    x.data<float>()[i] = value;
    y.data<float>()[i] = 3 * value - 1;
  }
}

void Train(const TaskConfig& task, Server& server, const RunConfig& config, int64_t aggregate) {
  const int worker = task.TrainerRank();
  const int workers = int(task.cluster.Trainers().size());
  std::vector<std::string> servers;
  for (const auto& [index, address] : task.cluster.jobs().at("ps")) {
    servers.push_back(ToString(TaskId{"ps", index}) + "/cpu:0");
  }
  Graph graph;
  const Output x = Placeholder(graph, kFloat32, {-1}, "x");
  const Output y = Placeholder(graph, kFloat32, {-1}, "y");
  SyncReplicas sync(Sgd({.learning_rate = config.learning_rate}),
                    {.aggregate = int(aggregate), .total = workers});
  Output w, b, loss;
  const Node* train = nullptr;
  {
    const VariablePlacementScope placement(PlaceOn(servers));
    w = Variable(graph, Zeros({}), "w");
    b = Variable(graph, Zeros({}), "b");
    loss = Mean(Square(x * w + b - y));
    train = sync.Minimize(loss);
  }
  TrainingSession session(graph, {.run = config,
                                  .session = {.server = &server},
                                  .is_chief = worker == 0,
                                  .worker = worker,
                                  .workers = workers,
                                  .loss = loss,
                                  .hooks = {sync.MakeHook()}});
  Tensor batch_x(kFloat32, {kBatch}), batch_y(kFloat32, {kBatch});
  while (!session.ShouldStop()) {
    MakeBatch(worker, session.step(), batch_x, batch_y);
    session.Run({{x, batch_x}, {y, batch_y}}, {}, train);
  }
  if (worker == 0) {
    const auto values = session.session().Run({}, {w, b});
    std::printf("after %lld updates w is %.3f and b %.3f\n", static_cast<long long>(session.step()),
                double(values[0].scalar<float>()), double(values[1].scalar<float>()));
  }
  session.Close();
}

}  // namespace

int main(int argc, char** argv) {
  RunConfig config{.max_steps = 300, .learning_rate = 0.2, .program = "sync_replicas"};
  int64_t aggregate = 0;
  Flags flags("Learns a line synchronously, in a loop of its own.");
  flags.Add("max-steps", &config.max_steps, "updates to make", 1);
  flags.Add("learning-rate", &config.learning_rate, "of gradient descent", 0.0);
  flags.Add("aggregate", &aggregate, "workers that make an update; 0 for all", 0);
  flags.Add("log-every", &config.log_every, "steps between two lines; 0 for none", 0);
  flags.Add("model-dir", &config.model_dir, "DIR for checkpoints, shared by worker 0 and the ps");
  flags.Add("save-every", &config.save_every, "steps (500) or seconds (60s) between checkpoints");
  flags.Add("start-timeout", &config.start_timeout, "seconds for tasks to appear", 0.1);
  try {
    if (!flags.Parse(argc, argv)) return 0;
    const auto found = TfConfigFromEnvironment();
    if (!found.ok() || !*found || !(*found)->cluster.jobs().contains("ps")) {
      std::fprintf(stderr, "sync_replicas: TF_CONFIG must name this task, workers and ps\n");
      return 2;
    }
    const TaskConfig& task = **found;
    const char* const token = std::getenv("TUTTI_JOB_TOKEN");
    // A ps ends with the chief.
    Server server({.job = task.task.job,
                   .task = task.task.index,
                   .cluster = task.cluster.jobs(),
                   .token = token == nullptr ? "" : token,
                   .coordinator = ToString(task.cluster.Chief())});
    if (task.task.job == "ps") {
      server.Join();
    } else {
      Train(task, server, config, aggregate);
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "sync_replicas: %s\n", error.what());
    return 1;
  }
  return 0;
}
