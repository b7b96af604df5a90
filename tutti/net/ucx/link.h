#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tutti/net/message/engine.h"
#include "tutti/net/message/region.h"
#include "tutti/net/message/short_queue.h"
#include "tutti/net/message/stash.h"
#include "tutti/net/poller.h"
#include "tutti/net/ucx/inbox.h"
#include "tutti/net/ucx/worker.h"

namespace tutti::net::ucx {

// What all links of a transport work with.
struct Shared {
  UcxOptions options;
  std::unique_ptr<Worker> worker;
  Poller poller;
  std::shared_ptr<message::RegionTable> regions = std::make_shared<message::RegionTable>();
  message::Stash stash;
  message::ShortQueue shorts;
  PieceBuffers pieces;
  std::vector<Link*> breaking;  // links to be closed when UCX has returned
};

// All that this rank has to do with one peer: the connection, what goes out, and the requests. What
// comes in is the Inbox's.
//
// A link ends in one of two ways. Break: something came that must not come, or the caller's memory
// is wanted back. Lose: the peer has gone, and what it sent before may still be received. Both only
// take note; the transport calls Close when UCX has returned, and Close ends the requests.
class Link final : public message::Wire {
 public:
  Link(Shared* shared, int peer);

  absl::Status SetEndpoint(std::string_view endpoint);
  int peer() const { return peer_; }
  const std::string& host() const { return endpoint_.host; }
  Worker& worker() { return *shared_->worker; }
  message::Engine& engine() { return engine_; }

  // False: requests end with status() at once, and frames are dropped.
  bool alive() const { return status_.ok(); }
  const absl::Status& status() const { return status_; }

  // Transport's calls, while it is alive.
  void Send(Tag tag, ConstBytes data, Request* request);
  void Receive(Tag tag, std::byte* destination, size_t bytes, Request* request);
  void SendShort(Tag tag, ConstBytes data);
  void Put(MemoryKey destination, ConstBytes source, Request* request);
  void Get(MemoryKey source, Bytes destination, Request* request);

  std::string Describe() const override;
  void SendEager(Tag tag, ConstBytes data, Request* request) override;
  void SendOffer(Tag tag, const message::Offer& offer) override;
  void SendInvitation(Tag tag, const message::Invitation& invitation) override;
  void SendDiffers(uint64_t receive, uint64_t bytes) override;
  void SendTaken(uint64_t taken) override;
  absl::Status SendBytes(const message::Invitation& invitation, ConstBytes data, bool offered,
                         Request* request) override;
  void Attend() override;

  // For the Inbox. A small frame; the data is copied.
  void SendControl(const FrameHeader& header, std::string_view data = {});
  // Answers a kGet: `bytes` of the region go to the peer's `id`.
  void Answer(uint64_t id, std::shared_ptr<message::Region> region, ConstBytes bytes);
  // The peer has put the bytes in place, or refuses to.
  absl::Status OnPutAnswered(uint64_t id, const absl::Status& status);
  void StartReceive(const Payload& payload, std::byte* destination,
                    std::shared_ptr<message::Region> region, Ended ended);

  void OnFrame(const FrameHeader& header, const Payload& payload);
  // The peer will send no more; of all its frames, `frames` have been sent.
  void OnBye(uint64_t frames);
  void CheckDeadline(int64_t now);

  // `status` is about the peer, and gets its description in front.
  void Break(const absl::Status& status);
  void Lose(const absl::Status& status);
  // Memory that the caller takes back: if UCX is at it, the link breaks, and UCX lets go of it.
  void Withdraw(const message::Region& region);
  // Closes the connection and ends every request.
  void Close(const absl::Status& status);
  // The peer has gone, but all it sent before has arrived whole and may still be received.
  bool lost() const { return lost_; }
  void Forget() { lost_ = false; }

  // On purpose: says so to the peer, and begins to close the connection. True if there is one.
  bool BeginLeave();
  // Whether that is over, or `give_up`. REQUIRES: it was not over before.
  bool EndLeave(bool give_up) { return shared_->worker->Closed(closing_, give_up); }
  bool HasTransfers() const;

 private:
  struct OpenPut {
    Request* request = nullptr;
    bool sent = false;  // UCX is done with the memory
    bool answered = false;
    absl::Status status;
  };

  // Connects if there is no connection yet; false, and the link is lost, if that cannot be.
  bool Connect();
  void Transmit(Worker::Send send, Ended ended);
  Ended EndsRequest(Request* request);
  void EndPut(uint64_t id);
  void Disconnect();

  Shared* const shared_;
  const int peer_;
  UcxEndpoint endpoint_;
  Worker::Connection connection_;
  void* closing_ = nullptr;
  absl::Status status_;
  bool lost_ = false;
  Transfers transfers_;
  uint64_t sent_ = 0;      // frames
  uint64_t received_ = 0;  // frames
  size_t unsent_shorts_ = 0;
  uint64_t bye_frames_ = 0;   // that the peer has sent before it left
  int64_t bye_deadline_ = 0;  // 0: it has not left
  uint64_t last_put_ = 0;
  absl::flat_hash_map<uint64_t, OpenPut> puts_;
  message::Engine engine_;
  Inbox inbox_;
};

}  // namespace tutti::net::ucx
