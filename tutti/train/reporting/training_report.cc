#include "tutti/train/reporting/training_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/console.h"
#include "tutti/base/log.h"
#include "tutti/base/status.h"
#include "tutti/base/text_file.h"
#include "tutti/nn/variables.h"
#include "tutti/train/reporting/model_summary.h"
#include "tutti/train/reporting/packed_text.h"

namespace tutti {
namespace {

constexpr int64_t kTellTimesEvery = 1'000'000'000;  // nanoseconds: to learn them takes milliseconds

double Seconds(int64_t nanos) { return double(nanos) * 1e-9; }

CommunicationStats StatsOf(const RunConfig& config) {
  return config.strategy_object->peers().stats();
}

using Facts = TrainingReport::Facts;

// What a worker tells of itself at the end.
struct Told {
  Facts facts;
  // How many of its gradients had each staleness, in the order of the staleness.
  std::vector<std::pair<std::string, std::string>> staleness;
};

std::vector<Told> GatherTold(Peers& peers, const Facts& facts,
                             const std::map<int64_t, int64_t>& staleness) {
  std::vector<Record> records;
  for (const auto& [name, value] : facts) records.push_back({name, value});
  for (const auto& [updates, gradients] : staleness) {
    records.push_back({"staleness", fmt::format("{}", updates), fmt::format("{}", gradients)});
  }
  std::vector<Told> all;
  for (const std::string& text : peers.Gather("facts", PackRecords(records))) {
    Told& told = all.emplace_back();
    for (const Record& record : UnpackRecords(text)) {
      if (record.size() == 2) told.facts.emplace_back(record[0], record[1]);
      if (record.size() == 3) told.staleness.emplace_back(record[1], record[2]);
    }
  }
  return all;
}

// "worker 0: 12 gradients applied, staleness 0: 7, 1: 5"
std::string RenderFacts(const std::vector<Told>& workers) {
  std::string text;
  for (size_t w = 0; w < workers.size(); ++w) {
    if (workers[w].facts.empty()) continue;
    std::string line;
    for (const auto& [name, value] : workers[w].facts) {
      line += fmt::format("{}{} {}", line.empty() ? "" : ", ", name, value);
    }
    text += fmt::format("worker {}: {}\n", w, line);
  }
  return text;
}

std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    if (static_cast<unsigned char>(c) >= 0x20) quoted += c;
  }
  return quoted + "\"";
}

// {"0":7,"1":5}
std::string StalenessAsJson(const Told& told) {
  std::string text;
  for (const auto& [updates, gradients] : told.staleness) {
    text += fmt::format("{}\"{}\":{}", text.empty() ? "" : ",", updates, gradients);
  }
  return "{" + text + "}";
}

// [{"present":true,"compute":1.5,"staleness":{"0":7,"1":5},"gradients applied":"12"},...]: an entry
// for each worker, by rank.
std::string WorkersAsJson(const std::vector<int>& present, const std::vector<WorkerTime>& times,
                          const std::vector<Told>& told) {
  std::string text;
  for (size_t w = 0; w < times.size(); ++w) {
    const bool there = std::find(present.begin(), present.end(), int(w)) != present.end();
    text += fmt::format(
        "{}{{\"present\":{},\"compute\":{},\"comm_hidden\":{},\"comm_exposed\":{},\"input\":{}",
        text.empty() ? "" : ",", there, times[w].compute, times[w].hidden, times[w].exposed,
        times[w].input);
    if (times[w].has_servers()) {
      text += fmt::format(
          ",\"steps\":{},\"samples\":{},\"bytes_read\":{},\"bytes_written\":{},\"waiting_for\":{}",
          times[w].steps, times[w].samples, times[w].read, times[w].written, times[w].slowest);
    }
    if (!told[w].staleness.empty()) {
      text += fmt::format(",\"staleness\":{}", StalenessAsJson(told[w]));
    }
    for (const auto& [name, value] : told[w].facts) {
      text += fmt::format(",{}:{}", Quoted(name), Quoted(value));
    }
    text += "}";
  }
  return "[" + text + "]";
}

// [{"task":"/job:ps/task:0","busy":0.41,...},...]
std::string ServersAsJson(const std::vector<TaskLoad>& servers) {
  std::string text;
  for (const TaskLoad& server : servers) {
    text += fmt::format(
        "{}{{\"task\":{},\"busy\":{},\"requests\":{},\"bytes_received\":{},\"bytes_sent\":{},"
        "\"lock_seconds\":{},\"cloned_bytes\":{}}}",
        text.empty() ? "" : ",", Quoted(server.task),
        server.nanos > 0 ? double(server.busy_nanos) / double(server.nanos) : 0, server.requests,
        server.bytes_received, server.bytes_sent, Seconds(server.lock_nanos), server.cloned_bytes);
  }
  return "[" + text + "]";
}

}  // namespace

void ShowStart(const RunConfig& config, const Graph& graph, const TrainingGraph& training,
               const Dataset& dataset) {
  const auto variables = nn::TrainableVariables(graph);
  FormatTo(stderr, "{}: {} parameters in {} variables, {} samples\n", config.program,
           nn::CountParameters(variables), variables.size(), dataset.samples());
  FormatTo(stderr, "{}: strategy {}, {} worker{}, {} samples a worker and step, seed {}\n",
           config.program, config.strategy, config.workers(), config.workers() == 1 ? "" : "s",
           config.batch_size * training.spec.accumulate, config.seed);
  const std::string& how = training.nodes.joint.how;
  if (config.verbose && !how.empty()) FormatTo(stderr, "{}: {}\n", config.program, how);
  if (!config.verbose && !config.summary) return;
  std::vector<Output> trained;
  for (const GradientAndVariable& entry : training.gradients) trained.push_back(entry.variable);
  WriteTo(stderr, RenderLayers(SummarizeLayers(training.spec.loss, training.model_nodes, trained)));
}

