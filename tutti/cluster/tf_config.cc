#include "tutti/cluster/tf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "tutti/base/status.h"

namespace tutti {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMaxDepth = 16;

// A JSON value for an error message: short, and with its type where that is the mistake.
std::string Show(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  constexpr size_t kMax = 60;
  if (text.size() > kMax) text = text.substr(0, kMax) + "...";
  return text;
}

// Parses, and refuses a key that stands twice in one object, where JSON would quietly take the
// last.
absl::StatusOr<Json> ParseJson(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  std::string twice;
  bool deep = false;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& parsed) {
    deep = deep || depth > kMaxDepth;
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key &&
        !keys.back().insert(parsed.get<std::string>()).second) {
      twice = parsed.get<std::string>();
    }
    return !deep;
  };
  try {
    Json json = Json::parse(text, watch);
    if (deep) return InvalidArgument("TF_CONFIG is nested deeper than {} levels", kMaxDepth);
    if (!twice.empty()) {
      return InvalidArgument("TF_CONFIG has the key \"{}\" twice in one object", twice);
    }
    return json;
  } catch (const Json::parse_error& error) {
    // The parser counts from 1, and the end of the text as one more byte.
    const std::string place = error.byte > text.size()
                                  ? fmt::format("it ends too early, at byte {}", text.size())
                                  : fmt::format("at byte {} of {}", error.byte, text.size());
    return InvalidArgument("TF_CONFIG is not JSON: {}: {}", place, std::string_view(error.what()));
  }
}

absl::StatusOr<const Json*> Find(const Json& object, const std::string& key, std::string_view where,
                                 std::string_view expected) {
  const auto found = object.find(key);
  if (found != object.end()) return &*found;
  std::string others;
  for (const auto& [name, value] : object.items()) {
    others += (others.empty() ? "\"" : ", \"") + name + "\"";
  }
  return InvalidArgument("{} has no \"{}\"; found {}; expected {}", where, key,
                         others.empty() ? "nothing" : others, expected);
}

// The index that a key of a sparse job names: digits, written in the one way there is.
absl::StatusOr<int> ParseIndex(const std::string& job, const std::string& key) {
  int index = -1;
  const char* end = key.data() + key.size();
  const auto [rest, error] = std::from_chars(key.data(), end, index);
  if (error != std::errc() || rest != end || index < 0 || key != std::to_string(index)) {
    return InvalidArgument(
        "TF_CONFIG: cluster.{} has the key \"{}\"; expected a task index such as \"1\"", job, key);
  }
  return index;
}

absl::StatusOr<std::map<int, std::string>> ParseJob(const std::string& job, const Json& value) {
  std::map<int, std::string> tasks;
  if (!value.is_array() && !value.is_object()) {
    return InvalidArgument(
        "TF_CONFIG: cluster.{} is {}; expected a list of \"host:port\" or a map from index to "
        "\"host:port\"",
        job, Show(value));
  }
  int position = 0;
  for (const auto& [key, address] : value.items()) {
    int index = position++;
    if (value.is_object()) {
      TUTTI_ASSIGN_OR_RETURN(index, ParseIndex(job, key));
    }
    if (!address.is_string()) {
      return InvalidArgument("TF_CONFIG: cluster.{}[{}] is {}; expected a string \"host:port\"",
                             job, index, Show(address));
    }
    tasks[index] = address.get<std::string>();
  }
  return tasks;
}

// Of {"worker": {"1": "host:port"}, "ps": [...]}. A worker has itself and all ps in it; a ps has no
// worker, and its own address as a list of one, whatever its index; the others have nobody. Jobs
// without tasks are written, too, as {}, [] or null.
absl::StatusOr<ClusterSpec> ParseSparseCluster(const Json& value, const TaskId& self) {
  if (!value.is_object()) {
    return InvalidArgument("TF_CONFIG: sparseCluster is {}; expected an object of jobs",
                           Show(value));
  }
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : value.items()) {
    if (tasks.empty()) continue;
    TUTTI_ASSIGN_OR_RETURN(auto parsed, ParseJob(job, tasks));
    if (job == self.job && tasks.is_array() && tasks.size() == 1) {
      parsed = {{self.index, parsed.begin()->second}};
    }
    jobs[job] = std::move(parsed);
  }
  if (jobs.empty()) return ClusterSpec();
  return ClusterSpec::Make(std::move(jobs), "TF_CONFIG: sparseCluster");
}

absl::StatusOr<ClusterSpec> ParseCluster(const Json& value) {
  if (!value.is_object()) {
    return InvalidArgument("TF_CONFIG: cluster is {}; expected an object of jobs", Show(value));
  }
  ClusterSpec::Jobs jobs;
  for (const auto& [job, tasks] : value.items()) {
    TUTTI_ASSIGN_OR_RETURN(jobs[job], ParseJob(job, tasks));
  }
  return ClusterSpec::MakeForTraining(std::move(jobs), "TF_CONFIG: cluster");
}

