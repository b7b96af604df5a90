#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "tutti/cluster/cluster_spec.h"

namespace tutti {

// A cluster as a file describes it, in TOML:
//
//   [cluster]
//   ps = ["host0:2222"]
//   worker = ["host1:2222", "host2:2222"]
//
//   [task]            # which task this host's process is; may be left out
//   job = "ps"
//   index = 0
//
// [device], [host] and [network] are for planning (tutti/placement/machines.h) and not read here.
struct ClusterFile {
  ClusterSpec cluster;
  std::string job;  // "" where the file does not say
  int task = -1;
};

// Every mistake is an INVALID_ARGUMENT that names the file, the key, what was found and what was
// expected.
absl::StatusOr<ClusterFile> ReadClusterFile(const std::string& path);

// The token in a file: its first line, which must not be empty.
absl::StatusOr<std::string> ReadToken(const std::string& path);

}  // namespace tutti
