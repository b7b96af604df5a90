#include "tools/tutti/serve.h"

#include <fmt/format.h>
#include <pthread.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <thread>

#include "tutti/base/console.h"
#include "tutti/base/metrics/metrics.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/cluster/cluster_file.h"
#include "tutti/cluster/environment/roles.h"
#include "tutti/cluster/server.h"
#include "tutti/cluster/tf_config.h"
#include "tutti/http/metrics_page.h"
#include "tutti/kernels/register.h"
#include "tutti/topology/quantity.h"

namespace tutti::tools {
namespace {

constexpr int kPeerLost = 128;

// The task that this process is, from where the command line says.
ServerOptions ReadOptions(const ServeOptions& options) {
  ServerOptions server;
  // A launcher that sets TF_CONFIG needs no flag.
  const bool launched = options.config.empty() && std::getenv("TF_CONFIG") != nullptr;
  if ((options.tf_config || launched) == !options.config.empty()) {
    ThrowInvalidArgument("server: give either --tf-config or --config FILE");
  }
  if (options.tf_config || launched) {
    const auto config = ValueOrThrow(TfConfigFromEnvironment());
    if (!config) ThrowInvalidArgument("server: --tf-config is given, and TF_CONFIG is not set");
    if (config->sparse) {
      ThrowInvalidArgument(
          "server: TF_CONFIG has a sparseCluster, which does not name all tasks of the cluster; "
          "set enableDynamicWorker to false in the TFJob, or leave it out");
    }
    server.job = config->task.job;
    server.task = config->task.index;
    server.cluster = config->cluster.jobs();
  } else {
    const ClusterFile file = ValueOrThrow(ReadClusterFile(options.config));
    server.job = options.job.empty() ? file.job : options.job;
    server.task = options.task < 0 ? file.task : options.task;
    server.cluster = file.cluster.jobs();
    if (server.job.empty() || server.task < 0) {
      ThrowInvalidArgument(fmt::format(
          "server: {} does not say which task this is; give --job and --task", options.config));
    }
  }
  if (options.devices == kNuma) {
    server.device_per_numa_node = true;
  } else {
    server.devices = std::stoi(options.devices);  // checked when it was read
  }
  server.cores_per_device = options.cores;
  if (!options.device_memory.empty()) {
    const absl::StatusOr<int64_t> bytes = topology::ParseBytes(options.device_memory);
    ThrowIfError(WithPrefix(bytes.status(), "server: --device-memory: "));
    server.device_memory = *bytes;
  }
  server.bind = options.bind;
  server.insecure = options.insecure;
  server.start_seconds = options.start_seconds;
  server.coordinator = options.coordinator;
  // With the store in a task, who was stopped or cut off itself has lost the store as well, and can
  // report nobody.
  server.reports_lost = !options.coordinator.starts_with("etcd://");
  const char* const token = std::getenv("TUTTI_JOB_TOKEN");
  server.token = !options.token_file.empty() ? ValueOrThrow(ReadToken(options.token_file))
                 : token != nullptr          ? token
                                             : "";
  return server;
}

// Well until it has to end.
http::MetricsPage::Health HealthOf(Server& server) {
  try {
    const bool ends = server.JoinFor(std::chrono::nanoseconds(0));
    return {.well = !ends, .text = (ends ? "ends: " : "ok: ") + server.task()};
  } catch (const Error& error) {
    return {.well = false, .text = error.what()};
  }
}

// Null where --http is not given. The page and the metrics must not outlive the server.
std::unique_ptr<http::MetricsPage> ServeMetrics(const ServeOptions& options,
                                                const ServerOptions& task, Server& server,
                                                MetricsRegistry& metrics) {
  if (options.http.empty()) return nullptr;
  AddProcessMetrics(metrics);
  server.AddMetrics(metrics);
  metrics
      .AddGauge("tutti_task_info", "1, with what this process is in its labels.",
                {{"task", server.task()}})
      .Set(1);
  const auto place = http::ParseHttpPlace(options.http);
  ThrowIfError(WithPrefix(place.status(), "server: --http "));
  const ClusterSpec cluster = ValueOrThrow(ClusterSpec::Make(task.cluster));
  auto page = ValueOrThrow(http::MetricsPage::Start(
      {.host = place->host,
       .port = place->port + PositionOnHost(cluster, {task.job, task.task}),
       .metrics = &metrics,
       .health = [&server] { return HealthOf(server); }}));
  FormatTo(stdout, "tutti server: metrics at {}/metrics\n", page->address());
  return page;
}

}  // namespace

int Serve(const ServeOptions& options) {
  // All threads of the server leave these signals to the one that waits for them.
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGINT);
  sigaddset(&ends, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  RegisterCpuKernels();
  ServerOptions task = ReadOptions(options);
  task.stopped = [] {
    sigset_t pending;
    sigpending(&pending);
    return sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1;
  };
  Server server(task);
  MetricsRegistry metrics;
  const std::unique_ptr<http::MetricsPage> page = ServeMetrics(options, task, server, metrics);
  FormatTo(stdout, "tutti server: {} listens at {}\n", server.task(),
           options.bind.empty() ? server.address()
                                : options.bind + ", others reach it at " + server.address());
  std::fflush(stdout);
  // Ends when a signal comes, or is sent to it when Join returns for another reason.
  class SignalThread {
   public:
    SignalThread(const sigset_t& ends, Server& server)
        : thread_(ValueOrThrow(StartThread("the thread that waits for signals", [&ends, &server] {
            int signal = 0;
            sigwait(&ends, &signal);
            server.Stop();
          }))) {}
    ~SignalThread() {
      pthread_kill(thread_.native_handle(), SIGTERM);
      thread_.join();
    }

   private:
    std::thread thread_;
  };
  const SignalThread waits(ends, server);
  try {
    server.Join();
  } catch (const Error& error) {
    if (error.code() != Code::kUnavailable && error.code() != Code::kAborted) throw;
    FormatTo(stderr, "tutti server: {}\n", error.what());
    return kPeerLost;
  }
  return 0;
}

}  // namespace tutti::tools
