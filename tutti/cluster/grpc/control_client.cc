#include "tutti/cluster/grpc/control_client.h"

#include <grpcpp/create_channel_posix.h>
#include <grpcpp/grpcpp.h>

#include <mutex>
#include <set>
#include <thread>
#include <utility>

#include "proto/cluster.grpc.pb.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/base/thread_sanitizer.h"
#include "tutti/cluster/grpc/socket_options.h"

namespace tutti {
namespace {

using Reader = std::unique_ptr<grpc::ClientAsyncResponseReader<proto::Reply>>;

// The statuses that an answer may carry.
absl::Status StatusOf(const proto::Reply& reply, const std::string& peer) {
  if (reply.code() == 0) return absl::OkStatus();
  if (reply.code() < 0 || reply.code() > int(absl::StatusCode::kUnauthenticated)) {
    return Internal("{} answered with the unknown code {}", peer, reply.code());
  }
  return MakeStatus(absl::StatusCode(reply.code()), "{}", reply.message());
}

}  // namespace

// The queue goes when no channel has calls in it any more.
struct ControlClient::State {
  grpc::CompletionQueue queue;
  std::mutex mutex;
  bool stopping = false;
  std::thread thread;

  class Channel;
  std::set<Channel*> channels;
};

class ControlClient::State::Channel final : public ControlChannel {
 public:
  Channel(std::shared_ptr<State> state, int fd, std::string peer)
      : state_(std::move(state)), peer_(std::move(peer)) {
    grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(-1);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMillis);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMillis);
    arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
    PrepareForGrpc(fd);
    channel_ = grpc::CreateCustomInsecureChannelFromFd("peer", fd, arguments);
    master_ = proto::Master::NewStub(channel_);
    worker_ = proto::Worker::NewStub(channel_);
    coordinator_ = proto::Coordinator::NewStub(channel_);
  }

  ~Channel() override { Cancel(); }

  void Cancel() {
    std::lock_guard lock(state_->mutex);
    state_->channels.erase(this);
    CancelLocked();
  }
  // REQUIRES: the mutex of the state is held.
  void CancelLocked() {
    for (Pending* call : *calls_) call->context.TryCancel();
  }

  void Call(ControlMethod method, ControlRequest request, ControlDone done) override {
    Start(ToProto(std::move(request)), std::move(done),
          [&](grpc::ClientContext* context, const proto::Call& call) {
            return Prepare(method, context, call);
          });
  }

  // Ends when the other process does.
  void Watch(const net::TaskIdentity& self, std::function<void(absl::Status)> lost) {
    ControlRequest request;
    request.caller = self;
    Start(
        ToProto(std::move(request)),
        [lost = std::move(lost), peer = peer_](const absl::StatusOr<std::string>& reply) {
          lost(reply.ok() ? Unavailable("{} ended its control connection", peer) : reply.status());
        },
        [&](grpc::ClientContext* context, const proto::Call& call) {
          return worker_->PrepareAsyncWatch(context, call, &state_->queue);
        });
  }

  // A call under way.
  struct Pending {
    grpc::ClientContext context;
    proto::Reply reply;
    grpc::Status status;
    Reader reader;
    ControlDone done;
    std::string peer;
    std::shared_ptr<State> state;
    std::shared_ptr<std::set<Pending*>> open;

    void Finished() {
      {
        std::lock_guard lock(state->mutex);
        open->erase(this);
      }
      if (!status.ok()) {
        const bool gone = status.error_code() == grpc::StatusCode::UNAVAILABLE ||
                          status.error_code() == grpc::StatusCode::CANCELLED;
        done(gone ? Unavailable("{}: the control connection is lost ({})", peer,
                                status.error_message())
                  : MakeStatus(absl::StatusCode(int(status.error_code())), "{}: {}", peer,
                               status.error_message()));
      } else if (absl::Status answered = StatusOf(reply, peer); !answered.ok()) {
        done(std::move(answered));
      } else {
        done(std::move(*reply.mutable_fields()));
      }
    }
  };

 private:
  static proto::Call ToProto(ControlRequest request) {
    proto::Call call;
    call.set_caller_task(std::move(request.caller.task));
    call.set_caller_incarnation(request.caller.incarnation);
    call.set_number(request.call);
    call.set_tensors(request.tensors);
    call.set_fields(std::move(request.fields));
    return call;
  }

  template <typename PrepareCall>
  void Start(const proto::Call& request, ControlDone done, const PrepareCall& prepare) {
    auto* const pending = new Pending;
    pending->done = std::move(done);
    pending->peer = peer_;
    pending->state = state_;
    pending->open = calls_;
    {
      std::lock_guard lock(state_->mutex);
      if (!state_->stopping) {
        calls_->insert(pending);
        pending->reader = prepare(&pending->context, request);
        HandOver(pending);
        pending->reader->StartCall();
        pending->reader->Finish(&pending->reply, &pending->status, pending);
        return;
      }
    }
    pending->done(Unavailable("{}: this process ends its connections", peer_));
    delete pending;
  }

  Reader Prepare(ControlMethod method, grpc::ClientContext* context, const proto::Call& call) {
    grpc::CompletionQueue* const queue = &state_->queue;
    switch (method) {
      case ControlMethod::kCreateSession:
        return master_->PrepareAsyncCreateSession(context, call, queue);
      case ControlMethod::kExtendSession:
        return master_->PrepareAsyncExtendSession(context, call, queue);
      case ControlMethod::kCloseSession:
        return master_->PrepareAsyncCloseSession(context, call, queue);
      case ControlMethod::kExplainSession:
        return master_->PrepareAsyncExplainSession(context, call, queue);
      case ControlMethod::kAbortRun:
        return master_->PrepareAsyncAbortRun(context, call, queue);
      case ControlMethod::kCleanUpRun:
        return master_->PrepareAsyncCleanUpRun(context, call, queue);
      case ControlMethod::kClusterStatus:
        return master_->PrepareAsyncClusterStatus(context, call, queue);
      case ControlMethod::kReset:
        return master_->PrepareAsyncReset(context, call, queue);
      case ControlMethod::kTaskStatus:
        return worker_->PrepareAsyncTaskStatus(context, call, queue);
      case ControlMethod::kRegisterStep:
        return worker_->PrepareAsyncRegisterStep(context, call, queue);
      case ControlMethod::kDeregisterStep:
        return worker_->PrepareAsyncDeregisterStep(context, call, queue);
      case ControlMethod::kAbortStep:
        return worker_->PrepareAsyncAbortStep(context, call, queue);
      case ControlMethod::kCleanUpStep:
        return worker_->PrepareAsyncCleanUpStep(context, call, queue);
      case ControlMethod::kStore:
        return coordinator_->PrepareAsyncStore(context, call, queue);
      case ControlMethod::kResetTask:
        break;
    }
    return worker_->PrepareAsyncResetTask(context, call, queue);
  }

  const std::shared_ptr<State> state_;
  const std::string peer_;
  // Guarded by the mutex of the state; calls outlive the channel.
  const std::shared_ptr<std::set<Pending*>> calls_ = std::make_shared<std::set<Pending*>>();
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<proto::Master::Stub> master_;
  std::unique_ptr<proto::Worker::Stub> worker_;
  std::unique_ptr<proto::Coordinator::Stub> coordinator_;
};

ControlClient::ControlClient() : state_(std::make_shared<State>()) {
  state_->thread = ValueOrThrow(StartThread("the thread of control calls", [state = state_.get()] {
    void* tag = nullptr;
    bool ok = false;
    while (state->queue.Next(&tag, &ok)) {
      TakeOver(tag);
      const std::unique_ptr<State::Channel::Pending> call(
          static_cast<State::Channel::Pending*>(tag));
      call->Finished();
    }
  }));
}

ControlClient::~ControlClient() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stopping = true;
    for (State::Channel* channel : state_->channels) channel->CancelLocked();
  }
  state_->queue.Shutdown();
  state_->thread.join();
}

std::shared_ptr<ControlChannel> ControlClient::Adopt(int fd, const net::TaskIdentity& self,
                                                     std::string peer,
                                                     std::function<void(absl::Status)> lost) {
  auto channel = std::make_shared<State::Channel>(state_, fd, std::move(peer));
  {
    std::lock_guard lock(state_->mutex);
    state_->channels.insert(channel.get());
  }
  channel->Watch(self, std::move(lost));
  return channel;
}

}  // namespace tutti
