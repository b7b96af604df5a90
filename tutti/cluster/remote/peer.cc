#include "tutti/cluster/remote/peer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tutti/device/memory_limit.h"
#include "tutti/net/wire.h"

namespace tutti {
namespace {

constexpr size_t kHeaderBytes = 9;  // kind and call

// Memory of a message that is read where the sender wrote it.
class HeldBuffer final : public Buffer {
 public:
  explicit HeldBuffer(net::Payload payload)
      : Buffer(const_cast<std::byte*>(payload.bytes.data()), payload.bytes.size()),
        owner_(std::move(payload.owner)) {}

 private:
  const std::shared_ptr<const void> owner_;
};

uint64_t BytesOf(const std::vector<Tensor>& tensors) {
  uint64_t bytes = 0;
  for (const Tensor& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

}  // namespace

const char* NameOf(ControlMethod method) {
  switch (method) {
    case ControlMethod::kCreateSession:
      return "CreateSession";
    case ControlMethod::kExtendSession:
      return "ExtendSession";
    case ControlMethod::kCloseSession:
      return "CloseSession";
    case ControlMethod::kExplainSession:
      return "ExplainSession";
    case ControlMethod::kAbortRun:
      return "AbortRun";
    case ControlMethod::kCleanUpRun:
      return "CleanUpRun";
    case ControlMethod::kClusterStatus:
      return "ClusterStatus";
    case ControlMethod::kReset:
      return "Reset";
    case ControlMethod::kTaskStatus:
      return "TaskStatus";
    case ControlMethod::kRegisterStep:
      return "RegisterStep";
    case ControlMethod::kDeregisterStep:
      return "DeregisterStep";
    case ControlMethod::kAbortStep:
      return "AbortStep";
    case ControlMethod::kCleanUpStep:
      return "CleanUpStep";
    case ControlMethod::kResetTask:
      return "ResetTask";
    case ControlMethod::kStore:
      return "Store";
  }
  return "?";
}

uint64_t PeerMessage::tensor_bytes() const { return BytesOf(tensors); }

WireMessage StartMessage(DataKind kind, uint64_t call, size_t room) {
  WireMessage message;
  if (room > 0) message.fields.reserve(room + kHeaderBytes);
  net::WireWriter out(&message.fields);
  out.U8(uint8_t(kind));
  out.U64(call);
  return message;
}

Peer::Peer(net::Link& link, net::TaskIdentity identity, net::TaskIdentity self)
    : identity_(std::move(identity)),
      self_(std::move(self)),
      description_(link.Describe()),
      link_(&link) {}

absl::Status Peer::status() const {
  std::lock_guard lock(mutex_);
  return status_;
}

net::Link::Counters Peer::counters() const {
  std::lock_guard lock(mutex_);
  return link_ == nullptr ? net::Link::Counters() : link_->counters();
}

namespace {

std::vector<net::Payload> PayloadsOf(std::vector<Tensor>& tensors) {
  std::vector<net::Payload> payloads;
  payloads.reserve(tensors.size());
  for (Tensor& tensor : tensors) {
    auto owner = std::make_shared<const Tensor>(std::move(tensor));
    payloads.push_back(
        {{static_cast<const std::byte*>(owner->raw()), owner->bytes()}, std::move(owner)});
  }
  return payloads;
}

}  // namespace

absl::Status Peer::Send(WireMessage message) {
  std::vector<net::Payload> payloads = PayloadsOf(message.tensors);
  std::lock_guard lock(mutex_);
  if (link_ == nullptr) return status_;
  link_->Send(std::move(message.fields), std::move(payloads));
  return absl::OkStatus();
}

absl::Status Peer::SendValue(WireMessage message) {
  std::vector<net::Payload> payloads = PayloadsOf(message.tensors);
  std::lock_guard lock(mutex_);
  if (link_ == nullptr) return status_;
  link_->SendCounted(std::move(message.fields), std::move(payloads));
  return absl::OkStatus();
}

// Nobody waits for an answer that a broken link drops.
void Peer::Answer(uint64_t call, const RunResponse& response) {
  WireMessage message = StartMessage(DataKind::kAnswer, call);
  EncodeResponse(response, message);
  (void)Send(std::move(message));
}

void Peer::AnswerError(uint64_t call, absl::Status status) {
  RunResponse response;
  response.status = std::move(status);
  Answer(call, response);
}

void Peer::Ask(DataKind kind, const std::function<void(WireMessage&)>& write, AnswerDone done) {
  uint64_t call = 0;
  {
    std::lock_guard lock(mutex_);
    if (link_ != nullptr) {
      call = next_call_++;
      asked_.emplace(call, done);
    }
  }
  if (call == 0) {
    done(status());
    return;
  }
  WireMessage message = StartMessage(kind, call);
  write(message);
  (void)Send(std::move(message));  // OnBroken answers
}

void Peer::Call(ControlMethod method, WireMessage message, ControlDone done) {
  ControlRequest request{.caller = self_, .fields = std::move(message.fields)};
  std::shared_ptr<ControlChannel> control;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    status = status_;
    control = control_;
    request.call = next_call_++;
  }
  if (status.ok() && control == nullptr) {
    status = Unavailable("{} has no control connection yet", description_);
  }
  if (!status.ok()) {
    done(std::move(status));
    return;
  }
  request.tensors = message.tensors.size();
  if (!message.tensors.empty()) {
    WireMessage beside = StartMessage(DataKind::kTensors, request.call);
    beside.tensors = std::move(message.tensors);
    (void)Send(std::move(beside));  // the call fails with the link
  }
  control->Call(method, std::move(request), std::move(done));
}

void Peer::AwaitTensors(uint64_t call, uint64_t count, TensorsDone done) {
  absl::StatusOr<std::vector<Tensor>> tensors = std::vector<Tensor>();
  if (count > 0) {
    std::lock_guard lock(mutex_);
    const auto it = tensors_.find(call);
    const bool twice = waiting_.contains(call);
    if (it == tensors_.end() && link_ != nullptr && !twice) {
      waiting_[call] = {count, std::move(done)};
      return;
    }
    if (twice) {
      tensors = InvalidArgument("{} made two calls with the number {}", description_, call);
    } else if (it == tensors_.end()) {
      tensors = status_;
    } else {
      tensors = std::move(it->second);
      tensors_.erase(it);
      if (link_ != nullptr) link_->Taken(BytesOf(*tensors));
    }
  }
  if (tensors.ok() && tensors->size() != count) {
    tensors = InvalidArgument("a call came with {} tensors; expected {}", tensors->size(), count);
  }
  done(std::move(tensors));
}

void Peer::OnTensors(uint64_t call, std::vector<Tensor> tensors) {
  TensorsDone done;
  uint64_t count = 0;
  {
    std::lock_guard lock(mutex_);
    const auto it = waiting_.find(call);
    if (it == waiting_.end()) {
      const uint64_t bytes = BytesOf(tensors);
      const bool first = tensors_.try_emplace(call, std::move(tensors)).second;
      if (!first && link_ != nullptr) link_->Taken(bytes);
      return;
    }
    count = it->second.count;
    done = std::move(it->second.done);
    waiting_.erase(it);
    if (link_ != nullptr) link_->Taken(BytesOf(tensors));
  }
  if (tensors.size() != count) {
    done(InvalidArgument("a call came with {} tensors; expected {}", tensors.size(), count));
  } else {
    done(std::move(tensors));
  }
}

void Peer::Taken(uint64_t bytes) {
  std::lock_guard lock(mutex_);
  if (link_ != nullptr && bytes > 0) link_->Taken(bytes);
}

void Peer::Close(const absl::Status& reason) {
  std::lock_guard lock(mutex_);
  if (link_ != nullptr) link_->Close(reason);
}

void Peer::set_control(std::shared_ptr<ControlChannel> control) {
  std::lock_guard lock(mutex_);
  if (link_ != nullptr) control_ = std::move(control);
}

bool Peer::has_control() const {
  std::lock_guard lock(mutex_);
  return control_ != nullptr;
}

absl::Status Peer::Place(MemoryPool& pool, std::span<const uint64_t> sizes,
                         std::span<net::Bytes> places) {
  std::vector<Tensor> blocks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] > kMostBytes) {
      return ResourceExhausted("{} sends a tensor of {} bytes; at most {} are taken", description_,
                               sizes[i], kMostBytes);
    }
    TUTTI_ASSIGN_OR_RETURN(Tensor block, pool.Allocate(kUInt8, Shape{int64_t(sizes[i])}));
    places[i] = {static_cast<std::byte*>(block.raw()), size_t(sizes[i])};
    blocks.push_back(std::move(block));
  }
  placed_.push_back(std::move(blocks));
  return absl::OkStatus();
}

