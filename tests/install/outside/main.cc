// Uses each part of Tutti once, with nothing but what an installed copy offers: graphs, an op of
// its own, the Estimator with checkpoints, hooks, evaluation and export, strategies, placement, a
// server, a cluster with a session that has a target, and a synchronous loop over that cluster.
#include <netinet/in.h>
#include <sys/socket.h>
#include <tutti/autodiff/gradient_registry.h>
#include <tutti/cluster/tf_config.h>
#include <tutti/device/kernel_registry.h>
#include <tutti/graph/build.h>
#include <tutti/graph/op_def.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <iostream>
#include <string>

using namespace tutti;

namespace {

// An op of the project's own.
void RegisterTwice() {
  OpDef def{.name = "Twice", .inputs = {"x"}, .gradient = Gradient::kDefined};
  def.infer = [](InferContext& context) {
    context.SetOutput(0, context.dtype(0), context.shape(0));
    return context.RequireDType(0, kFloat32);
  };
  OpRegistry::Global().Add(std::move(def));
  const auto compute = [](KernelContext& context) {
    const auto x = context.input(0).values<float>();
    const auto y = context.output(0).values<float>();
    for (size_t i = 0; i < x.size(); ++i) y[i] = 2 * x[i];
    return absl::OkStatus();
  };
  AddFunctionKernel(KernelRegistry::Global(), "Twice", "cpu", compute, {kFloat32});
  GradientRegistry::Global().Add(
      "Twice", [](GradientContext& context) { context.Set(0, context.gradient() * 2.0f); });
}

Output Twice(Input x) { return OpBuilder("Twice", "").In(x).Build(); }

bool RunsAGraph() {
  Graph graph;
  Output x = Placeholder(graph, kFloat32, {-1, 2}, "x");
  Output w = Variable(graph, Zeros({2, 3}), "W");
  Output b = Variable(graph, Ones({3}), "b");
  Output y = Twice(Relu(MatMul(x, w) + b));
  Output slope = Gradients(y, {b})[0];

  Session session(graph);
  session.Initialize();
  const auto results = session.Run({{x, Tensor::Of<float>({2, 2}, {1, 2, 3, 4})}}, {y, slope});
  std::cout << results[0].ToString() << "\n" << results[1].ToString() << "\n";
  return results[0].BitwiseEquals(Tensor::Of<float>({2, 3}, {2, 2, 2, 2, 2, 2})) &&
         results[1].BitwiseEquals(Tensor::Of<float>({3}, {4, 4, 4}));
}

ModelSpec Line(const Features& batch, Mode mode) {
  Output y = nn::Dense(batch["x"], 1, {}, "line");
  return RegressionHead().Spec(y, batch["y"], Adam({.learning_rate = 0.1}), mode);
}

Dataset Samples() {
  return Dataset::FromTensors({{"x", Tensor::Of<float>({4, 1}, {-1, 0, 1, 2})},
                               {"y", Tensor::Of<float>({4, 1}, {-4, -1, 2, 5})}});
}

bool IsThree(Estimator& estimator) {
  const float w = estimator.Variables().at("line/weights").scalar<float>();
  std::cout << "w " << w << "\n";
  return std::abs(w - 3) < 0.1f;
}

// In two parts, the second from the checkpoint of the first; then without the model's code.
bool TrainsAndExports(const std::string& folder) {
  const auto input = [] { return Samples().Repeat(); };
  int64_t calls = 0;
  const auto count = [&calls](const StepEnd&, TrainingControl&) { ++calls; };
  RunConfig config = {.max_steps = 200, .model_dir = folder + "/model", .quiet = true};
  Estimator(Line, config).Train({.input = input, .hooks = {AfterSteps(50, count)}});
  config.max_steps = 300;
  Estimator estimator(Line, config);
  if (estimator.Train({.input = input}).steps != 100 || calls != 4) return false;
  if (estimator.Evaluate({.input = Samples}).at("loss") > 0.1) return false;
  estimator.Export(folder + "/exported", {.input = Samples});
  const Tensor x = Tensor::Of<float>({1, 1}, {10});
  for (const auto& [name, values] : ExportedModel(folder + "/exported").Predict({{"x", x}})) {
    std::cout << name << " " << values.ToString() << "\n";
    if (std::abs(values.scalar<float>() - 29) > 1) return false;
  }
  return IsThree(estimator);
}

bool TrainsOnTwoDevices() {
  Estimator towers(Line,
                   {.max_steps = 300, .batch_size = 2, .strategy = "mirrored:2", .quiet = true});
  towers.Train({.input = [] { return Samples().Repeat(); }});
  Estimator placed(
      Line,
      {.max_steps = 300, .strategy = "local", .devices = 2, .placement = "search", .quiet = true});
  placed.Train({.input = [] { return Samples().Repeat(); }});
  return IsThree(towers) && IsThree(placed);
}

bool ExplainsAndTraces() {
  Graph graph;
  Output y = MatMul(Variable(graph, Ones({8, 8}), "a"), Variable(graph, Ones({8, 8}), "b"));
  Session session(graph, {.devices = 2, .placement = "greedy"});
  session.Initialize();
  RunTrace trace;
  session.Run(y, {.trace = true, .trace_result = &trace});
  return !trace.nodes.empty() && !session.Explain().ToText().empty();
}

bool SharesVariables() {
  Server server;
  Graph graph;
  Output w = Variable(graph, Zeros({}), "w");
  Output more = AssignAdd(w, Constant(graph, 1.0f));
  Session one(graph, {.server = &server}), other(graph, {.server = &server});
  one.Initialize();
  one.Run(more);
  return other.Run(w).scalar<float>() == 1;
}

std::string FreeAddress() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ::bind(fd, reinterpret_cast<sockaddr*>(&address), size);
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size);
  ::close(fd);
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

