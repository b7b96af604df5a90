// The command `tutti`. Only here is CLI11 included.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "tools/tutti/bench/allreduce.h"
#include "tools/tutti/bench/bench.h"
#include "tools/tutti/bench/checkpoint.h"
#include "tools/tutti/checkpoint_command.h"
#include "tools/tutti/doctor.h"
#include "tools/tutti/explain/explain.h"
#include "tools/tutti/explain/placement.h"
#include "tools/tutti/explain/variables.h"
#include "tools/tutti/models.h"
#include "tools/tutti/placement_models.h"
#include "tools/tutti/plot/plot.h"
#include "tools/tutti/predict.h"
#include "tools/tutti/serve.h"
#include "tutti/base/console.h"
#include "tutti/base/error.h"
#include "tutti/base/status.h"
#include "tutti/collective/schedule/schedule.h"
#include "tutti/launch/host_agent.h"
#include "tutti/launch/launcher.h"

namespace tutti::tools {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;
constexpr double kMostSeconds = 3600;
constexpr double kLeastMeasured = 1e-6;  // seconds

// Prints what a command made. A mistake in its options is a tutti::Error.
void Print(const absl::StatusOr<std::string>& text) {
  ThrowIfError(text.status());
  WriteTo(stdout, *text);
}

// A number in the range, which NaN is not.
CLI::Validator Seconds(double least) {
  return CLI::Validator(
      [least](const std::string& text) {
        double seconds = 0;
        const bool number = CLI::detail::lexical_cast(text, seconds);
        if (number && seconds >= least && seconds <= kMostSeconds) return std::string();
        return fmt::format("{} is no number of seconds from {} to {}", text, least, kMostSeconds);
      },
      "SECONDS");
}

int ExitCodeOf(const Error& error) {
  return error.code() == Code::kInvalidArgument || error.code() == Code::kNotFound ? kUsage
                                                                                   : kFailed;
}

constexpr const char* kGraphHelp =
    "A file with a graph, as text or protobuf, or a model of `tutti bench placement`: cnn, lstm";

// `tutti explain`. The options are filled while `app` parses.
void AddExplain(CLI::App& app, ExplainOptions& options, CostOptions& cost_options,
                PlacementOptions& placement_options, VariablesOptions& variables_options) {
  CLI::App* explain = app.add_subcommand("explain",
                                         "Show a collective algorithm, what each would take, or "
                                         "where nodes and variables of a graph go");
  explain->add_option("algorithm", options.algorithm,
                      "direct, ring, halving-doubling, tree, hierarchical, central...");
  explain->add_option("--operation", options.operation, "The collective operation (all-reduce)");
  explain->add_option("--ranks", options.ranks, "How many ranks (4)")
      ->check(CLI::Range(1, collective::kMaxRanks));
  explain->add_option("--segments", options.segments, "Pieces a chunk is cut into (1)");
  explain->add_option("--root", options.root,
                      "Root rank of broadcast, reduce, gather and scatter (0)");
  explain->add_option("--servers", options.servers, "Ranks of central that are servers (1)");
  explain->add_flag("--own-hosts", options.own_hosts, "The last ranks are servers without data");
  explain->add_option("--hosts", options.hosts, "The host of each rank: 0,0,1,1")->delimiter(',');
  explain->add_option("--direction", options.direction, "Of the ring: left or right (right)");
  explain->add_option("--values", options.values, "Numbers to follow: 2,4,6/1,2,3/4,8,12");
  explain->add_option("--svg", options.svg, "Write a picture to this file");
  explain->add_flag("--text", options.text, "Print the schedule itself");
  explain->add_flag("--verify", options.verify, "Prove the schedule correct; list what was proved");

  CLI::App* cost = explain->add_subcommand("cost", "Compare the algorithms on given links");
  cost->add_option("--bytes", cost_options.bytes, "Size of the data: 64K, 1.2G");
  cost->add_option("--ranks", cost_options.ranks, "How many ranks");
  cost->add_option("--link", cost_options.link,
                   "Link rate of each rank, per direction: 1GB/s, 25Gbit/s");
  cost->add_option("--latency", cost_options.latency, "Latency of a message: 5us (0s)");
  cost->add_option("--reduce", cost_options.reduce, "Rate at which a rank sums: 10GB/s (infinite)");
  cost->add_option("--topology", cost_options.topology, "A fabric in TOML instead of equal links");
  cost->add_option("--segments", cost_options.segments,
                   "Pieces a chunk is cut into (the best of 1, 4, 16 and 64)");
  cost->add_option("--servers", cost_options.servers,
                   "Numbers of servers among the ranks of central: 1,4")
      ->delimiter(',');
  cost->callback([&cost_options] { Print(ExplainCost(cost_options)); });
  const auto add_graph = [&](CLI::App* command) {
    command->add_option("graph", placement_options.graph, kGraphHelp)->required();
    command->add_option("--batch", placement_options.batch, "Size used for unknown dimensions (32)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    command->add_option("--rows", placement_options.rows, "Nodes that are listed (40)")
        ->check(CLI::Range(0, 1 << 30));
    command->add_flag("--json", placement_options.json, "Print JSON, with all nodes");
  };
  CLI::App* nodes = explain->add_subcommand(
      "nodes", "Estimated against measured time of each node, the worst first");
  add_graph(nodes);
  nodes->add_option("--steps", placement_options.steps, "Steps to measure; 0: only estimates (7)")
      ->check(CLI::Range(0, 10000));
  nodes->callback([&placement_options] { Print(ExplainNodes(placement_options)); });
  CLI::App* placement = explain->add_subcommand(
      "placement", "Where the nodes of a graph would go, why, and what the step would take");
  add_graph(placement);
  placement->add_option("--cluster", placement_options.cluster,
                        "A TOML file with tasks, devices and links (docs/placement.md)");
  placement
      ->add_option("--devices", placement_options.devices,
                   "Devices of one process, where there is no --cluster (2)")
      ->check(CLI::Range(1, 1024));
  placement->add_option("--placement", placement_options.method,
                        "manual, greedy or search (search)");
  placement->add_option("--svg", placement_options.svg, "Write a timeline to this file");
  placement->callback([&placement_options] { Print(ExplainPlacement(placement_options)); });
  CLI::App* variables = explain->add_subcommand(
      "variables", "On which parameter servers the variables of a graph would live");
  variables->add_option("graph", variables_options.graph, kGraphHelp)->required();
  variables->add_option("--ps", variables_options.servers, "How many parameter servers (2)")
      ->check(CLI::Range(1, 1024));
  variables->add_option("--split-bytes", variables_options.split_bytes,
                        "Variables of more bytes are split over all servers by rows (1MiB)");
  variables->add_option("--ps-memory", variables_options.memory,
                        "What variables and optimizer slots may take on each server: 2GB (any)");
  variables->callback([&variables_options] { Print(ExplainVariables(variables_options)); });
  explain->callback([explain, &options] {
    if (!explain->get_subcommands().empty()) return;
    if (options.algorithm.empty()) {
      throw CLI::RequiredError("algorithm, cost, nodes, placement or variables");
    }
    Print(Explain(options, Screen::OfStdout()));
  });
}

// Where `tutti run` starts tasks, as it stands on the command line.
struct RunHosts {
  std::string hosts, hostfile, ssh = "ssh", tutti;

  // Fills in what follows from it. Throws Error.
  void Apply(bool workers_given, LaunchOptions& launch) const {
    if (hosts.empty() && hostfile.empty()) return;
    launch.hosts = ValueOrThrow(hosts.empty() ? ReadHostfile(hostfile) : ParseHosts(hosts));
    std::error_code error;
    launch.ssh.tutti =
        tutti.empty() ? std::filesystem::read_symlink("/proc/self/exe", error).string() : tutti;
    std::istringstream words(ssh);
    launch.ssh.ssh.assign(std::istream_iterator<std::string>(words), {});
    if (launch.ssh.ssh.empty()) ThrowInvalidArgument("--ssh is empty; expected a command");
    if (workers_given) return;
    launch.roles.workers = 0;
    launch.roles.workers = SlotsOf(launch.hosts) - launch.roles.tasks();
  }
};

// `tutti run`. The options are filled while `app` parses.
CLI::App* AddRun(CLI::App& app, LaunchOptions& launch, RunHosts& hosts) {
  CLI::App* run = app.add_subcommand("run", "Run a program as the tasks of a job");
  run->footer(
      "SIGINT, SIGTERM, SIGHUP and SIGQUIT are passed on to all tasks: trainings end after their "
      "step,\nand a second signal ends them at once. Tasks left after --grace get SIGTERM, "
      "and SIGKILL\n2 s later. A task that is stopped (SIGSTOP) is warned about every 5 s, and "
      "ended after 30 s\nwhen all others have ended. The exit code is that of the task that failed "
      "first, 128 + n for\nsignal n. With --restarts a task that was lost (code 128 and above) is "
      "started again, alone or,\nif others ended because they lost it, with the whole job; one "
      "that "
      "ends within 10 s of its start\nthree times in a row is given up.\n\n"
      "Every task has TF_CONFIG, and TUTTI_JOB_TOKEN: the launcher's own if that is set, else a "
      "random one.\n\n"
      "examples: tutti run --workers 2 -- build/bin/fashion_mnist --strategy allreduce\n"
      "          TUTTI_JOB_TOKEN=secret tutti run --workers 1 --ps 2 -- tutti server");
  RoleCounts& roles = launch.roles;
  run->add_flag("--chief", roles.chief, "Start a chief beside the workers (else worker 0 leads)");
  run->add_option("--workers", roles.workers, "Worker tasks to start (1)")
      ->check(CLI::Range(0, 4096));
  run->add_option("--ps", roles.ps, "Parameter server tasks to start (0)")
      ->check(CLI::Range(0, 4096));
  run->add_flag("--evaluator", roles.evaluator,
                "Have an evaluator, which evaluates every checkpoint in --model-dir");
  run->add_option("--devices", launch.devices, "Devices of every task (the program's default)")
      ->check(CLI::Range(1, 1024));
  run->add_option("--cores-per-worker", launch.cores_per_worker,
                  "Cores that each task that trains is pinned to (an even share)")
      ->check(CLI::Range(1, 4096));
  run->add_option("--restarts", launch.restarts, "How often lost tasks are started again (0)")
      ->check(CLI::Range(0, 1000000));
  run->add_option("--log-dir", launch.log_dir,
                  "Also write the output of each task to DIR/worker-N.log");
  run->add_option("--grace", launch.grace_seconds,
                  "Seconds for the others to end by themselves after the first failure (5)")
      ->check(Seconds(0));
  run->add_option("--hosts", hosts.hosts,
                  "Where tasks run, by ssh, and how many on each: a:2,b:2 (this host)");
  run->add_option("--hostfile", hosts.hostfile, "The same, a line a host: a slots=2")
      ->excludes("--hosts");
  run->add_option("--ssh", hosts.ssh, "The command that reaches a host (ssh)");
  run->add_option("--remote-tutti", hosts.tutti,
                  "This program on the hosts (the path it has here)");
  run->add_option("command", launch.command, "PROGRAM and its arguments, behind --")->required();
  return run;
}

// `tutti plot`. The options are filled while `app` parses.
void AddPlot(CLI::App& app, PlotOptions& options) {
  CLI::App* plot =
      app.add_subcommand("plot", "Draw loss and metrics of a training, here and as a picture");
  plot->add_option("model_dir", options.directory, "The training's --model-dir")->required();
  plot->add_option("--metric", options.metrics, "Which to draw (all but speeds)")->delimiter(',');
  plot->add_option("--svg", options.svg, "Also write a picture to this file");
  plot->add_option("--height", options.height, "Lines of a chart (12)")->check(CLI::Range(2, 200));
  plot->callback([&options] {
    const Screen screen = Screen::OfStdout();
    Print(Plot(options, {.width = screen.width, .unicode = Utf8Locale(), .color = screen.color}));
  });
}

// `tutti server`, `tutti status` and `tutti reset`. The options are filled while `app` parses.
void AddServer(CLI::App& app, ServeOptions& serve, StatusOptions& status, ResetOptions& reset,
               int& result) {
  CLI::App* server = app.add_subcommand("server", "Run a task of a cluster until a signal ends it");
  server->footer(
      "A task runs parts of steps for sessions that are connected to any task of the cluster: in "
      "a\n"
      "program, Session session(graph, {.target = \"tutti://host0:2222\"}). It keeps variables "
      "and\n"
      "queues until they are reset or it ends. SIGINT and SIGTERM end it with code 0.\n\n"
      "The token is the secret that all tasks and clients share, from --token-file or the "
      "variable\n"
      "TUTTI_JOB_TOKEN. A task that listens beyond this host without one refuses to start, unless\n"
      "--insecure is given.\n\n"
      "cluster.toml:   [cluster]\n"
      "                ps = [\"host0:2222\"]\n"
      "                worker = [\"host1:2222\", \"host2:2222\"]\n\n"
      "examples: tutti server --config cluster.toml --job ps --task 0\n"
      "          tutti run --workers 1 --ps 2 -- tutti server --tf-config");
  server->add_flag("--tf-config", serve.tf_config,
                   "Take cluster and task from TF_CONFIG (as it does if that is set)");
  server->add_option("--config", serve.config, "Take the cluster from this TOML file");
  server->add_option("--job", serve.job, "The job of this task, if the file does not say");
  server->add_option("--task", serve.task, "Its index there")->check(CLI::Range(0, 1 << 20));
  server
      ->add_option("--devices", serve.devices,
                   "How many devices it has (1), or numa: one on the cores of each NUMA node")
      ->envname("TUTTI_DEVICES")
      ->check(CLI::Range(1, 1024) | CLI::IsMember({kNuma}));
  server->add_option("--cores", serve.cores, "Cores of each device (an even share)")
      ->check(CLI::Range(0, 4096));
  server->add_option("--device-memory", serve.device_memory,
                     "What the steps on a device may take: 512MiB (all of the host)");
  server->add_option("--bind", serve.bind, "Listen here, host:port (at the task's own address)");
  server->add_option("--token-file", serve.token_file, "A file whose first line is the token");
  server->add_flag("--insecure", serve.insecure, "Listen beyond this host without a token");
  server->add_option("--coordinator", serve.coordinator,
                     "Where the list of members is kept (in /job:chief/task:0, if there is one): a "
                     "task, whose end ends this one, with code 0 if it ended normally and 128 if "
                     "it was lost; etcd://host:2379,host:2379/job; or none");
  server
      ->add_option("--start-seconds", serve.start_seconds,
                   "How long to retry tasks that were never reached, in seconds (60)")
      ->check(Seconds(0));
  server->add_option(
      "--http", serve.http,
      "PORT, or HOST:PORT, of /metrics and /healthz; tasks of one host take one port "
      "after the other");
  server->callback([&serve, &result] { result = Serve(serve); });

  CLI::App* ask = app.add_subcommand("status", "Show the state of the tasks of a cluster");
  ask->add_option("target", status.target, "Any task of it: tutti://host:port")->required();
  ask->add_option("--token-file", status.token_file, "A file whose first line is the token");
  ask->add_flag("--json", status.json, "One JSON object a task, one a line");
  ask->callback([&status, &result] { result = PrintStatus(status) ? 0 : kFailed; });

  CLI::App* forget = app.add_subcommand(
      "reset", "Remove the variables and queues of a container on all tasks of a cluster");
  forget->add_option("target", reset.target, "Any task of it: tutti://host:port")->required();
  forget->add_option("--container", reset.container,
                     "Its name, as in ContainerScope (that of resources outside any scope)");
  forget->add_option("--token-file", reset.token_file, "A file whose first line is the token");
  forget->callback([&reset] { Reset(reset); });
}

// `tutti inspect` and `tutti convert`.
void AddCheckpointCommands(CLI::App& app, InspectOptions& inspect_options,
                           ConvertOptions& convert_options) {
  CLI::App* inspect = app.add_subcommand("inspect", "List a checkpoint and compare its checksums");
  inspect
      ->add_option("path", inspect_options.path,
                   "A checkpoint, a model directory (its newest), or a safetensors file")
      ->required();
  inspect->add_flag("--json", inspect_options.json, "One JSON object");
  inspect->add_flag("!--no-verify", inspect_options.verify, "Only list it");
  inspect->callback([&inspect_options] { ThrowIfError(Inspect(inspect_options)); });

  CLI::App* convert = app.add_subcommand(
      "convert", "Turn a checkpoint into one safetensors file, or such a file into a checkpoint");
  convert->add_option("from", convert_options.from, "A checkpoint, model directory or file")
      ->required();
  convert->add_option("to", convert_options.to, "FILE.safetensors, or a model directory")
      ->required();
  convert->add_flag("--weights", convert_options.weights,
                    "Leave out slots of optimizers and the global step");
  convert->add_option("--step", convert_options.step, "Step of the new checkpoint (0)")
      ->check(CLI::NonNegativeNumber);
  convert->callback([&convert_options] { ThrowIfError(Convert(convert_options)); });
}

// `tutti predict`. The options are filled while `app` parses.
void AddPredict(CLI::App& app, PredictOptions& options) {
  CLI::App* predict = app.add_subcommand(
      "predict", "Run a model that Estimator::Export has written, or list its inputs and outputs");
  predict->add_option("directory", options.directory, "The exported model")->required();
  predict->add_option("--input", options.inputs, "FILE.npy, or NAME=FILE.npy, for each input");
  predict->add_option("--output", options.outputs,
                      "NAME=FILE.npy for a prediction (print them all)");
  predict->add_option("--batch", options.batch_size, "Samples that are run at once (500)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 30));
  predict->add_option("--rows", options.rows, "Samples that are printed (10)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 30));
  predict->callback([&options] {
    WriteTo(stdout, options.inputs.empty() ? DescribeModel(options.directory) : Predict(options));
  });
}

// Exit codes: 0 done, 1 it failed, 2 usage.
int Main(int argc, char** argv) {
  KeepStandardFiles();
  CLI::App app("Tutti: distributed deep-learning training.", "tutti");
  app.set_version_flag("--version", "tutti " TUTTI_VERSION);
  app.require_subcommand(1);
  int result = 0;

  app.add_subcommand("doctor", "Show what a training would find on this machine")->callback([&] {
    result = Doctor() ? 0 : 1;
  });

  ExplainOptions explain_options;
  CostOptions cost_options;
  PlacementOptions placement_options;
  VariablesOptions variables_options;
  AddExplain(app, explain_options, cost_options, placement_options, variables_options);
  PlotOptions plot_options;
  AddPlot(app, plot_options);
  PredictOptions predict_options;
  AddPredict(app, predict_options);
  LaunchOptions launch;
  RunHosts hosts;
  CLI::App* run = AddRun(app, launch, hosts);
  run->callback([&] {
    hosts.Apply(run->count("--workers") > 0, launch);
    result = Launch(launch);
  });
  int agent_port = 0;
  CLI::App* agent = app.add_subcommand("host-agent", "Run a task for `tutti run --hosts`");
  agent->group("");
  agent->add_option("--port", agent_port, "Where the task listens (anywhere)")
      ->check(CLI::Range(0, 65535));
  agent->callback([&] { result = RunHostAgent(agent_port); });

  ServeOptions serve;
  StatusOptions status;
  ResetOptions reset;
  AddServer(app, serve, status, reset, result);

  InspectOptions inspect_options;
  ConvertOptions convert_options;
  AddCheckpointCommands(app, inspect_options, convert_options);

  BenchOptions options;
  CLI::App* bench = app.add_subcommand("bench", "Measure, and print one figure a line");
  bench->require_subcommand(1);
  bench->fallthrough();
  bench->add_flag("--json", options.json, "One JSON object a line: bench, case, value, unit");
  bench->add_option("--threads", options.threads, "Cores to use (all)")->check(CLI::Range(0, 4096));
  bench->add_option("--seconds", options.seconds, "How long to measure, about (2)")
      ->check(Seconds(kLeastMeasured));
  const auto add_model = [&](CLI::App* command) {
    command->add_option("--model", options.model, "One of the step benchmark's models")
        ->check(CLI::IsMember(
            std::vector<std::string>(std::begin(kModelNames), std::end(kModelNames))));
    command->add_option("--batch", options.batch, "Samples a step")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
  };
  bench->add_subcommand("null", "Empty nodes a second, and the time of a run of one node")
      ->callback([&] { BenchNull(options); });
  CLI::App* step = bench->add_subcommand("step", "Time of a training step (all models)");
  add_model(step);
  step->add_flag("--losses", options.losses,
                 "Also print the losses of the first steps, from the initial values of peers");
  step->callback([&] { BenchStep(options); });
  CLI::App* peak = bench->add_subcommand("peak", "Memory of a training step (cnn, batch 256)");
  add_model(peak);
  peak->add_flag("--list", options.list, "Also what is alive at the peak, the largest first");
  peak->callback([&] { BenchPeak(options); });
  CLI::App* placing = bench->add_subcommand(
      "placement", "Predicted against measured step times on one and two devices");
  const std::vector<std::string_view> names = PlacementModelNames();
  placing->add_option("--model", options.model, "One of them (all)")
      ->check(CLI::IsMember(std::vector<std::string>(names.begin(), names.end())));
  bool exhaustive = false;
  placing->add_flag("--exhaustive", exhaustive,
                    "All placements of the two-tower model's parts, against the automatic one");
  placing->callback([&] { exhaustive ? BenchExhaustive(options) : BenchPlacement(options); });
  CLI::App* gemm = bench->add_subcommand("gemm", "Floating-point rate of a large matrix product");
  bool sweep = false;
  gemm->add_flag("--sweep", sweep,
                 "Many shapes by both kernels, and which of them is chosen for each");
  gemm->callback([&] { sweep ? BenchGemmSweep(options) : BenchGemm(options); });
  bench->add_subcommand("memory", "Bandwidth of memory")->callback([&] { BenchMemory(options); });
  CLI::App* cluster = bench->add_subcommand("cluster", "Steps over several processes of this host");
  cluster
      ->add_option("--part", options.part,
                   "null, rows, small, dense, transfer, start, many or devices (all)")
      ->check(CLI::IsMember(
          {"null", "rows", "small", "dense", "transfer", "start", "many", "devices"}));
  cluster->add_option("--config", options.config,
                      "Be worker 0 of the cluster in this file, whose ps tasks run already");
  cluster->callback([&] {
    const char* const token = std::getenv("TUTTI_JOB_TOKEN");
    options.token = token != nullptr ? token : "";
    BenchCluster(options, "/proc/self/exe");
  });
  std::string link_listen, link_connect;
  CLI::App* link = bench->add_subcommand("link", "Latency and rate of a link between two tasks");
  link->add_option("--listen", link_listen, "Be the side that answers, at host:port");
  link->add_option("--connect", link_connect, "Measure against that side, at host:port");
  link->callback([&] { BenchLink(options, link_listen, link_connect); });
  bool child = false;
  CLI::App* startup =
      bench->add_subcommand("startup", "From process start to the end of the first step");
  startup->add_flag("--child", child)->group("");
  startup->callback([&] {
    if (child) {
      StartupChild();
    } else {
      BenchStartup(options, "/proc/self/exe");
    }
  });

  AllReduceBench collective;
  CLI::App* allreduce = bench->add_subcommand("allreduce", "Time of an all-reduce");
  allreduce->add_option("--ranks", collective.ranks, "Numbers of ranks (2)")->delimiter(',');
  allreduce
      ->add_option("--bytes", collective.bytes,
                   "Sizes, multiples of 4 (4,1K,64K,256K,1M,4M,16M,64M,256M)")
      ->delimiter(',');
  allreduce
      ->add_option("--transport", collective.transports, "auto, shm, tcp, ucx or shm+ucx (shm)")
      ->delimiter(',');
  allreduce->add_option("--algorithm", collective.algorithm, "auto, or the name of one (auto)");
  allreduce->add_option("--memory", collective.memory, "registered or ordinary (registered)")
      ->check(CLI::IsMember({"registered", "ordinary"}));
  allreduce->add_option("--reduction", collective.reduction,
                        "sum, mean, min, max or product (sum)");
  allreduce->add_option("--wire", collective.wire, "as-is, bfloat16 or float16 (as-is)");
  allreduce->add_flag("--broadcast", collective.broadcast,
                      "Measure a broadcast from rank 0 instead");
  allreduce
      ->add_option("--busy", collective.busy,
                   "Processes that compute all the time beside the ranks (0)")
      ->check(CLI::Range(0, 1024));
  allreduce->add_flag("--explain", collective.explain, "Show why the algorithm was chosen");
  allreduce->add_option("--rank", collective.rank, "Run as one rank of a job, with --size");
  allreduce->add_option("--size", collective.size, "Ranks of that job");
  allreduce->add_option("--address", collective.address, "Where its rank 0 listens, host:port");
  allreduce->add_option("--file", collective.file, "Where its rank 0 writes its address");
  allreduce->add_option("--parent", collective.parent)->group("");
  allreduce->callback([&] {
    collective.json = options.json;
    collective.seconds = bench->count("--seconds") > 0 ? options.seconds : 0.2;
    if (collective.rank >= 0) {
      AllReduceRank(collective);
    } else {
      BenchAllReduce(collective, "/proc/self/exe");
    }
  });

  CheckpointBench saving;
  CLI::App* checkpoint = bench->add_subcommand("checkpoint", "Time of a save and of a restore");
  checkpoint->add_option("--bytes", saving.bytes, "Size of all variables (500M)");
  checkpoint->add_option("--dir", saving.folder, "Where to write (.)");
  checkpoint->add_option("--rounds", saving.rounds, "Saves to take the median of (5)")
      ->check(CLI::Range(1, 1000));
  checkpoint->callback([&] {
    saving.json = options.json;
    BenchCheckpoint(saving);
  });

  try {
    app.parse(argc, argv);
  } catch (const CLI::RequiredError& error) {
    // A word that is no command leaves the command missing; the word says more.
    if (const std::vector<std::string> words = app.remaining(true); !words.empty()) {
      FormatTo(stderr, "tutti: \"{}\" is not known here; --help lists what is\n", words.front());
      return kUsage;
    }
    app.exit(error);
    return kUsage;
  } catch (const CLI::ParseError& error) {
    if (app.exit(error) != 0) return kUsage;
  } catch (const Error& error) {
    FormatTo(stderr, "tutti: {}\n", error.what());
    return ExitCodeOf(error);
  } catch (const std::exception& error) {
    FormatTo(stderr, "tutti: {}\n", error.what());
    return kFailed;
  }
  if (result != 0) return result;
  if (const absl::Status status = FinishStdout(); !status.ok()) {
    FormatTo(stderr, "tutti: {}\n", MessageOf(status));
    return kFailed;
  }
  return 0;
}

}  // namespace
}  // namespace tutti::tools

int main(int argc, char** argv) { return tutti::tools::Main(argc, argv); }
