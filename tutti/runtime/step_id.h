#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace tutti {

// Names one step on every task that takes part in it. Sessions of several clients share workers, so
// the number of a step alone does not.
struct StepId {
  uint64_t session = 0;  // given by the master; no two sessions of a cluster have the same
  int64_t step = 0;      // given by the client; no two steps of the session have the same
  bool operator==(const StepId&) const = default;
};

struct StepIdHash {
  size_t operator()(const StepId& id) const {
    return size_t((id.session ^ uint64_t(id.step) * 0x9e3779b97f4a7c15u) * 0xff51afd7ed558ccdu);
  }
};

// A number for a new session, or for the start of a process: random, so that processes that do not
// know each other choose different ones. Never 0.
uint64_t MakeRandomId();

}  // namespace tutti
