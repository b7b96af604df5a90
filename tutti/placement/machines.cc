#include "tutti/placement/machines.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "tutti/device/device.h"
#include "tutti/topology/nesting.h"
#include "tutti/topology/quantity.h"

namespace tutti::placement {
namespace {

constexpr int kMostDevices = 4096;
constexpr int kDeepest = 8;

int NumberOf(const std::string& name, std::map<std::string, int>& numbers) {
  return numbers.try_emplace(name, int(numbers.size())).first->second;
}

std::string TaskOf(const std::string& device) { return device.substr(0, device.rfind('/')); }

// What a [device] table says of the devices of a task.
struct DeviceKeys {
  int64_t count = 1;
  int64_t cores = 1;
  int64_t memory = 0;
  double speed = 1;
};

class Reader {
 public:
  Reader(const std::string& file, const MachineSpeed& machine) : file_(file) {
    result_.machine = machine;
  }

  absl::StatusOr<Machines> Read(const toml::table& root) {
    for (const auto& [key, value] : root) {
      const std::string_view name = key.str();
      if (name != "cluster" && name != "device" && name != "host" && name != "network" &&
          name != "task") {
        return InvalidArgument("{}: {} is not known; expected cluster, device, host or network",
                               file_, name);
      }
      if (!value.is_table()) {
        return InvalidArgument("{}: {} is not a table; expected [{}]", file_, name, name);
      }
    }
    if (const toml::table* table = root["host"].as_table()) {
      TUTTI_RETURN_IF_ERROR(ReadLink(*table, "host", result_.machine.same_host));
    }
    if (const toml::table* table = root["network"].as_table()) {
      TUTTI_RETURN_IF_ERROR(ReadLink(*table, "network", result_.machine.network));
    }
    DeviceKeys common;
    const toml::table* const devices = root["device"].as_table();
    if (devices != nullptr) TUTTI_RETURN_IF_ERROR(ReadKeys(*devices, "device", true, common));
    const toml::table* const jobs = root["cluster"].as_table();
    if (jobs == nullptr || jobs->empty()) {
      return InvalidArgument("{}: there is no [cluster]; expected JOB = [\"host:port\", ...] in it",
                             file_);
    }
    for (const auto& [key, value] : *jobs) {
      TUTTI_RETURN_IF_ERROR(ReadJob(std::string(key.str()), value, devices, common));
    }
    if (devices != nullptr) TUTTI_RETURN_IF_ERROR(CheckTasks(*devices, *jobs));
    return std::move(result_);
  }

 private:
  absl::Status ReadJob(const std::string& job, const toml::node& value, const toml::table* devices,
                       const DeviceKeys& common) {
    const toml::array* const addresses = value.as_array();
    if (addresses == nullptr || !IsJobName(job)) {
      return InvalidArgument("{}: cluster.{}: expected JOB = [\"host:port\", ...]", file_, job);
    }
    int index = 0;
    for (const toml::node& item : *addresses) {
      const auto* const address = item.as_string();
      if (address == nullptr) {
        return InvalidArgument("{}: cluster.{}[{}] is not a string; expected \"host:port\"", file_,
                               job, index);
      }
      DeviceKeys keys = common;
      const toml::table* own = nullptr;
      if (devices != nullptr) {
        const toml::table* const of_job = (*devices)[job].as_table();
        own = of_job == nullptr ? nullptr : (*of_job)[fmt::format("{}", index)].as_table();
      }
      if (own != nullptr) {
        TUTTI_RETURN_IF_ERROR(ReadKeys(*own, fmt::format("device.{}.{}", job, index), false, keys));
      }
      const std::string host = address->get().substr(0, address->get().rfind(':'));
      TUTTI_RETURN_IF_ERROR(Add(fmt::format("/job:{}/task:{}", job, index), host, keys));
      ++index;
    }
    return absl::OkStatus();
  }

  // Tables [device.JOB.TASK] are of tasks that there are.
  absl::Status CheckTasks(const toml::table& devices, const toml::table& jobs) const {
    for (const auto& [job, value] : devices) {
      if (!value.is_table()) continue;
      const toml::array* const addresses = jobs[job.str()].as_array();
      if (addresses == nullptr) {
        return InvalidArgument("{}: device.{}: [cluster] has no job of this name", file_,
                               job.str());
      }
      for (const auto& [task, keys] : *value.as_table()) {
        bool known = false;
        for (size_t i = 0; i < addresses->size(); ++i) known |= task.str() == std::to_string(i);
        if (known && keys.is_table()) continue;
        return InvalidArgument(
            "{}: device.{}.{}: expected a table of a task, [device.{}.0]; the job has {}", file_,
            job.str(), task.str(), job.str(), addresses->size());
      }
    }
    return absl::OkStatus();
  }

