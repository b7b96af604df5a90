// Between-graph replication: every worker is a program with a graph of its own, and all of them
// share the variables on the ps task. A ps task only serves. This program is either, as TF_CONFIG
// says; worker 0 makes the first values, the others wait for them.
//
//   tutti run --workers 2 --ps 1 -- build/bin/cluster_between_graph
//
// prints, for each worker, that it has counted to 100, and for worker 0 the sum of all: 200.
#include <tutti/tutti.h>

#include <cstdio>
#include <cstdlib>
#include <stop_token>
#include <string>
#include <thread>

#include "tutti/cluster/tf_config.h"

using namespace tutti;

int main() {
  try {
    const auto config = TfConfigFromEnvironment();
    if (!config.ok() || !*config) {
      std::fprintf(stderr, "cluster_between_graph: TF_CONFIG must say which task this is\n");
      return 2;
    }
    const TaskConfig& task = **config;
    const char* const token = std::getenv("TUTTI_JOB_TOKEN");
    Server server({.job = task.task.job,
                   .task = task.task.index,
                   .cluster = task.cluster.jobs(),
                   .token = token == nullptr ? "" : token});
    const int workers = int(task.cluster.jobs().at("worker").size());
    Graph graph;
    Output count, done;
    {
      DeviceScope on_ps(graph, "/job:ps/task:0");
      count = Variable(graph, Zeros({}), "count");
      done = FIFOQueue(graph, {{kInt64, Shape{}}}, {}, "done");
    }
    const Node* const add = AssignAdd(count, Constant(graph, 1.0f)).node;
    const Node* const finish = Enqueue(done, {Constant(graph, int64_t{1})});
    const Output one_finished = Dequeue(done)[0];
    const Output initialized = IsInitialized(count);
    Session session(graph, {.server = &server});

    if (task.task.job == "ps") {
      // It serves until every worker is done.
      for (int i = 0; i <= workers; ++i) session.Run(one_finished);
      return 0;
    }
    if (task.task.index == 0) session.Initialize();
    while (!session.Run(initialized).scalar<bool>()) std::this_thread::yield();
    for (int i = 0; i < 100; ++i) session.RunTargets({}, {add});
    std::printf("worker %d has counted to 100\n", task.task.index);
    session.RunTargets({}, {finish});
    if (task.task.index == 0) {
      const float all = 100.0f * float(workers);
      while (session.Run(count).scalar<float>() < all) std::this_thread::yield();
      std::printf("all: %.0f\n", double(all));
      session.RunTargets({}, {finish});
    }
  } catch (const Error& error) {
    std::fprintf(stderr, "cluster_between_graph: %s\n", error.what());
    return 1;
  }
}
