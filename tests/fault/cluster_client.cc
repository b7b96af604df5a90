// A client of a cluster that does one thing again and again until it fails: what
// tests/fault/cluster_faults.py runs while it kills and stops tasks.
//
//   cluster_client TARGET PHASE NAME TASK...
//
// It has a counter on each TASK ("/job:ps/task:0"), under its NAME, and adds one to all of them in
// every step; the values that come back are checked. PHASE says what it spends its time with:
//
//   create    makes a session, runs one step, closes it
//   register  every step is one that no task has seen
//   step      steps back to back, some of which wait for a queue that is filled by the next call
//   between   a step, then a pause that is longer than the step
//   read      prints the counters as they are, and ends
//
// Prints "running" once it has succeeded a few times. At the end, a line of JSON: how many steps
// were right and, if a call failed, how, when it began and when it ended (monotonic clock,
// seconds). It ends by itself when its standard input is closed.
#include <poll.h>
#include <unistd.h>

#include <cctype>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/tutti.h"

namespace tutti {
namespace {

constexpr int kWarmUp = 3;
// A target that is gone is tried for so long; sessions that exist are not concerned.
constexpr double kStartSeconds = 0.5;

struct Job {
  std::string target, phase, name;
  std::vector<std::string> tasks;
};

double Now() { return double(NowNanos()) * 1e-9; }

bool InputClosed() {
  pollfd input = {STDIN_FILENO, POLLIN, 0};
  if (poll(&input, 1, 0) <= 0) return false;
  char byte = 0;
  return ::read(STDIN_FILENO, &byte, 1) <= 0;
}

// The counters of one graph.
class Counters {
 public:
  Counters(Graph& graph, const Job& job) : graph_(graph), tasks_(job.tasks) {
    for (const std::string& task : tasks_) {
      DeviceScope there(graph, task);
      std::string name = job.name + task;
      for (char& c : name) c = std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
      variables_.push_back(Variable(graph, Zeros({}), name));
      added_.push_back(AssignAdd(variables_.back(), Constant(graph, 1.0f)));
    }
  }
  const std::vector<Output>& variables() const { return variables_; }
  // All counters after they were raised by one.
  const std::vector<Output>& added() const { return added_; }
  // The same by nodes that the graph did not have before.
  std::vector<Output> AddedAnew() {
    std::vector<Output> added;
    for (size_t i = 0; i < tasks_.size(); ++i) {
      DeviceScope there(graph_, tasks_[i]);
      added.push_back(AssignAdd(variables_[i], Constant(graph_, 1.0f)));
    }
    return added;
  }

 private:
  Graph& graph_;
  const std::vector<std::string> tasks_;
  std::vector<Output> variables_, added_;
};

class Client {
 public:
  explicit Client(Job job) : job_(std::move(job)) {}

  // One call after the other; throws what the first that fails does.
  void Run() {
    Graph graph;
    Counters counters(graph, job_);
    const bool fresh = job_.phase == "create";
    auto session = Open(graph);
    session->Initialize();
    while (!InputClosed()) {
      began_ = Now();
      if (fresh) {
        session.reset();
        session = Open(graph);
      }
      const std::vector<Output> fetches =
          job_.phase == "register" ? counters.AddedAnew() : counters.added();
      const std::vector<Tensor> values = session->Run(std::span<const Feed>(), fetches);
      ++steps_;
      for (const Tensor& value : values) {
        if (value.scalar<float>() != float(steps_)) {
          throw std::runtime_error("step " + std::to_string(steps_) + " gave " + value.ToString());
        }
      }
      if (job_.phase == "step" && steps_ % 4 == 0) PassThroughQueue(*session, graph);
      if (steps_ == kWarmUp) {
        std::puts("running");
        std::fflush(stdout);
      }
      if (job_.phase == "between") std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  std::vector<float> Read() {
    Graph graph;
    const Counters counters(graph, job_);
    std::vector<float> values;
    for (const Tensor& value : Open(graph)->Run(std::span<const Feed>(), counters.variables())) {
      values.push_back(value.scalar<float>());
    }
    return values;
  }

  int64_t steps() const { return steps_; }
  double began() const { return began_; }

 private:
  std::unique_ptr<Session> Open(Graph& graph) const {
    return std::make_unique<Session>(
        graph, SessionOptions{.target = job_.target, .start_seconds = kStartSeconds});
  }

  // A step that waits on the first task until another step, of a thread of its own, has let it go.
  void PassThroughQueue(Session& session, Graph& graph) {
    if (taken_.node == nullptr) {
      DeviceScope there(graph, job_.tasks[0]);
      const Output queue =
          FIFOQueue(graph, {{kFloat32, Shape{}}}, {.capacity = 1}, job_.name + "_queue");
      put_ = Enqueue(queue, {Constant(graph, 7.0f)});
      taken_ = Dequeue(queue)[0];
    }
    std::exception_ptr failed;
    std::thread filler([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      try {
        session.RunTargets({}, {put_});
      } catch (...) {
        failed = std::current_exception();
      }
    });
    std::exception_ptr own;
    try {
      if (session.Run(taken_).scalar<float>() != 7)
        throw std::runtime_error("a queue gave another value");
    } catch (...) {
      own = std::current_exception();
    }
    filler.join();
    if (own != nullptr) std::rethrow_exception(own);
    if (failed != nullptr) std::rethrow_exception(failed);
  }

  const Job job_;
  int64_t steps_ = 0;
  double began_ = Now();
  Output taken_;
  const Node* put_ = nullptr;
};

int RunClient(int argc, char** argv) {
  if (argc < 5) {
    std::fputs("usage: cluster_client TARGET PHASE NAME TASK...\n", stderr);
    return 2;
  }
  Job job{argv[1], argv[2], argv[3], {argv + 4, argv + argc}};
  const bool reads = job.phase == "read";
  Client client(std::move(job));
  nlohmann::json line;
  try {
    if (reads) {
      line["values"] = client.Read();
    } else {
      client.Run();
    }
  } catch (const Error& error) {
    line["code"] = CodeName(error.code());
    line["message"] = error.what();
  } catch (const std::exception& wrong) {
    line["code"] = "WRONG";
    line["message"] = wrong.what();
  }
  line["began"] = client.began();
  line["ended"] = Now();
  line["steps"] = client.steps();
  std::puts(line.dump().c_str());
  return 0;
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) { return tutti::RunClient(argc, argv); }
