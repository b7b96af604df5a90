#include "tutti/placement/machine_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace tutti::placement {
namespace {

// Below this a kernel does not share its work among cores.
constexpr double kSharedBytes = 128e3;
constexpr double kSharedOperations = 1e6;

double PerByte(const KindSpeed& kind, double bytes) {
  return kind.per_byte_cached + MemoryPart(bytes) * (kind.per_byte_memory - kind.per_byte_cached);
}

}  // namespace

double MemoryPart(double bytes) {
  if (bytes <= kCachedBytes) return 0;
  if (bytes >= kMemoryBytes) return 1;
  return std::log(bytes / kCachedBytes) / std::log(kMemoryBytes / kCachedBytes);
}

MachineSpeed MachineSpeed::Typical() {
  MachineSpeed speed;
  speed.node_seconds = 0.3e-6;
  speed.step_seconds = 3e-6;
  speed.wake_seconds = 30e-6;
  const auto set = [&](WorkKind kind, double per_operation, double cached, double memory) {
    speed.kinds[size_t(kind)] = {per_operation, cached, memory};
  };
  set(WorkKind::kMatrix, 1 / 80e9, 1 / 40e9, 1 / 20e9);
  set(WorkKind::kConvolution, 1 / 60e9, 1 / 40e9, 1 / 20e9);
  set(WorkKind::kElementwise, 0, 1 / 40e9, 1 / 12e9);
  set(WorkKind::kFunction, 0, 1 / 8e9, 1 / 6e9);
  set(WorkKind::kReduction, 0, 1 / 15e9, 1 / 10e9);
  set(WorkKind::kCopy, 0, 1 / 30e9, 1 / 10e9);
  set(WorkKind::kMovement, 0, 1 / 10e9, 1 / 6e9);
  set(WorkKind::kRandom, 0, 1 / 1.5e9, 1 / 1.5e9);
  set(WorkKind::kOther, 0, 1 / 2e9, 1 / 2e9);
  speed.crowded = speed.kinds;
  speed.same_task = {.bytes_per_second = 1e12, .latency = 10e-6};
  speed.same_host = {.bytes_per_second = 4e9, .latency = 40e-6};
  speed.network = {.bytes_per_second = 1e9, .latency = 100e-6};
  return speed;
}

double SecondsOf(const NodeWork& work, const MachineSpeed& speed, int cores, bool crowded) {
  if (work.kind == WorkKind::kNone) return 0;
  const KindSpeed& kind = (crowded ? speed.crowded : speed.kinds)[size_t(work.kind)];
  const double bytes = work.read_bytes + work.write_bytes;
  double seconds = work.operations * kind.per_operation + bytes * PerByte(kind, bytes);
  if (bytes >= kSharedBytes || work.operations >= kSharedOperations) {
    seconds /= double(std::max(1, cores));
  }
  return seconds + speed.node_seconds;
}

std::string MachineSpeed::ToJson() const {
  const auto table = [](const std::array<KindSpeed, kWorkKinds>& speeds) {
    nlohmann::json json;
    for (int i = 0; i < kWorkKinds; ++i) {
      const KindSpeed& kind = speeds[size_t(i)];
      json[std::string(NameOf(WorkKind(i)))] = {{"per_operation", kind.per_operation},
                                                {"per_byte_cached", kind.per_byte_cached},
                                                {"per_byte_memory", kind.per_byte_memory}};
    }
    return json;
  };
  const auto link = [](const topology::Link& l) {
    return nlohmann::json{{"bytes_per_second", l.bytes_per_second}, {"latency", l.latency}};
  };
  return nlohmann::json{{"cores", cores},
                        {"node_seconds", node_seconds},
                        {"step_seconds", step_seconds},
                        {"wake_seconds", wake_seconds},
                        {"kinds", table(kinds)},
                        {"crowded", table(crowded)},
                        {"same_task", link(same_task)},
                        {"same_host", link(same_host)},
                        {"network", link(network)}}
      .dump();
}

absl::StatusOr<MachineSpeed> MachineSpeed::FromJson(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  absl::Status wrong;
  const auto number = [&](const nlohmann::json& from, const std::string& key) -> double {
    const auto it = from.is_object() ? from.find(key) : from.end();
    if (it != from.end() && it->is_number() && it->get<double>() >= 0) return it->get<double>();
    if (wrong.ok()) wrong = InvalidArgument("machine speed: \"{}\" is no number of 0 or more", key);
    return 0;
  };
  const auto part = [&](const nlohmann::json& from, const std::string& key) -> nlohmann::json {
    const auto it = from.is_object() ? from.find(key) : from.end();
    return it != from.end() ? *it : nlohmann::json();
  };
  MachineSpeed speed;
  speed.cores = std::max(1, int(std::min(number(json, "cores"), 1e6)));
  speed.node_seconds = number(json, "node_seconds");
  speed.step_seconds = number(json, "step_seconds");
  speed.wake_seconds = number(json, "wake_seconds");
  const auto table = [&](const std::string& key, std::array<KindSpeed, kWorkKinds>& speeds) {
    const nlohmann::json kinds_json = part(json, key);
    for (int i = 0; i < kWorkKinds; ++i) {
      const nlohmann::json kind = part(kinds_json, std::string(NameOf(WorkKind(i))));
      speeds[size_t(i)] = {number(kind, "per_operation"), number(kind, "per_byte_cached"),
                           number(kind, "per_byte_memory")};
    }
  };
  table("kinds", speed.kinds);
  table("crowded", speed.crowded);
  const auto link = [&](const std::string& key) {
    const nlohmann::json from = part(json, key);
    return topology::Link{.bytes_per_second = number(from, "bytes_per_second"),
                          .latency = number(from, "latency")};
  };
  speed.same_task = link("same_task");
  speed.same_host = link("same_host");
  speed.network = link("network");
  if (!wrong.ok()) return wrong;
  return speed;
}

}  // namespace tutti::placement
