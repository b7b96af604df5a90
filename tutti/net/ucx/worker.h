#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/message/region.h"
#include "tutti/net/transport.h"
#include "tutti/net/ucx/frame.h"
#include "tutti/net/ucx/library.h"
#include "tutti/net/ucx/ucx_transport.h"

namespace tutti::net::ucx {

class Link;
class Worker;

// Called once when UCX is done with the memory of a transfer: OK, or why it failed.
using Ended = std::function<void(const absl::Status&)>;

// A request of UCX that is under way, and all that must stay until it has ended.
struct Transfer {
  Worker* worker = nullptr;
  FrameHeader header;
  std::vector<std::byte> copy;              // of the data, where the caller's may go
  std::shared_ptr<message::Region> region;  // that is read from, or written to, for the peer
  Ended ended;                              // empty: nobody wants to know any more
  bool borrows = false;                     // memory of the caller's
  bool done = false;
  ucs_status_t status = UCS_OK;
  std::list<Transfer>* home = nullptr;
  std::list<Transfer>::iterator self;
};
using Transfers = std::list<Transfer>;

// Data of a frame: the bytes, or UCX's descriptor by which they can be had.
struct Payload {
  void* data = nullptr;
  size_t bytes = 0;
  bool remote = false;  // `data` is a descriptor
};

// UCX's context and worker, and what its callbacks leave behind. UCX calls back in the middle of
// its own work, also when a link is being closed; so callbacks only take note, and the transport
// looks at the notes when UCX has returned. Frames whose data is there are the exception: their
// bytes do not outlive the callback. Not thread-safe.
class Worker {
 public:
  // Is given the frames that come. REQUIRES: a payload that is remote is ended by Receive or Drop.
  class FrameHandler {
   public:
    virtual void OnFrame(const FrameHeader& header, const Payload& payload) = 0;
    // One that nobody of this job has sent.
    virtual void OnStranger(const absl::Status& why) = 0;

   protected:
    ~FrameHandler() = default;
  };

  // `key` must be in every frame that comes.
  static absl::StatusOr<std::unique_ptr<Worker>> Open(const UcxOptions& options, uint64_t key,
                                                      FrameHandler* handler);
  ~Worker();

  const std::string& address() const { return address_; }
  int event_fd() const { return event_fd_; }
  // True: the descriptor tells what comes from here on. False: there is something to do already.
  bool Arm();

  struct Connection {
    ucp_ep_h endpoint = nullptr;  // null: there is none
    // UCX tells when it breaks, and lets go of its requests when it is closed by force. Not so
    // where all that reaches the peer is shared memory of UCX's.
    bool tells_failures = true;
  };
  // The link is noted in `failed` when the connection ends.
  absl::StatusOr<Connection> Connect(const std::string& address, Link* link);
  // Ends all requests of the connection at once. Afterwards UCX touches no memory that they have
  // borrowed; where it will not promise that, nothing moves any more: see halted().
  void CloseNow(const Connection& connection, const Transfers& transfers);
  // Begins to close it; what it has sent goes first. The returned request may be null, and is to be
  // given to Closed.
  void* Close(const Connection& connection);
  // Whether the closing is over, or `give_up`; then the request is gone.
  bool Closed(void* request, bool give_up);
  // UCX is never called again, because it could not be made to let go of memory of the caller's.
  bool halted() const { return halted_; }

  struct Send {
    FrameHeader header;
    ConstBytes data = {};
    bool copies = false;  // the data, so that the caller's may go
    unsigned flags = 0;   // UCP_AM_SEND_FLAG_...
    std::shared_ptr<message::Region> region = nullptr;
  };
  // The request is added to `home`, and `ended` called: perhaps at once, else from HandleCompleted.
  void StartSend(const Connection& connection, Send send, Transfers* home, Ended ended);
  void StartReceive(void* descriptor, Bytes destination, std::shared_ptr<message::Region> region,
                    Transfers* home, Ended ended);
  // Nobody wants that data.
  void Drop(const Payload& payload);

  // Moves what can be moved, and calls the handler and what has ended. True if anything was moved.
  bool Progress();
  // Calls `ended` of each, with `status` where UCX has not ended it, and lets go of them.
  void Abandon(Transfers* transfers, const absl::Status& status);

  struct Failure {
    Link* link;
    ucs_status_t status;
  };
  std::vector<Failure> failed;

  std::string_view Text(ucs_status_t status) const { return library_->status_string(status); }

 private:
  // A frame that is handled when UCX has returned.
  struct Arrived {
    FrameHeader header;
    std::vector<std::byte> copy;
    Payload payload;
  };

  Worker(const Library* library, uint64_t key, FrameHandler* handler)
      : library_(library), key_(key), handler_(handler) {}
  absl::Status OpenContext(const UcxOptions& options);
  absl::Status OpenWorker();
  absl::Status Failed(std::string_view what, ucs_status_t status) const;

  Transfer* Add(Transfers* home, Ended ended);
  void Settle(Transfer* transfer, void* request);
  void Finish(Transfer* transfer);
  void HandleArrived();
  void HandleCompleted();
  // Waits a while for UCX to let go of borrowed memory, and calls nobody. True if it has.
  bool Drain(const Transfers& transfers);

  static ucs_status_t OnMessage(void* worker, const void* header, size_t header_bytes, void* data,
                                size_t bytes, const ucp_am_recv_param_t* param);
  static void OnSent(void* request, ucs_status_t status, void* transfer);
  static void OnReceived(void* request, ucs_status_t status, size_t bytes, void* transfer);
  static void OnClosed(void* request, ucs_status_t status, void* library);
  static void OnFailed(void* link, ucp_ep_h connection, ucs_status_t status);

  const Library* const library_;
  const uint64_t key_;
  FrameHandler* const handler_;
  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  std::string address_;
  int event_fd_ = -1;
  bool draining_ = false;
  bool halted_ = false;
  std::deque<Arrived> arrived_;
  std::vector<Transfer*> completed_;
  Transfers free_;
  Transfers abandoned_;
};

}  // namespace tutti::net::ucx
