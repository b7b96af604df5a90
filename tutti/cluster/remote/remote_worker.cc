#include "tutti/cluster/remote/remote_worker.h"

#include <utility>

#include "tutti/base/clock.h"
#include "tutti/cluster/task_status.h"
#include "tutti/net/wire.h"

namespace tutti {

struct RemoteWorker::Shared {
  std::shared_ptr<TaskPeers> peers;
  std::string task;
  int64_t patience_nanos = 0;

  std::mutex mutex;
  std::shared_ptr<Peer> bound;  // the process that answered first

  // Aborts that were not answered yet, and whether CleanUp is to follow: a CleanUp must not
  // overtake them.
  struct Ending {
    int aborts = 0;
    bool clean_up = false;
  };
  std::unordered_map<StepId, Ending, StepIdHash> ending;

  // Null when the process that the session used is not there.
  std::shared_ptr<Peer> Bound() {
    std::lock_guard lock(mutex);
    return bound != nullptr && bound->status().ok() ? bound : nullptr;
  }

  absl::StatusOr<std::shared_ptr<Peer>> Bind(absl::StatusOr<std::shared_ptr<Peer>> peer) {
    if (!peer.ok()) return peer;
    std::lock_guard lock(mutex);
    if (bound == nullptr) bound = *peer;
    if (bound == *peer) return peer;
    if (bound->identity().incarnation == (*peer)->identity().incarnation) {
      return Aborted(
          "{}: the connection was lost and made again; what this session registered "
          "there is gone: make a new session",
          (*peer)->description());
    }
    return Aborted(
        "{} was restarted (incarnation {:016x}, this session used {:016x}); make a new "
        "session",
        (*peer)->description(), (*peer)->identity().incarnation, bound->identity().incarnation);
  }
};

namespace {

void PutStep(const StepId& id, WireMessage& message) {
  net::WireWriter out(&message.fields);
  out.U64(id.session);
  out.I64(id.step);
}

RunResponse Failed(absl::Status status) {
  RunResponse response;
  response.status = std::move(status);
  return response;
}

// Puts the trace of another process on the clock of this one. The request took as long as the
// answer, as far as anybody can tell: then the middle between sending and receiving is the middle
// between its start there and its end.
void AlignClock(int64_t sent, StepTrace& trace) {
  const int64_t received = NowNanos();
  const int64_t ahead = (trace.start_nanos - sent) / 2 + (trace.answer_nanos - received) / 2;
  trace.start_nanos -= ahead;
  trace.answer_nanos -= ahead;
}

}  // namespace

RemoteWorker::RemoteWorker(std::shared_ptr<TaskPeers> peers, std::string task,
                           int64_t patience_nanos)
    : shared_(std::make_shared<Shared>()) {
  shared_->peers = std::move(peers);
  shared_->task = std::move(task);
  shared_->patience_nanos = patience_nanos;
}

void RemoteWorker::WithPeer(std::function<void(absl::StatusOr<std::shared_ptr<Peer>>)> done) {
  if (std::shared_ptr<Peer> peer = shared_->Bound()) {
    done(std::move(peer));
    return;
  }
  shared_->peers->Get(shared_->task, shared_->patience_nanos,
                      [shared = shared_, done = std::move(done)](auto peer) {
                        done(shared->Bind(std::move(peer)));
                      });
}

void RemoteWorker::ListDevices(DevicesDone done) {
  WithPeer([done = std::move(done)](absl::StatusOr<std::shared_ptr<Peer>> peer) {
    if (!peer.ok()) {
      done(peer.status());
      return;
    }
    WireMessage message;
    (*peer)->Call(ControlMethod::kTaskStatus, std::move(message),
                  [done](const absl::StatusOr<std::string>& reply) {
                    if (!reply.ok()) {
                      done(reply.status());
                    } else {
                      auto status = DecodeTaskStatus(*reply);
                      if (status.ok()) {
                        done(std::move(status->devices));
                      } else {
                        done(status.status());
                      }
                    }
                  });
  });
}

void RemoteWorker::Register(RegisterRequest request, RegisterDone done) {
  auto message = std::make_shared<WireMessage>();
  if (absl::Status status = EncodeRegister(request, *message); !status.ok()) {
    done(std::move(status));
    return;
  }
  WithPeer([message, done = std::move(done)](absl::StatusOr<std::shared_ptr<Peer>> peer) {
    if (!peer.ok()) {
      done(peer.status());
      return;
    }
    (*peer)->Call(ControlMethod::kRegisterStep, std::move(*message),
                  [done](const absl::StatusOr<std::string>& reply) {
                    if (!reply.ok()) {
                      done(reply.status());
                      return;
                    }
                    net::WireReader in(*reply);
                    const uint64_t handle = in.U64();
                    if (in.Complete()) {
                      done(handle);
                    } else {
                      done(Internal("a register answer of {} bytes", reply->size()));
                    }
                  });
  });
}

void RemoteWorker::Deregister(uint64_t handle) {
  const std::shared_ptr<Peer> peer = shared_->Bound();
  if (peer == nullptr) return;  // it went with its process
  WireMessage message;
  net::WireWriter(&message.fields).U64(handle);
  peer->Call(ControlMethod::kDeregisterStep, std::move(message), [](const auto&) {});
}

void RemoteWorker::Run(RunRequest&& request, RunDone done) {
  const auto run = [](const std::shared_ptr<Peer>& peer, const RunRequest& to_send, RunDone then) {
    const int64_t sent = to_send.trace ? NowNanos() : 0;
    peer->Ask(
        DataKind::kRun, [&](WireMessage& message) { EncodeRun(to_send, message); },
        [sent, then = std::move(then)](absl::StatusOr<PeerMessage> answer) {
          if (!answer.ok()) {
            then(Failed(answer.status()));
            return;
          }
          absl::StatusOr<RunResponse> response = DecodeResponse(answer->fields, answer->tensors);
          if (response.ok() && response->trace != nullptr) AlignClock(sent, *response->trace);
          then(response.ok() ? *std::move(response) : Failed(response.status()));
        });
  };
  if (const std::shared_ptr<Peer> peer = shared_->Bound()) {
    run(peer, request, std::move(done));
    return;
  }
  WithPeer([run, request = std::move(request),
            done = std::move(done)](const absl::StatusOr<std::shared_ptr<Peer>>& peer) {
    if (peer.ok()) {
      run(*peer, request, done);
    } else {
      done(Failed(peer.status()));
    }
  });
}

void RemoteWorker::Abort(const StepId& id, absl::Status reason) {
  const std::shared_ptr<Peer> peer = shared_->Bound();
  if (peer == nullptr) return;
  {
    std::lock_guard lock(shared_->mutex);
    ++shared_->ending[id].aborts;
  }
  WireMessage message;
  PutStep(id, message);
  EncodeStatus(reason, message);
  peer->Call(ControlMethod::kAbortStep, std::move(message),
             [shared = shared_, peer, id](const auto&) {
               bool clean_up = false;
               {
                 std::lock_guard lock(shared->mutex);
                 const auto it = shared->ending.find(id);
                 if (--it->second.aborts > 0) return;
                 clean_up = it->second.clean_up;
                 shared->ending.erase(it);
               }
               if (!clean_up) return;
               WireMessage forget;
               PutStep(id, forget);
               peer->Call(ControlMethod::kCleanUpStep, std::move(forget), [](const auto&) {});
             });
}

void RemoteWorker::CleanUp(const StepId& id) {
  const std::shared_ptr<Peer> peer = shared_->Bound();
  if (peer == nullptr) return;
  {
    std::lock_guard lock(shared_->mutex);
    const auto it = shared_->ending.find(id);
    if (it != shared_->ending.end()) {
      it->second.clean_up = true;
      return;
    }
  }
  WireMessage message;
  PutStep(id, message);
  peer->Call(ControlMethod::kCleanUpStep, std::move(message), [](const auto&) {});
}

}  // namespace tutti
