// Each rpc has one ServerCall that waits for the next call of it; when one comes, another is put in
// its place, and the first lives until its answer was sent. Answers may be given on any thread.
#include "tutti/cluster/grpc/control_server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/server_posix.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <thread>
#include <type_traits>
#include <utility>

#include "proto/cluster.grpc.pb.h"
#include "tutti/base/status.h"
#include "tutti/base/thread.h"
#include "tutti/base/thread_sanitizer.h"
#include "tutti/cluster/grpc/socket_options.h"

namespace tutti {
namespace {

using MasterRpc = proto::Master::AsyncService;
using WorkerRpc = proto::Worker::AsyncService;
using CoordinatorRpc = proto::Coordinator::AsyncService;
using Writer = grpc::ServerAsyncResponseWriter<proto::Reply>;

// An event of the queue that knows whom it is for.
class Event {
 public:
  virtual void Happened(bool ok) = 0;

 protected:
  ~Event() = default;
};

proto::Reply ReplyOf(absl::StatusOr<std::string> result) {
  proto::Reply reply;
  reply.set_code(int(result.status().code()));
  if (result.ok()) {
    reply.set_fields(*std::move(result));
  } else {
    reply.set_message(std::string(MessageOf(result.status())));
  }
  return reply;
}

}  // namespace

struct ControlServer::State {
  ControlHandler* handler = nullptr;
  MasterRpc master;
  WorkerRpc worker;
  CoordinatorRpc coordinator;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::ServerCompletionQueue> queue;
  std::thread thread;

  class Call;
  class Watch;
  std::mutex mutex;
  bool stopping = false;
  int open = 0;  // calls that came and are not over
  std::set<Watch*> watches;
  std::condition_variable changed;

  template <typename Service>
  using Request = void (Service::*)(grpc::ServerContext*, proto::Call*, Writer*,
                                    grpc::CompletionQueue*, grpc::ServerCompletionQueue*, void*);
  template <typename Service>
  void Serve(Service& service, std::type_identity_t<Request<Service>> request,
             ControlMethod method);
  void ServeWatch();

  // False when the server stops: nobody is to wait for calls any more.
  bool Opened() {
    std::lock_guard lock(mutex);
    if (stopping) return false;
    ++open;
    return true;
  }
  void Closed() {
    std::lock_guard lock(mutex);
    --open;
    changed.notify_all();
  }
};

class ControlServer::State::Call final : public Event {
 public:
  Call(State* state, ControlMethod method, std::function<void()> next)
      : state_(state), method_(method), next_(std::move(next)), writer_(&context_) {}

  grpc::ServerContext* context() { return &context_; }
  proto::Call* request() { return &request_; }
  Writer* writer() { return &writer_; }

  void Happened(bool ok) override {
    if (answered_) {
      state_->Closed();
      delete this;
      return;
    }
    if (!ok || !state_->Opened()) {
      delete this;
      return;
    }
    next_();
    ControlRequest request{.caller = {request_.caller_task(), request_.caller_incarnation()},
                           .call = request_.number(),
                           .tensors = request_.tensors(),
                           .fields = std::move(*request_.mutable_fields())};
    state_->handler->Handle(method_, std::move(request),
                            [this](absl::StatusOr<std::string> result) {
                              answered_ = true;
                              HandOver(static_cast<Event*>(this));
                              writer_.Finish(ReplyOf(std::move(result)), grpc::Status::OK, this);
                            });
  }

 private:
  State* const state_;
  const ControlMethod method_;
  const std::function<void()> next_;  // waits for the next call of this rpc
  grpc::ServerContext context_;
  proto::Call request_;
  Writer writer_;
  bool answered_ = false;
};

// A call that is answered when the server stops, or never when the caller is gone.
class ControlServer::State::Watch final : public Event {
 public:
  explicit Watch(State* state) : state_(state), writer_(&context_) {
    context_.AsyncNotifyWhenDone(&done_);
    state_->worker.RequestWatch(&context_, &request_, &writer_, state_->queue.get(),
                                state_->queue.get(), this);
  }

  void Happened(bool ok) override {
    if (came_) {
      End();
      return;
    }
    came_ = true;
    if (!ok) {  // the done event of a call that never came is not delivered
      delete this;
      return;
    }
    bool stopping = false;
    {
      std::lock_guard lock(state_->mutex);
      ++state_->open;
      stopping = state_->stopping;
      if (!stopping) state_->watches.insert(this);
    }
    if (stopping) {
      Answer();
    } else {
      new Watch(state_);
    }
  }