std::vector<Tensor> Peer::TakePayloads(std::vector<net::Payload> payloads) {
  if (payloads.empty()) return {};
  if (payloads.front().owner == nullptr && !placed_.empty()) {
    std::vector<Tensor> blocks = std::move(placed_.front());
    placed_.pop_front();
    return blocks;
  }
  std::vector<Tensor> tensors;
  for (net::Payload& payload : payloads) {
    const Shape shape{int64_t(payload.bytes.size())};
    tensors.emplace_back(kUInt8, shape, BufferRef(new HeldBuffer(std::move(payload))));
  }
  return tensors;
}

void Peer::OnAnswer(uint64_t call, PeerMessage message) {
  AnswerDone done;
  {
    std::lock_guard lock(mutex_);
    if (link_ != nullptr && !message.tensors.empty()) link_->Taken(BytesOf(message.tensors));
    const auto it = asked_.find(call);
    if (it == asked_.end()) return;  // of a number that was never asked: nobody waits for it
    done = std::move(it->second);
    asked_.erase(it);
  }
  done(std::move(message));
}

void Peer::OnBroken(const absl::Status& reason) {
  std::unordered_map<uint64_t, AnswerDone> asked;
  std::unordered_map<uint64_t, Waiting> waiting;
  std::shared_ptr<ControlChannel> control;
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    if (link_ == nullptr) return;
    link_ = nullptr;
    const bool named = MessageOf(reason).find(identity_.task) != std::string_view::npos;
    status_ = named ? reason : WithPrefix(reason, description_ + ": ");
    // One that ended in good order is as gone as any other for who needs it.
    if (absl::IsCancelled(status_)) status_ = Unavailable("{}", MessageOf(status_));
    status = status_;
    asked.swap(asked_);
    waiting.swap(waiting_);
    tensors_.clear();
    control = std::move(control_);
  }
  for (auto& [call, done] : asked) done(status);
  for (auto& [call, entry] : waiting) entry.done(status);
}

}  // namespace tutti