// A ps and a worker in this process; a client of the worker; then a training loop on the ps.
bool RunsACluster() {
  const std::map<std::string, std::map<int, std::string>> cluster = {
      {"ps", {{0, FreeAddress()}}}, {"worker", {{0, FreeAddress()}}}};
  Server ps({.job = "ps", .task = 0, .cluster = cluster});
  Server worker({.job = "worker", .task = 0, .cluster = cluster});
  Graph graph;
  Output sum;
  {
    DeviceScope on(graph, "/job:ps/task:0");
    sum = Sum(Variable(graph, Ones({100}), "ones"));
  }
  Session client(graph, {.target = "tutti://" + worker.address()});
  client.Initialize();
  if (client.Run(sum + 1.0f).scalar<float>() != 101) return false;

  Graph training;
  Output x = Placeholder(training, kFloat32, {-1}, "x");
  SyncReplicas sync(Sgd({.learning_rate = 0.2}), {.aggregate = 1, .total = 1});
  Output w, loss;
  const Node* train = nullptr;
  {
    VariablePlacementScope placement(PlaceOn({"/job:ps/task:0/cpu:0"}));
    w = Variable(training, Zeros({}), "w");
    loss = Mean(Square(x * w - x * 3.0f));
    train = sync.Minimize(loss);
  }
  TrainingSession session(training, {.run = {.max_steps = 100, .quiet = true},
                                     .session = {.server = &worker},
                                     .loss = loss,
                                     .hooks = {sync.MakeHook()}});
  while (!session.ShouldStop()) session.Run({{x, Tensor::Vector<float>({-1, 1})}}, {}, train);
  const float learnt = session.session().Run(w).scalar<float>();
  session.Close();
  std::cout << "w " << learnt << "\n";
  return std::abs(learnt - 3) < 0.01f;
}

bool ReadsTfConfig() {
  const auto task = ParseTfConfig(
      R"({"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}})");
  return task.ok() && task->TrainerRank() == 1;
}

}  // namespace

int main() {
  RegisterTwice();
  const std::string folder = std::filesystem::temp_directory_path() / std::to_string(::getpid());
  const bool trains = TrainsAndExports(folder);
  std::filesystem::remove_all(folder);
  return trains && RunsAGraph() && TrainsOnTwoDevices() && ExplainsAndTraces() &&
                 SharesVariables() && RunsACluster() && ReadsTfConfig()
             ? 0
             : 1;
}
