// What tests of clusters of real processes have in common.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/cluster/target.h"
#include "tutti/launch/local_cluster.h"
#include "tutti/tutti.h"

namespace tutti {

inline constexpr const char* kPs0 = "/job:ps/task:0";
inline constexpr const char* kChief = "/job:chief/task:0";
inline constexpr const char* kPs1 = "/job:ps/task:1";
inline constexpr const char* kWorker = "/job:worker/task:0";

struct Failure {
  Code code = Code::kOk;
  std::string text;
};

inline Failure FailureOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {};
}

inline std::vector<TaskStatus> StatusesOf(const std::string& target) {
  return ValueOrThrow(StatusOfTarget({.target = target}));
}

inline TaskStatus StatusOf(const LocalCluster& cluster, const std::string& task) {
  for (TaskStatus& status : StatusesOf(cluster.target(task))) {
    if (status.task == task) return std::move(status);
  }
  return {};
}

// Looks until it is so, for at most a minute.
inline bool Eventually(const std::function<bool()>& is_so) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > end) return false;
  }
  return true;
}

inline Tensor Ramp(int64_t n) {
  Tensor tensor(kFloat32, {n});
  for (int64_t i = 0; i < n; ++i) tensor.data<float>()[i] = float(i % 1000);
  return tensor;
}

}  // namespace tutti