TrainingReport::TrainingReport(const RunConfig& config, std::string_view how)
    : config_(config),
      how_(how),
      before_(StatsOf(config)),
      own_before_(config.strategy_object->OwnLoad()),
      servers_before_(config.leads() ? config.strategy_object->ServerLoads()
                                     : std::vector<TaskLoad>()),
      begin_(NowNanos()) {
  if (config.metrics != nullptr) metrics_.emplace(*config.metrics, before_.bytes);
}

WorkerTime TrainingReport::OwnTime(int64_t nanos) const {
  const CommunicationStats after = StatsOf(config_);
  WorkerTime own;
  own.total = Seconds(nanos);
  own.input = Seconds(input_nanos_);
  own.exposed = Seconds(after.exposed_nanos - before_.exposed_nanos);
  own.hidden = std::max(0.0, Seconds(after.active_nanos - before_.active_nanos) - own.exposed);
  own.bytes = double(after.bytes - before_.bytes);
  const TaskLoad load = config_.strategy_object->OwnLoad().Since(own_before_);
  if (!load.task.empty()) {
    own.exposed = std::max(0.0, Seconds(run_nanos_ - load.busy_nanos));
    own.read = double(load.bytes_received);
    own.written = double(load.bytes_sent);
  }
  own.steps = double(steps_);
  own.samples = samples_;
  own.compute = std::max(0.0, own.total - own.input - own.exposed);
  for (size_t r = 0; r < after.waited_nanos.size(); ++r) {
    const double waited = Seconds(after.waited_nanos[r] - before_.waited_nanos[r]);
    if (waited > own.waited) {
      own.waited = waited;
      own.slowest = int(r);
    }
  }
  return own;
}

void TrainingReport::CountStep(const StepResult& step) {
  ++steps_, samples_ += step.samples;
  if (step.staleness >= 0) ++staleness_[step.staleness];
  if (!metrics_) return;
  metrics_->CountStep(step.samples, step.loss, StatsOf(config_).bytes);
  metrics_->CountGradient(step.staleness, step.dropped);
  const int64_t now = NowNanos();
  if (now - times_told_ < kTellTimesEvery) return;
  times_told_ = now;
  metrics_->SetTimes(OwnTime(now - begin_));
}

TrainResult TrainingReport::Finish(double loss, const Facts& own_facts) {
  const int64_t nanos = NowNanos() - begin_;
  TrainResult result;
  result.steps = steps_;
  result.loss = loss;
  result.seconds = Seconds(nanos);
  result.samples_per_second = nanos > 0 ? samples_ / Seconds(nanos) : 0;
  std::vector<WorkerTime> times;
  const WorkerTime own_time = OwnTime(nanos);
  if (metrics_) metrics_->SetTimes(own_time);
  const std::string own = ToText(own_time);
  for (const std::string& text : config_.strategy_object->peers().Gather("times", own)) {
    times.push_back(WorkerTimeFromText(text));
  }
  const bool lockstep = config_.strategy_object->InLockstep();
  if (config_.strategy_object->WaitsForWorkers() && times[0].has_servers()) FindSlowest(times);
  if (!lockstep) {
    result.steps = 0;
    double samples = 0;
    for (const WorkerTime& time : times) {
      result.steps += int64_t(time.steps);
      samples += time.samples;
    }
    result.samples_per_second = nanos > 0 ? samples / Seconds(nanos) : 0;
  }
  const std::vector<Told> told =
      GatherTold(config_.strategy_object->peers(), own_facts, staleness_);
  if (!config_.leads()) return result;
  const std::vector<TaskLoad> servers = ServerLoads();
  if (!config_.quiet) {
    FormatTo(stderr, "{} step{} in {:.1f} s, {:.0f} samples/s\n{}{}{}", result.steps,
             result.steps == 1 ? "" : "s", result.seconds, result.samples_per_second,
             RenderTimeTable(times), RenderFacts(told), RenderServerTable(servers));
  }
  if (!config_.report.empty()) {
    Write(result, times[0], WorkersAsJson(config_.strategy_object->peers().Present(), times, told),
          ServersAsJson(servers));
  }
  return result;
}

std::vector<TaskLoad> TrainingReport::ServerLoads() const {
  std::vector<TaskLoad> loads = config_.strategy_object->ServerLoads();
  for (size_t i = 0; i < loads.size(); ++i) loads[i] = loads[i].Since(servers_before_[i]);
  return loads;
}

void TrainingReport::Write(const TrainResult& result, const WorkerTime& own,
                           const std::string& workers, const std::string& servers) const {
  const std::string text = fmt::format(
      "{{\"workers\":{},\"steps\":{},\"seconds\":{},\"samples_per_second\":{},"
      "\"loss\":{},\"compute\":{},\"comm_hidden\":{},\"comm_exposed\":{},\"input\":{},"
      "\"gradients\":\"{}\",\"by_worker\":{},\"by_server\":{}}}\n",
      config_.workers(), result.steps, result.seconds, result.samples_per_second, result.loss,
      own.compute, own.hidden, own.exposed, own.input, how_, workers, servers);
  // What was learnt counts for more than this file.
  if (const absl::Status status = WriteTextFile(config_.report, text); !status.ok()) {
    Log(LogLevel::kWarning, "--report: {}; the training itself is done", MessageOf(status));
  }
}

}  // namespace tutti
