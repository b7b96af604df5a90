#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tutti/net/message/region.h"
#include "tutti/net/message/wire.h"
#include "tutti/net/tcp/frame.h"
#include "tutti/net/tcp/out_stream.h"
#include "tutti/net/transport.h"

namespace tutti::net::tcp {

// Bytes that go out as kData or kPut frames, cut when a stream has room for the next one.
struct BulkMessage {
  FrameHeader header;  // of every frame, but for what differs between them
  const std::byte* data = nullptr;
  Request* request = nullptr;               // null: nobody waits for the writing
  std::shared_ptr<message::Region> region;  // that the data lies in, if a peer asked for it
  int stream = 0;                           // the only one it may use; 0: all
  uint64_t number = 0;                      // messages begin in this order
  uint64_t cut = 0;                         // bytes
  int in_flight = 0;                        // frames that are cut and not written
  std::list<BulkMessage>::iterator self;
};

// All that goes to one peer. Stream 0 carries the small frames, in order; the others carry bulk, so
// that a kReady never waits behind megabytes in a socket's buffer. A large message is spread over
// all bulk streams, frame by frame as each has room, unless its receiver wants it in order.
class Outbox final : public FrameSource, public message::Wire {
 public:
  Outbox(Shared* shared, Link* link);
  ~Outbox();

  // Before anything is sent.
  void SetAddress(const Address& address, bool on_this_host);

  std::string Describe() const override;
  void SendEager(Tag tag, ConstBytes data, Request* request) override;
  void SendOffer(Tag tag, const message::Offer& offer) override;
  void SendInvitation(Tag tag, const message::Invitation& invitation) override;
  void SendDiffers(uint64_t receive, uint64_t bytes) override;
  void SendTaken(uint64_t taken) override;
  absl::Status SendBytes(const message::Invitation& invitation, ConstBytes data, bool offered,
                         Request* request) override;
  // Makes the connection of stream 0 if there is none yet.
  void Attend() override;

  void Put(MemoryKey destination, ConstBytes source, Request* request);
  // A small frame; the payload is copied.
  void SendControl(FrameHeader header, std::string_view payload = {});
  // Answers a kGet: `bytes` of the region go to the peer's `id`.
  void Answer(uint64_t id, std::shared_ptr<message::Region> region, ConstBytes bytes);

  // Frames of the peer that answer.
  absl::Status OnPutDone(const FrameHeader& header);
  absl::Status OnPutRefused(const FrameHeader& header, std::string_view reason);

  bool Uses(const message::Region& region) const;
  // The stream that has waited too long for its connection, or null.
  const OutStream* Overdue(int64_t now) const;
  void Close(const absl::Status& status);
  // What was promised to be sent: streams that still have small frames.
  void CollectUnsent(std::vector<OutStream*>* streams) const;

  bool NextFrame(int stream, OutFrame* frame) override;
  bool HasFrames(int stream) const override;
  void Written(const OutFrame& frame) override;

 private:
  OutStream* StreamFor(int number);
  void AddBulk(BulkMessage message, bool in_order);
  std::deque<BulkMessage*>* NextQueue(int stream);

  Shared* const shared_;
  Link* const link_;
  Address address_;
  int send_buffer_ = 0;                              // bytes, of a bulk stream; 0: the system's
  std::vector<std::unique_ptr<OutStream>> streams_;  // null until first needed
  std::list<BulkMessage> messages_;
  std::vector<std::deque<BulkMessage*>> bulk_;  // not wholly cut; [0]: for any stream
  std::vector<uint64_t> pinned_bytes_;          // not written yet, by stream
  uint64_t last_number_ = 0;
  uint64_t last_put_ = 0;
  absl::flat_hash_map<uint64_t, Request*> puts_;  // not answered yet
};

}  // namespace tutti::net::tcp
