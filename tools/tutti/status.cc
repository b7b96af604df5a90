#include "tutti/base/status.h"

#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/tutti/serve.h"
#include "tutti/base/console.h"
#include "tutti/cluster/cluster_file.h"
#include "tutti/cluster/target.h"
#include "tutti/topology/quantity.h"

namespace tutti::tools {
namespace {

using topology::FormatBytes;

void PrintTask(const TaskStatus& task) {
  if (!task.error.empty()) {
    FormatTo(stdout, "{}  does not answer: {}\n", task.task, task.error);
    return;
  }
  FormatTo(stdout, "{}  {}  incarnation {:016x}  up {:.1f} s  memory {}\n", task.task, task.address,
           task.incarnation, double(task.uptime_nanos) / 1e9,
           FormatBytes(double(task.memory_bytes)));
  for (const DeviceInfo& device : task.devices) {
    FormatTo(stdout, "  device {}  {} core{}\n", device.name, device.cores,
             device.cores == 1 ? "" : "s");
  }
  FormatTo(stdout,
           "  sessions {}  registered steps {}  refused values {}  refused links {}  messages of "
           "fenced processes {}\n",
           task.sessions, task.registered_steps, task.refused_values, task.refused_links,
           task.fenced_messages);
  for (const TaskStatus::Link& link : task.links) {
    FormatTo(stdout, "  link to {}  sent {} in {} messages, received {} in {}\n", link.peer,
             FormatBytes(double(link.bytes_sent)), link.messages_sent,
             FormatBytes(double(link.bytes_received)), link.messages_received);
  }
  for (const TaskStatus::Step& step : task.steps) {
    FormatTo(stdout, "  runs step {} of {} for {:.3f} s{}{}\n", step.step, step.master,
             double(step.running_nanos) / 1e9, step.waits_for.empty() ? "" : ", waits for ",
             step.waits_for);
  }
}

void PrintJson(const TaskStatus& task) {
  nlohmann::ordered_json json = {{"task", task.task}};
  if (!task.error.empty()) {
    json["error"] = task.error;
  } else {
    json["address"] = task.address;
    json["incarnation"] = fmt::format("{:016x}", task.incarnation);
    json["uptime_seconds"] = double(task.uptime_nanos) / 1e9;
    json["memory_bytes"] = task.memory_bytes;
    json["sessions"] = task.sessions;
    json["registered_steps"] = task.registered_steps;
    json["refused_values"] = task.refused_values;
    json["refused_links"] = task.refused_links;
    json["fenced_messages"] = task.fenced_messages;
    for (const DeviceInfo& device : task.devices) json["devices"].push_back(device.name);
    for (const TaskStatus::Link& link : task.links) {
      json["links"].push_back({{"peer", link.peer},
                               {"bytes_sent", link.bytes_sent},
                               {"messages_sent", link.messages_sent},
                               {"bytes_received", link.bytes_received},
                               {"messages_received", link.messages_received}});
    }
    for (const TaskStatus::Step& step : task.steps) {
      json["steps"].push_back({{"session", fmt::format("{:016x}", step.session)},
                               {"step", step.step},
                               {"master", step.master},
                               {"running_seconds", double(step.running_nanos) / 1e9},
                               {"waits_for", step.waits_for}});
    }
  }
  FormatTo(stdout, "{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

}  // namespace

namespace {

TargetOptions TargetOf(std::string target, const std::string& token_file) {
  constexpr double kSeconds = 5;
  if (!target.starts_with("tutti://")) target = "tutti://" + target;
  return {.target = std::move(target),
          .token = token_file.empty() ? "" : ValueOrThrow(ReadToken(token_file)),
          .start_seconds = kSeconds};
}

}  // namespace

void Reset(const ResetOptions& options) {
  ThrowIfError(ResetTarget(TargetOf(options.target, options.token_file), options.container));
}

bool PrintStatus(const StatusOptions& options) {
  bool all = true;
  for (const TaskStatus& task :
       ValueOrThrow(StatusOfTarget(TargetOf(options.target, options.token_file)))) {
    all = all && task.error.empty();
    if (options.json) {
      PrintJson(task);
    } else {
      PrintTask(task);
    }
  }
  return all;
}

}  // namespace tutti::tools
