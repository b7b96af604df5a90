#include "tutti/cluster/remote/remote_master.h"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <utility>

#include "tutti/base/awaited.h"
#include "tutti/graph/serialize.h"
#include "tutti/net/wire.h"

namespace tutti {

struct RemoteMaster::Shared {
  const Graph* graph = nullptr;
  std::mutex growing;               // one Extend at a time
  std::atomic<int64_t> sent = {0};  // nodes that the task has

  std::mutex mutex;
  std::shared_ptr<Peer> peer;  // null before Create
  uint64_t session = 0;
  absl::Status closed;
  int64_t open = 0;  // runs that were not answered
  std::condition_variable answered;
  std::map<int64_t, int> aborts;  // by step: not answered yet, so CleanUp waits

  absl::StatusOr<std::shared_ptr<Peer>> Get() {
    std::lock_guard lock(mutex);
    if (!closed.ok()) return closed;
    if (peer == nullptr) return FailedPrecondition("the session was not created");
    return peer;
  }
};

namespace {

RunResponse Failed(absl::Status status) {
  RunResponse response;
  response.status = std::move(status);
  return response;
}

// Waits for a control call. REQUIRES: not on a thread of the network.
absl::StatusOr<std::string> CallAndWait(Peer& peer, ControlMethod method, WireMessage message) {
  Awaited<absl::StatusOr<std::string>> reply;
  peer.Call(method, std::move(message), [&reply](auto given) { reply.Set(std::move(given)); });
  return reply.Wait();
}

}  // namespace

RemoteMaster::RemoteMaster(std::shared_ptr<TaskPeers> peers, std::string task,
                           int64_t patience_nanos, CompileOptions options)
    : peers_(std::move(peers)),
      task_(std::move(task)),
      patience_nanos_(patience_nanos),
      options_(options),
      shared_(std::make_shared<Shared>()) {}

RemoteMaster::~RemoteMaster() {
  Awaited<absl::Status> closed;
  Close([&closed](absl::Status status) { closed.Set(std::move(status)); });
  (void)closed.Wait();  // a task that is gone has no session to close
  std::unique_lock lock(shared_->mutex);
  shared_->answered.wait(lock, [this] { return shared_->open == 0; });
}

void RemoteMaster::Create(const Graph& graph, Done done) {
  shared_->graph = &graph;
  Awaited<absl::StatusOr<std::shared_ptr<Peer>>> connected;
  peers_->Get(task_, patience_nanos_, [&connected](auto peer) { connected.Set(std::move(peer)); });
  const absl::StatusOr<std::shared_ptr<Peer>> peer = connected.Wait();
  if (!peer.ok()) {
    done(peer.status());
    return;
  }
  WireMessage message;
  net::WireWriter out(&message.fields);
  out.U8(options_.optimize ? 1 : 0);
  out.U8(options_.soft_placement ? 1 : 0);
  out.U8(uint8_t(options_.placement));
  const int64_t nodes = graph.size();
  absl::StatusOr<std::string> bytes = SerializeNodes(graph, 0, message.tensors);
  if (!bytes.ok()) {
    done(bytes.status());
    return;
  }
  message.fields += *bytes;
  const absl::StatusOr<std::string> reply =
      CallAndWait(**peer, ControlMethod::kCreateSession, std::move(message));
  if (!reply.ok()) {
    done(reply.status());
    return;
  }
  net::WireReader in(*reply);
  {
    std::lock_guard lock(shared_->mutex);
    shared_->session = in.U64();
    shared_->peer = *peer;
    shared_->sent = nodes;
  }
  done(in.Complete() ? absl::OkStatus() : Internal("a session's number that is cut off"));
}

void RemoteMaster::Extend(const Graph& graph, Done done) {
  done(&graph == shared_->graph
           ? Grow(graph)
           : InvalidArgument("a session can only be extended with its own graph"));
}

absl::Status RemoteMaster::Grow(const Graph& graph) {
  std::lock_guard growing(shared_->growing);
  const int64_t sent = shared_->sent, nodes = graph.size();
  if (sent == nodes) return absl::OkStatus();
  TUTTI_ASSIGN_OR_RETURN(const std::shared_ptr<Peer> peer, shared_->Get());
  WireMessage message;
  net::WireWriter(&message.fields).U64(shared_->session);
  TUTTI_ASSIGN_OR_RETURN(const std::string bytes, SerializeNodes(graph, sent, message.tensors));
  message.fields += bytes;
  TUTTI_RETURN_IF_ERROR(
      CallAndWait(*peer, ControlMethod::kExtendSession, std::move(message)).status());
  shared_->sent = nodes;
  return absl::OkStatus();
}

void RemoteMaster::Run(MasterRunRequest&& request, RunDone done) {
  absl::StatusOr<std::shared_ptr<Peer>> peer = shared_->Get();
  if (peer.ok() && shared_->sent != shared_->graph->size()) {
    if (absl::Status status = Grow(*shared_->graph); !status.ok()) peer = std::move(status);
  }
  if (!peer.ok()) {
    done(Failed(peer.status()));
    return;
  }
  {
    std::lock_guard lock(shared_->mutex);
    ++shared_->open;
  }
  (*peer)->Ask(
      DataKind::kMasterRun,
      [&](WireMessage& message) {
        net::WireWriter(&message.fields).U64(shared_->session);
        EncodeMasterRun(request, message);
      },
      [shared = shared_, done = std::move(done)](absl::StatusOr<PeerMessage> answer) {
        absl::StatusOr<RunResponse> decoded = answer.ok()
                                                  ? DecodeResponse(answer->fields, answer->tensors)
                                                  : absl::StatusOr<RunResponse>(answer.status());
        RunResponse response = decoded.ok() ? *std::move(decoded) : Failed(decoded.status());
        if (absl::IsNotFound(response.status)) {
          // A run that Close has overtaken finds no session.
          std::lock_guard lock(shared->mutex);
          if (!shared->closed.ok()) response = Failed(shared->closed);
        }
        // The session may go as soon as the caller has its answer.
        done(std::move(response));
        std::lock_guard lock(shared->mutex);
        --shared->open;
        shared->answered.notify_all();
      });
}

void RemoteMaster::Abort(int64_t step, absl::Status reason) {
  const absl::StatusOr<std::shared_ptr<Peer>> peer = shared_->Get();
  if (!peer.ok()) return;
  WireMessage message;
  net::WireWriter out(&message.fields);
  out.U64(shared_->session);
  out.I64(step);
  EncodeStatus(reason, message);
  {
    std::lock_guard lock(shared_->mutex);
    ++shared_->aborts[step];
  }
  (*peer)->Call(ControlMethod::kAbortRun, std::move(message),
                [shared = shared_, step](const auto&) {
                  std::lock_guard lock(shared->mutex);
                  if (--shared->aborts[step] == 0) shared->aborts.erase(step);
                  shared->answered.notify_all();
                });
}

void RemoteMaster::CleanUp(int64_t step) {
  const absl::StatusOr<std::shared_ptr<Peer>> peer = shared_->Get();
  if (!peer.ok()) return;
  {
    // The caller has its answer, and the Abort that led to it is answered about now.
    std::unique_lock lock(shared_->mutex);
    shared_->answered.wait(lock, [&] { return !shared_->aborts.contains(step); });
  }
  WireMessage message;
  net::WireWriter out(&message.fields);
  out.U64(shared_->session);
  out.I64(step);
  (*peer)->Call(ControlMethod::kCleanUpRun, std::move(message), [](const auto&) {});
}

void RemoteMaster::Explain(ExplainDone done) {
  const absl::StatusOr<std::shared_ptr<Peer>> peer = shared_->Get();
  if (!peer.ok()) {
    done(peer.status());
    return;
  }
  WireMessage message;
  net::WireWriter(&message.fields).U64(shared_->session);
  done(CallAndWait(**peer, ControlMethod::kExplainSession, std::move(message)));
}

void RemoteMaster::Close(Done done) {
  absl::StatusOr<std::shared_ptr<Peer>> peer = shared_->Get();
  WireMessage message;
  {
    std::lock_guard lock(shared_->mutex);
    if (shared_->closed.ok()) shared_->closed = Cancelled("the session is closed");
    net::WireWriter(&message.fields).U64(shared_->session);
  }
  if (!peer.ok()) {
    done(absl::OkStatus());
    return;
  }
  (*peer)->Call(ControlMethod::kCloseSession, std::move(message),
                [done = std::move(done)](const auto&) { done(absl::OkStatus()); });
}

}  // namespace tutti