  absl::Status Add(const std::string& task, const std::string& host, const DeviceKeys& keys) {
    for (int64_t i = 0; i < keys.count; ++i) {
      if (result_.size() >= kMostDevices) {
        return InvalidArgument("{}: it has more than {} devices", file_, kMostDevices);
      }
      result_.devices.push_back({.name = fmt::format("{}/cpu:{}", task, i),
                                 .type = "cpu",
                                 .cores = int(keys.cores),
                                 .memory_bytes = keys.memory});
      result_.speed.push_back(keys.speed);
      result_.task.push_back(NumberOf(task, tasks_));
      result_.host.push_back(NumberOf(host, hosts_));
    }
    return absl::OkStatus();
  }

  // `common`: the table may have tables for single tasks beside the keys.
  absl::Status ReadKeys(const toml::table& table, const std::string& where, bool common,
                        DeviceKeys& keys) {
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (common && value.is_table()) continue;
      if ((name == "count" || name == "cores") && value.is_integer() &&
          value.as_integer()->get() >= 1 && value.as_integer()->get() <= kMostDevices) {
        (name == "count" ? keys.count : keys.cores) = value.as_integer()->get();
      } else if (name == "memory" && value.is_string()) {
        TUTTI_ASSIGN_OR_RETURN(keys.memory,
                               Named(topology::ParseBytes(value.as_string()->get()), where, name));
      } else if (name == "speed" && value.is_number()) {
        keys.speed = value.value<double>().value_or(0);
        if (!(keys.speed > 0) || !std::isfinite(keys.speed)) {
          return InvalidArgument("{}: {}.speed: expected a number above 0", file_, where);
        }
      } else {
        return InvalidArgument(
            "{}: {}.{}: expected count and cores (1 to {}), memory (\"16GiB\") or speed (1.5)",
            file_, where, name, kMostDevices);
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReadLink(const toml::table& table, const std::string& where, topology::Link& link) {
    for (const auto& [key, value] : table) {
      const std::string name(key.str());
      if (name == "bandwidth" && value.is_string()) {
        TUTTI_ASSIGN_OR_RETURN(link.bytes_per_second,
                               Named(topology::ParseRate(value.as_string()->get()), where, name));
      } else if (name == "latency" && value.is_string()) {
        TUTTI_ASSIGN_OR_RETURN(
            link.latency, Named(topology::ParseSeconds(value.as_string()->get()), where, name));
      } else {
        return InvalidArgument("{}: {}.{}: expected bandwidth (\"25Gbit/s\") or latency (\"20us\")",
                               file_, where, name);
      }
    }
    return absl::OkStatus();
  }

  template <typename T>
  absl::StatusOr<T> Named(absl::StatusOr<T> value, const std::string& where,
                          const std::string& key) const {
    if (value.ok()) return value;
    return WithPrefix(value.status(), fmt::format("{}: {}.{}: ", file_, where, key));
  }

  const std::string& file_;
  Machines result_;
  std::map<std::string, int> tasks_, hosts_;
};

}  // namespace

void Machines::SetLink(int a, int b, const topology::Link& link) {
  if (measured.empty()) {
    const auto tasks = size_t(*std::max_element(task.begin(), task.end()) + 1);
    measured.assign(tasks, std::vector<topology::Link>(tasks));
  }
  measured[size_t(task[size_t(a)])][size_t(task[size_t(b)])] = link;
}

Machines MakeMachines(std::span<const DeviceInfo> devices, const MachineSpeed& machine) {
  Machines machines;
  machines.machine = machine;
  std::map<std::string, int> tasks;
  for (const DeviceInfo& device : devices) {
    const int task = NumberOf(TaskOf(device.name), tasks);
    machines.devices.push_back(device);
    machines.speed.push_back(1);
    machines.task.push_back(task);
    machines.host.push_back(task);
  }
  return machines;
}

absl::StatusOr<Machines> ParseMachines(std::string_view text, const std::string& file,
                                       const MachineSpeed& machine) {
  if (const int line = topology::LineNestedDeeperThan(kDeepest, text); line > 0) {
    return InvalidArgument("{}:{}: nested deeper than {}", file, line, kDeepest);
  }
  try {
    return Reader(file, machine).Read(toml::parse(text));
  } catch (const toml::parse_error& error) {
    return InvalidArgument("{}:{}: {}", file, error.source().begin.line, error.description());
  }
}

absl::StatusOr<Machines> ReadMachines(const std::string& path, const MachineSpeed& machine) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("cannot read {}: {}", path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  return ParseMachines(text.str(), path, machine);
}

}  // namespace tutti::placement
