#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tutti/base/status.h"
#include "tutti/cluster/control.h"
#include "tutti/device/pool.h"
#include "tutti/net/link/link.h"
#include "tutti/runtime/messages/message_codec.h"

namespace tutti {

// What a message on a link is. The numbers travel.
enum class DataKind : uint8_t {
  kHello = 1,      // the first message of whoever opened the link: its cluster; is answered
  kRun = 2,        // RunRequest; is answered with a RunResponse
  kMasterRun = 3,  // MasterRunRequest; is answered with a RunResponse
  kAnswer = 4,
  kValue = 5,    // SentValue
  kTensors = 6,  // those of a control call
};

// A message from a peer: fields behind kind and number, and tensors as plain bytes.
struct PeerMessage {
  std::string_view fields;
  std::vector<Tensor> tensors;
  size_t header_bytes = 0;  // fields, kind and number

  uint64_t tensor_bytes() const;
};

// The start of a message on a link: kind, and number of the call that it belongs to (0: none), with
// room for so many bytes of fields.
WireMessage StartMessage(DataKind kind, uint64_t call, size_t room = 0);

// Another process, from the first word on its link to the end of the link. Thread-safe.
class Peer {
 public:
  using AnswerDone = std::function<void(absl::StatusOr<PeerMessage>)>;
  using TensorsDone = std::function<void(absl::StatusOr<std::vector<Tensor>>)>;

  Peer(net::Link& link, net::TaskIdentity identity, net::TaskIdentity self);

  const net::TaskIdentity& identity() const { return identity_; }
  const std::string& description() const { return description_; }  // as the link tells it
  absl::Status status() const;  // OK until the link breaks, then why, naming the peer
  net::Link::Counters counters() const;

  // Sends a request and gives its answer, on a thread of the link, or the error that the link broke
  // with. `write` appends the fields.
  void Ask(DataKind kind, const std::function<void(WireMessage&)>& write, AnswerDone done);
  // Sends what has no answer, or is one. On a broken link it is dropped, and the reason given.
  absl::Status Send(WireMessage message);
  // The same for a kValue. All of it counts in the window of the link, its fields included, until
  // the receiver calls Taken.
  absl::Status SendValue(WireMessage message);
  // Answers a request of the peer that asked for a run.
  void Answer(uint64_t call, const RunResponse& response);
  void AnswerError(uint64_t call, absl::Status status);
  // A control call, with tensors over the link.
  void Call(ControlMethod method, WireMessage message, ControlDone done);
  // The tensors of a call of the peer: now or when they come.
  void AwaitTensors(uint64_t call, uint64_t count, TensorsDone done);
  // Values that waited were taken (net::Link::Taken).
  void Taken(uint64_t bytes);
  void Close(const absl::Status& reason);

  // For TaskPeers, which hears of the link.

  void set_control(std::shared_ptr<ControlChannel> control);
  bool has_control() const;
  // Memory for the payloads of the next message.
  absl::Status Place(MemoryPool& pool, std::span<const uint64_t> sizes,
                     std::span<net::Bytes> places);
  std::vector<Tensor> TakePayloads(std::vector<net::Payload> payloads);
  void OnAnswer(uint64_t call, PeerMessage message);
  void OnTensors(uint64_t call, std::vector<Tensor> tensors);
  void OnBroken(const absl::Status& reason);

 private:
  struct Waiting {
    uint64_t count = 0;
    TensorsDone done;
  };

  const net::TaskIdentity identity_, self_;
  const std::string description_;
  mutable std::mutex mutex_;
  net::Link* link_;  // null when it is broken
  absl::Status status_;
  std::shared_ptr<ControlChannel> control_;
  uint64_t next_call_ = 1;
  std::unordered_map<uint64_t, AnswerDone> asked_;
  std::unordered_map<uint64_t, std::vector<Tensor>> tensors_;  // that came before their call
  std::unordered_map<uint64_t, Waiting> waiting_;              // calls whose tensors have not come
  // Of the link's thread alone.
  std::deque<std::vector<Tensor>> placed_;
};

}  // namespace tutti
