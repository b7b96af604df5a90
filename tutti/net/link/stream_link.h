#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "tutti/net/event_loop.h"
#include "tutti/net/link/gathered_sends.h"
#include "tutti/net/link/inbox.h"
#include "tutti/net/link/link.h"
#include "tutti/net/link/links.h"
#include "tutti/net/link/outbox.h"
#include "tutti/net/port/dial.h"
#include "tutti/net/socket.h"

namespace tutti::net::link {

class StreamLink;

// What all links of a process work with.
struct Context {
  LinksOptions options;
  LinkEvents* events = nullptr;
  std::shared_ptr<SharedMemory> memory;
  std::unique_ptr<EventLoop> loop;
  std::vector<std::byte> scratch;  // of the loop's thread
  std::string host;
  std::string joining_socket;  // empty: memory is not joined
  // A task answered as this incarnation: why the link to it must not be, or OK. Thread-safe.
  std::function<absl::Status(const TaskIdentity&)> check;
  std::function<void(StreamLink*)> gone;  // a link broke; before Broken is called
};

// A link over a stream socket: TCP between hosts, a Unix socket within one, where payloads lie in
// shared memory. Its life:
//
//   opening   no connection: it is dialled, or the peer's is awaited
//   hello     a connection, on which both say hello; then the side that connected says whether they
//             stay on it or join memory, and the link is open
//   open      messages
//   closing   what was sent leaves, then the reason
//   broken
//
// Sends are written by the thread that sends where that costs no waiting; all else happens on the
// links' thread, on which everything runs that is not marked as thread-safe.
class StreamLink final : public Link,
                         public SendQueue,
                         public Inbox::Reader,
                         public std::enable_shared_from_this<StreamLink> {
 public:
  enum class State : uint8_t { kOpening, kHello, kOpen, kClosing, kBroken };

  StreamLink(std::shared_ptr<Context> context, std::string task, std::string address,
             uint64_t expected);

  // Link; thread-safe.
  const TaskIdentity& peer() const override { return *peer_.load(std::memory_order_acquire); }
  LinkKind kind() const override;
  std::string Describe() const override;
  void Send(std::string header, std::vector<Payload> payloads) override {
    Send(std::move(header), std::move(payloads), /*counted=*/false);
  }
  void SendCounted(std::string header, std::vector<Payload> payloads) override {
    Send(std::move(header), std::move(payloads), /*counted=*/true);
  }
  void Taken(uint64_t bytes) override;
  void Close(absl::Status reason) override;
  Counters counters() const override;

  State state() const { return state_.load(std::memory_order_acquire); }  // thread-safe
  // The incarnation that is there or expected; 0: not known. Thread-safe.
  uint64_t incarnation() const;
  void Expect(uint64_t incarnation);  // thread-safe
  // This side's own attempt has got as far as the handshake. Thread-safe.
  bool dial_in_handshake() const { return dial_in_handshake_.load(std::memory_order_relaxed); }

  // Connects until options.connect_seconds are over.
  void StartDialing();
  // Goes on with this connection. `dialled`: this side made it.
  void Connected(const Identity& peer, Socket socket, bool dialled);
  bool dialled() const { return dialled_; }
  // When something came, NowNanos(). Thread-safe.
  int64_t last_heard() const { return last_heard_.load(std::memory_order_relaxed); }
  // The peer joined memory: the link goes on with this socket once the peer's hello was read.
  void Joined(Socket socket);
  const std::string& secret() const { return secret_; }

  void Tick(int64_t now);
  // Ends it at once. `tell`: the peer, if it can be told without waiting.
  void Break(const absl::Status& status, bool tell = false);

 private:
  // Inbox::Reader.
  absl::Status OnControl(const FrameHead& head, std::string_view text) override;
  absl::Status Place(std::string_view header, std::span<const uint64_t> sizes,
                     std::span<Bytes> places) override;
  absl::Status OnMessage(std::string_view header, std::vector<Payload> payloads) override;
  std::shared_ptr<const void> Lease(
      uint64_t message, std::vector<std::shared_ptr<const shm::SharedPages>> pages) override;

  void Send(std::string header, std::vector<Payload> payloads, bool counted);
  void DriveDial();
  void Lookup();
  void WatchDial();
  void LoseConnection(const std::string& why);
  void SetSocket(Socket socket);
  void DropSocket();
  absl::Status OnHello(std::string_view text);
  bool TryToJoin(const Hello& hello);
  void Opened(bool memory);
  void OnEvents(uint32_t events);
  void OnReadable();
  void Flush();
  void OnWriteError(const std::string& why);
  void WriteQueued() override;  // SendQueue; thread-safe
  void FlushFromSender(std::unique_lock<std::mutex>& lock, bool gathers);
  void WriteFromSender(std::unique_lock<std::mutex>& lock, bool pauses);
  void PostFlush();
  void Released(uint64_t message);
  void TellTaken();
  absl::Status OnClose(uint64_t code, std::string_view text);
  std::string Named(std::string_view why) const;

  const std::shared_ptr<Context> context_;
  const std::string task_;
  const std::string address_;
  const TaskIdentity unknown_;
  TaskIdentity known_;
  std::atomic<const TaskIdentity*> peer_;
  std::atomic<uint64_t> expected_;
  std::atomic<State> state_ = State::kOpening;
  std::atomic<bool> memory_ = false;
  std::atomic<bool> dial_in_handshake_ = false;
  std::atomic<uint64_t> received_messages_ = 0, received_bytes_ = 0;

  // Of the links' thread.
  std::unique_ptr<Dial> dial_;
  uint64_t dial_watch_ = 0;
  int dial_fd_ = -1;
  uint64_t dial_round_ = 0;  // a timer or an answer of an earlier round is out of date
  int64_t dial_deadline_ = 0;
  bool dialled_ = false;
  Socket left_;   // the connection that was left for joined memory, until the peer has left it too
  Socket early_;  // joined memory before the peer's hello was read
  std::string secret_;
  uint64_t watch_ = 0;
  Inbox inbox_;
  uint64_t peer_window_ = 0;
  bool one_host_ = false;       // with the peer
  uint64_t payload_bytes_ = 0;  // received
  std::atomic<int64_t> last_heard_ = 0;
  int64_t last_ping_ = 0;
  int64_t close_by_ = 0;
  absl::Status close_reason_;
  bool closed_by_peer_ = false;
  std::string write_error_;  // empty: nothing went wrong

  mutable std::mutex mutex_;
  Socket socket_;  // changed by the links' thread under the lock
  Outbox outbox_;
  bool flush_posted_ = false;
  uint32_t wanted_ = 0;
  int64_t last_write_ = 0;
  // Written under the lock, but for taken_: so a value that is taken costs no lock.
  std::atomic<uint64_t> taken_ = 0, told_ = 0;
  std::atomic<bool> tell_all_ = false;
};

}  // namespace tutti::net::link
