#include "tutti/cluster/cluster_file.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "tutti/base/status.h"
#include "tutti/topology/nesting.h"

namespace tutti {
namespace {

absl::StatusOr<std::string> ReadWhole(const std::string& path) {
  constexpr size_t kMost = size_t{1} << 20;
  std::ifstream file(path, std::ios::binary);
  if (!file) return InvalidArgument("cannot read {}: {}", path, std::strerror(errno));
  std::string text;
  for (char block[4096]; file.read(block, sizeof block), file.gcount() > 0;) {
    text.append(block, size_t(file.gcount()));
    if (text.size() > kMost) return InvalidArgument("{} has more than {} bytes", path, kMost);
  }
  return text;
}

absl::StatusOr<ClusterSpec::Jobs> ReadJobs(const toml::table& cluster, const std::string& path) {
  ClusterSpec::Jobs jobs;
  for (const auto& [key, value] : cluster) {
    const std::string job(key.str());
    const toml::array* const addresses = value.as_array();
    if (addresses == nullptr) {
      return InvalidArgument("{}: cluster.{} is not a list; expected [\"host:port\", ...]", path,
                             job);
    }
    int index = 0;
    for (const toml::node& item : *addresses) {
      const auto* const address = item.as_string();
      if (address == nullptr) {
        return InvalidArgument("{}: cluster.{}[{}] is not a string; expected \"host:port\"", path,
                               job, index);
      }
      jobs[job][index++] = address->get();
    }
    jobs.try_emplace(job);
  }
  return jobs;
}

absl::Status ReadTask(const toml::table& task, const std::string& path, ClusterFile& file) {
  for (const auto& [key, value] : task) {
    if (key.str() == "job" && value.is_string()) {
      file.job = value.as_string()->get();
    } else if (key.str() == "index" && value.is_integer() && value.as_integer()->get() >= 0 &&
               value.as_integer()->get() < INT32_MAX) {
      file.task = int(value.as_integer()->get());
    } else {
      return InvalidArgument("{}: task.{}: expected job = \"NAME\" and index = 0 or more", path,
                             key.str());
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path));
  constexpr int kDeepest = 32;  // the parser recurses into what is nested
  if (const int line = topology::LineNestedDeeperThan(kDeepest, text); line > 0) {
    return InvalidArgument("{}:{}: nested deeper than {}", path, line, kDeepest);
  }
  toml::table table;
  try {
    table = toml::parse(text);
  } catch (const toml::parse_error& error) {
    return InvalidArgument("{}:{}: {}", path, error.source().begin.line,
                           std::string_view(error.description()));
  }
  for (const auto& [key, value] : table) {
    if ((key.str() == "cluster" || key.str() == "task") && value.is_table()) continue;
    // What planning wants to know of the devices and links (tutti/placement/machines.h).
    if (key.str() == "device" || key.str() == "host" || key.str() == "network") continue;
    return InvalidArgument("{}: \"{}\" is not known there; expected [cluster] and [task]", path,
                           key.str());
  }
  ClusterFile file;
  const toml::table* const cluster = table["cluster"].as_table();
  if (cluster == nullptr) {
    return InvalidArgument("{} has no [cluster]; expected jobs, such as ps = [\"host:port\"]",
                           path);
  }
  TUTTI_ASSIGN_OR_RETURN(ClusterSpec::Jobs jobs, ReadJobs(*cluster, path));
  TUTTI_ASSIGN_OR_RETURN(file.cluster, ClusterSpec::Make(std::move(jobs), path + ": cluster"));
  if (const toml::table* const task = table["task"].as_table()) {
    TUTTI_RETURN_IF_ERROR(ReadTask(*task, path, file));
  }
  return file;
}

absl::StatusOr<std::string> ReadToken(const std::string& path) {
  TUTTI_ASSIGN_OR_RETURN(const std::string text, ReadWhole(path));
  std::string token = text.substr(0, text.find_first_of("\r\n"));
  if (token.empty()) return InvalidArgument("{}: the first line, the token, is empty", path);
  return token;
}

}  // namespace tutti
