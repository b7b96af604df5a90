#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/handshake.h"
#include "tutti/net/port/handshake_io.h"
#include "tutti/net/socket.h"

namespace tutti::net {

// Reaches a task: looks up its name, connects and shakes hands, and does all of it again while the
// name does not resolve yet, the connection is refused or the task is not ready, until a deadline.
// A task that says why it does not want us (wrong token, other job, other version) ends it at once.
//
// A machine that never waits; its owner does, for what it asks for:
//
//   while (dial.Open()) {
//     if (dial.wants_lookup()) dial.LookedUp(Resolve(dial.endpoint()));
//     else { wait for dial.events() at dial.fd(), or only until dial.wake_at(); dial.Step(); }
//   }
//
// Not thread-safe.
class Dial {
 public:
  struct Options {
    std::string address;        // "host:port"
    Identity own;               // with its purpose
    std::string expected_task;  // empty: any
    int64_t deadline_nanos = 0;
  };
  explicit Dial(Options options);

  // Not over: neither connected nor failed.
  bool Open() const { return !over_; }
  // OK and over: the socket is there. Else what was tried, and why the last attempt failed.
  const absl::Status& status() const { return status_; }
  const Identity& peer() const { return peer_; }
  Socket TakeSocket() { return std::move(socket_); }

  // The next thing is the name: call LookedUp.
  bool wants_lookup() const { return Open() && stage_ == Stage::kLookup; }
  const Endpoint& endpoint() const { return endpoint_; }
  void LookedUp(absl::StatusOr<std::vector<Address>> addresses);

  // What to wait for before Step; fd() is -1 in a pause between attempts.
  int fd() const { return socket_.fd(); }
  short events() const;  // of poll(2), and of epoll
  int64_t wake_at() const { return wake_at_; }
  void Step();

  // The handshake of an attempt is under way.
  bool in_handshake() const { return Open() && stage_ == Stage::kHandshake; }

 private:
  enum class Stage : uint8_t { kLookup, kPause, kConnecting, kHandshake };

  void TryNext();                      // the next address
  void Fail(const absl::Status& why);  // of this attempt
  void End(absl::Status status);
  std::string Target() const;

  const Options options_;
  const int64_t begun_;
  Endpoint endpoint_;
  bool over_ = false;
  absl::Status status_;
  Stage stage_ = Stage::kLookup;
  std::vector<Address> addresses_;
  size_t next_ = 0;  // address to try
  int attempts_ = 0;
  int64_t pause_ = 0;
  int64_t wake_at_ = 0;
  Socket socket_;
  std::optional<HandshakeIo> handshake_;
  Identity peer_;
};

// A connection that a task has accepted.
struct Connection {
  Identity peer;
  Socket socket;
};

// The same with waiting: connects to `address` ("host:port") for `purpose` as `own`, expecting
// `task` there (empty: any). UNAVAILABLE after `deadline_nanos` says what was tried and why the
// last attempt failed. A lookup of a name may take the name service's own time beyond that.
absl::StatusOr<Connection> ConnectTo(const std::string& address, Identity own,
                                     Identity::Purpose purpose, const std::string& task,
                                     int64_t deadline_nanos);

}  // namespace tutti::net
