// Mirrors must begin with the same bits. Initial values follow from the seed, so workers on equal
// machines have them already; on different ones the last bits of a random number may differ. So
// workers compare digests, and only variables that differ are broadcast.
//
// A broadcast needs the values in memory that peers can reach, which the step then keeps: with 83
// million parameters and the slots of Adam that would be 1 GB of shared memory on each worker,
// whose pages alone take seconds to make.
#include "tutti/train/strategies/synchronize_state.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/graph/ops/collective.h"
#include "tutti/graph/ops/control.h"
#include "tutti/graph/ops/state.h"

namespace tutti {
namespace {

constexpr size_t kBytesAtOnce = 64 << 20;  // of variables that are fetched together

// Four sums at a time, so that reading memory is what takes the time.
uint64_t DigestOf(const Tensor& value) {
  constexpr uint64_t kFactor = 0x9E3779B97F4A7C15u;
  std::array<uint64_t, 4> sums = {1, 2, 3, 4};
  const auto* data = static_cast<const std::byte*>(value.raw());
  size_t at = 0;
  for (; at + sizeof(sums) <= value.bytes(); at += sizeof(sums)) {
    std::array<uint64_t, 4> words;
    std::memcpy(words.data(), data + at, sizeof(words));
    for (size_t k = 0; k < 4; ++k) sums[k] = ((sums[k] ^ words[k]) * kFactor) ^ (sums[k] >> 29);
  }
  std::array<uint64_t, 4> rest = {};
  if (at < value.bytes()) std::memcpy(rest.data(), data + at, value.bytes() - at);
  uint64_t digest = 0;
  for (size_t k = 0; k < 4; ++k) digest = ((digest ^ sums[k] ^ rest[k]) * kFactor) ^ (digest >> 31);
  return digest;
}

std::vector<Output> VariablesOf(const Graph& graph) {
  std::vector<Output> variables;
  for (const auto& node : graph.nodes()) {
    if (node->op() == "Variable") variables.push_back(node->output());
  }
  return variables;
}

// A digest of 16 digits for each variable.
std::string DigestsOf(std::span<const Output> variables, Session& session) {
  std::string digests;
  for (size_t begin = 0; begin < variables.size();) {
    size_t end = begin, bytes = 0;
    for (; end < variables.size() && (end == begin || bytes < kBytesAtOnce); ++end) {
      const Output& variable = variables[end];
      if (!variable.shape().IsFullyKnown()) continue;
      bytes += size_t(variable.shape().elements()) * SizeOf(variable.dtype());
    }
    for (const Tensor& value :
         session.Run(std::span<const Feed>(), variables.subspan(begin, end - begin))) {
      digests += fmt::format("{:016x}", DigestOf(value));
    }
    begin = end;
  }
  return digests;
}

}  // namespace

void SynchronizeVariables(Graph& graph, Session& session, Peers& peers) {
  const std::vector<Output> variables = VariablesOf(graph);
  const std::vector<std::string> digests =
      peers.Gather("digests of variables", DigestsOf(variables, session));
  std::map<DType, std::vector<Output>> different;
  for (size_t i = 0; i < variables.size(); ++i) {
    for (const std::string& other : digests) {
      if (other.compare(16 * i, 16, digests[0], 16 * i, 16) == 0) continue;
      different[variables[i].dtype()].push_back(variables[i]);
      break;
    }
  }
  if (different.empty()) return;
  NameScope scope(graph, "synchronize");
  std::vector<const Node*> assigned;
  for (const auto& [dtype, members] : different) {
    const std::vector<Output> values =
        Broadcast(members, 0, {.key = fmt::format("state/{}", NameOf(dtype))});
    for (size_t i = 0; i < members.size(); ++i) {
      assigned.push_back(Assign(members[i], values[i]).node);
    }
  }
  session.RunTargets({}, {Group(graph, assigned)});
}

}  // namespace tutti