absl::StatusOr<TaskId> ParseTask(const Json& value) {
  if (!value.is_object()) {
    return InvalidArgument(
        "TF_CONFIG: task is {}; expected an object such as {{\"type\": \"worker\", \"index\": 0}}",
        Show(value));
  }
  TUTTI_ASSIGN_OR_RETURN(const Json* type,
                         Find(value, "type", "TF_CONFIG: task", "the name of a job"));
  if (!type->is_string()) {
    return InvalidArgument("TF_CONFIG: task.type is {}; expected a string such as \"worker\"",
                           Show(*type));
  }
  TUTTI_ASSIGN_OR_RETURN(const Json* index,
                         Find(value, "index", "TF_CONFIG: task", "a number from 0"));
  if (!index->is_number_integer() || *index < 0 || *index > INT32_MAX) {
    return InvalidArgument("TF_CONFIG: task.index is {}; expected an integer from 0", Show(*index));
  }
  return TaskId{type->get<std::string>(), index->get<int>()};
}

absl::Status CheckMember(const ClusterSpec& cluster, const TaskId& task) {
  if (cluster.Has(task)) return absl::OkStatus();
  const auto job = cluster.jobs().find(task.job);
  if (job == cluster.jobs().end()) {
    if (task.job == "evaluator" && task.index == 0) return absl::OkStatus();
    std::string jobs;
    for (const auto& [name, tasks] : cluster.jobs()) jobs += (jobs.empty() ? "" : ", ") + name;
    return InvalidArgument("TF_CONFIG: task.type is \"{}\", which cluster does not have; it has {}",
                           task.job, jobs);
  }
  std::string indices;
  for (const auto& [index, address] : job->second) {
    indices += (indices.empty() ? "" : ", ") + std::to_string(index);
  }
  return InvalidArgument("TF_CONFIG: task.index is {}, but cluster.{} has the index {}", task.index,
                         task.job, indices);
}

}  // namespace

int TaskConfig::TrainerRank() const {
  const std::vector<TaskId> trainers = cluster.Trainers();
  const auto self = std::find(trainers.begin(), trainers.end(), task);
  return self == trainers.end() ? -1 : static_cast<int>(self - trainers.begin());
}

absl::StatusOr<TaskConfig> ParseTfConfig(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return InvalidArgument(
        "TF_CONFIG is set but empty; expected {{\"cluster\": {{...}}, \"task\": {{...}}}}, or "
        "unset "
        "it to run alone");
  }
  TUTTI_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  if (!json.is_object()) {
    return InvalidArgument("TF_CONFIG is {}; expected an object with cluster and task", Show(json));
  }
  TaskConfig config;
  config.sparse = json.contains("sparseCluster") && !json.contains("cluster");
  TUTTI_ASSIGN_OR_RETURN(
      const Json* cluster,
      Find(json, config.sparse ? "sparseCluster" : "cluster", "TF_CONFIG", "the jobs"));
  if (!config.sparse) {
    TUTTI_ASSIGN_OR_RETURN(config.cluster, ParseCluster(*cluster));
  }
  TUTTI_ASSIGN_OR_RETURN(const Json* task, Find(json, "task", "TF_CONFIG", "who this process is"));
  TUTTI_ASSIGN_OR_RETURN(config.task, ParseTask(*task));
  if (config.sparse) {
    TUTTI_ASSIGN_OR_RETURN(config.cluster, ParseSparseCluster(*cluster, config.task));
  }
  if (!config.sparse || !config.cluster.jobs().empty()) {
    TUTTI_RETURN_IF_ERROR(CheckMember(config.cluster, config.task));
  }
  if (const auto environment = json.find("environment"); environment != json.end()) {
    if (!environment->is_string()) {
      return InvalidArgument("TF_CONFIG: environment is {}; expected a string", Show(*environment));
    }
    config.environment = environment->get<std::string>();
  }
  return config;
}

absl::StatusOr<std::optional<TaskConfig>> TfConfigFromEnvironment() {
  const char* text = std::getenv("TF_CONFIG");
  if (text == nullptr) return std::optional<TaskConfig>();
  TUTTI_ASSIGN_OR_RETURN(TaskConfig config, ParseTfConfig(text));
  return std::optional<TaskConfig>(std::move(config));
}

std::string ToTfConfig(const TaskConfig& config) {
  Json json;
  Json& cluster = json[config.sparse ? "sparseCluster" : "cluster"] = Json::object();
  for (const auto& [job, tasks] : config.cluster.jobs()) {
    // A list where the indices have no gaps, a map otherwise.
    const bool dense = tasks.rbegin()->first + 1 == static_cast<int>(tasks.size());
    Json& entry = cluster[job];
    for (const auto& [index, address] : tasks) {
      if (dense) {
        entry.push_back(address);
      } else {
        entry[std::to_string(index)] = address;
      }
    }
  }
  json["task"] = {{"type", config.task.job}, {"index", config.task.index}};
  if (!config.environment.empty()) json["environment"] = config.environment;
  return json.dump();
}

}  // namespace tutti
