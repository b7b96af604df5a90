#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "tutti/net/link/link.h"

// Calls between processes that are rare and small: what creates sessions and registers steps. They
// travel beside the links, over gRPC (cluster/grpc). The numbers of methods do not travel.
namespace tutti {

enum class ControlMethod : uint8_t {
  // The master of a session, for clients.
  kCreateSession,
  kExtendSession,
  kCloseSession,
  kAbortRun,
  kCleanUpRun,
  kClusterStatus,  // of all tasks
  kReset,          // forgets variables and queues on all tasks
  // A worker, for masters.
  kTaskStatus,
  kRegisterStep,
  kDeregisterStep,
  kAbortStep,
  kCleanUpStep,
  kResetTask,
  // The coordinator, for the other tasks.
  kStore,
  // Of a master once more: why nodes are where they are.
  kExplainSession,
};
const char* NameOf(ControlMethod method);

struct ControlRequest {
  net::TaskIdentity caller;
  uint64_t call = 0;     // names the tensors that the caller sends over the link for this call
  uint64_t tensors = 0;  // how many they are
  std::string fields;    // as runtime/messages/message_codec.h writes them
};

// Reply fields, or the error that the other side answered with.
using ControlDone = std::function<void(absl::StatusOr<std::string>)>;

// The way to call another process. `done` is called once, on a thread of the channel, which must
// not be blocked; UNAVAILABLE when the process is gone. Destroying the channel ends open calls.
// Thread-safe.
class ControlChannel {
 public:
  virtual ~ControlChannel() = default;
  virtual void Call(ControlMethod method, ControlRequest request, ControlDone done) = 0;
};

// What answers calls. Must not block. Thread-safe.
class ControlHandler {
 public:
  virtual ~ControlHandler() = default;
  virtual void Handle(ControlMethod method, ControlRequest request, ControlDone done) = 0;
};

}  // namespace tutti