  // Once; whoever takes the watch out of the list calls it.
  void Answer() {
    HandOver(static_cast<Event*>(this));
    writer_.Finish(ReplyOf(Unavailable("the task is shutting down")), grpc::Status::OK, this);
  }

 private:
  class Done final : public Event {
   public:
    explicit Done(Watch* watch) : watch_(watch) {}
    void Happened(bool) override { watch_->CallerGone(); }

   private:
    Watch* const watch_;
  };

  void CallerGone() {
    bool listed = false;
    {
      std::lock_guard lock(state_->mutex);
      listed = state_->watches.erase(this) > 0;
    }
    if (listed) Answer();
    End();
  }

  // Both the answer and the end of the call were told.
  void End() {
    if (--events_ > 0) return;
    state_->Closed();
    delete this;
  }

  State* const state_;
  grpc::ServerContext context_;
  proto::Call request_;
  Writer writer_;
  Done done_{this};
  bool came_ = false;
  int events_ = 2;
};

template <typename Service>
void ControlServer::State::Serve(Service& service, std::type_identity_t<Request<Service>> request,
                                 ControlMethod method) {
  auto* const call = new Call(
      this, method, [this, &service, request, method] { Serve(service, request, method); });
  (service.*request)(call->context(), call->request(), call->writer(), queue.get(), queue.get(),
                     call);
}

void ControlServer::State::ServeWatch() { new Watch(this); }

ControlServer::ControlServer(ControlHandler* handler) : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.handler = handler;
  grpc::ServerBuilder builder;
  builder.RegisterService(&s.master);
  builder.RegisterService(&s.worker);
  builder.RegisterService(&s.coordinator);
  builder.SetMaxReceiveMessageSize(-1);
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepAliveMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepAliveTimeoutMillis);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 100);
  s.queue = builder.AddCompletionQueue();
  s.server = builder.BuildAndStart();
  s.Serve(s.master, &MasterRpc::RequestCreateSession, ControlMethod::kCreateSession);
  s.Serve(s.master, &MasterRpc::RequestExtendSession, ControlMethod::kExtendSession);
  s.Serve(s.master, &MasterRpc::RequestCloseSession, ControlMethod::kCloseSession);
  s.Serve(s.master, &MasterRpc::RequestExplainSession, ControlMethod::kExplainSession);
  s.Serve(s.master, &MasterRpc::RequestAbortRun, ControlMethod::kAbortRun);
  s.Serve(s.master, &MasterRpc::RequestCleanUpRun, ControlMethod::kCleanUpRun);
  s.Serve(s.master, &MasterRpc::RequestClusterStatus, ControlMethod::kClusterStatus);
  s.Serve(s.master, &MasterRpc::RequestReset, ControlMethod::kReset);
  s.Serve(s.worker, &WorkerRpc::RequestTaskStatus, ControlMethod::kTaskStatus);
  s.Serve(s.worker, &WorkerRpc::RequestRegisterStep, ControlMethod::kRegisterStep);
  s.Serve(s.worker, &WorkerRpc::RequestDeregisterStep, ControlMethod::kDeregisterStep);
  s.Serve(s.worker, &WorkerRpc::RequestAbortStep, ControlMethod::kAbortStep);
  s.Serve(s.worker, &WorkerRpc::RequestCleanUpStep, ControlMethod::kCleanUpStep);
  s.Serve(s.worker, &WorkerRpc::RequestResetTask, ControlMethod::kResetTask);
  s.Serve(s.coordinator, &CoordinatorRpc::RequestStore, ControlMethod::kStore);
  s.ServeWatch();
  s.thread = ValueOrThrow(StartThread("the thread of the control plane", [&s] {
    void* tag = nullptr;
    bool ok = false;
    while (s.queue->Next(&tag, &ok)) {
      TakeOver(tag);
      static_cast<Event*>(tag)->Happened(ok);
    }
  }));
}

void ControlServer::Adopt(int fd) {
  PrepareForGrpc(fd);
  grpc::AddInsecureChannelFromFd(state_->server.get(), fd);
}

// Watchers are told, other calls get a moment, and then connections end.
ControlServer::~ControlServer() {
  State& s = *state_;
  std::set<State::Watch*> watches;
  {
    std::lock_guard lock(s.mutex);
    s.stopping = true;
    watches.swap(s.watches);
  }
  for (State::Watch* watch : watches) watch->Answer();
  s.server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(100));
  {
    std::unique_lock lock(s.mutex);
    s.changed.wait(lock, [&s] { return s.open == 0; });
  }
  s.queue->Shutdown();
  s.thread.join();
}

}  // namespace tutti
