#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace tutti::net {

inline constexpr uint16_t kProtocolVersion = 3;
inline constexpr size_t kMaxJobBytes = 256;
inline constexpr size_t kMaxTaskBytes = 256;

// The task name of a process that belongs to no cluster spec. Any number of them may be there.
inline constexpr std::string_view kClientTask = "client";

// Who stands at one end of a connection. Ranks of a collective are told apart by rank, size and
// generation; tasks of a cluster (from kRpc on) by task and incarnation.
struct Identity {
  // What the connection is for; both ends must mean the same.
  enum class Purpose : uint8_t {
    kControl = 1,
    kTcpData = 2,
    kShm = 3,
    kRpc = 4,          // the socket is handed to gRPC
    kLink = 5,         // frames of tutti/net/link
    kCheckpoints = 6,  // frames of tutti/train/mirror
  };

  std::string job;
  std::string token;  // never sent; empty in what is known of a peer
  int rank = 0;
  int size = 1;
  int64_t generation = 0;
  Purpose purpose = Purpose::kControl;
  uint32_t stream = 0;       // number of a data stream
  std::string task;          // "/job:worker/task:1", or kClientTask
  uint64_t incarnation = 0;  // of the process; a later start of a task has a greater one
  // Of the own identity, not sent: peers of a job with another number of ranks pass. The caller
  // compares, where it can tell a peer that has the token more than two numbers.
  bool any_size = false;
  // Of the own identity of an accepting side, not sent: the connection may be for anything. `admit`
  // decides.
  bool any_purpose = false;
};
std::string_view NameOf(Identity::Purpose purpose);  // "tcp data"

// Why a connection is refused. The numbers travel.
enum class Refusal : uint8_t {
  kNone = 0,
  kVersion = 1,       // another protocol version
  kMalformed = 2,     // not a handshake, or a broken one
  kJob = 3,           // another job
  kGeneration = 4,    // another generation of the job
  kSize = 5,          // another number of ranks
  kRank = 6,          // out of range, or not the one that was expected
  kTaken = 7,         // somebody else is this rank already
  kPurpose = 8,       // control where data was expected, ...
  kToken = 9,         // has not the job's token
  kNotAdmitted = 10,  // not now; trying again later may help
  kTask = 11,         // no task, or not the one that was expected
  kIncarnation = 12,  // a later start of the same task is known
};

// The first words on every connection, as a machine without sockets: bytes in, bytes out. Both ends
// learn who the other is, that it belongs to the same job, and that it holds the same token, before
// anything else is read. Where they do not fit, the one that sees it sends the reason, and both
// status() say it. The format is in handshake.cc.
//
//   Handshake handshake(own, /*connecting=*/true, /*expected_peer=*/0);
//   handshake.Start(&out);                  // send out
//   while (handshake.state() == kMore) {    // the caller sets a time limit
//     read up to handshake.Wants() bytes;   // or any number, and look at `consumed`
//     handshake.Feed(bytes, &consumed, &out);  // send out, also when it failed
//   }
//
// Not thread-safe. Takes any bytes; keeps at most some hundred of them.
class Handshake {
 public:
  enum class State : uint8_t { kMore, kDone, kFailed };
  // Asked by the accepting side about a peer that fits and has proved its token: a reason to refuse
  // it still, or kNone. `text` says why.
  using Admit = std::function<Refusal(const Identity& peer, std::string* text)>;

  // `expected_peer` -1: any rank but our own. REQUIRES: own.job has at most kMaxJobBytes bytes, and
  // own.task kMaxTaskBytes.
  Handshake(const Identity& own, bool connecting, int expected_peer, Admit admit = nullptr);
  // Between tasks: connects to the task of that name.
  Handshake(const Identity& own, std::string expected_task);

  // Appends the first bytes to send to `out` (the accepting side has none). Call it once.
  void Start(std::string* out);
  // Takes what arrived, and appends what is to be sent to `out`: also after kFailed, where it is
  // the reason for the peer. Sets `consumed`; bytes behind the handshake's end are not consumed.
  State Feed(std::span<const std::byte> in, size_t* consumed, std::string* out);
  // How many bytes can be read without reading past the handshake's end; 0 only when it is over.
  size_t Wants() const;

  State state() const { return state_; }
  // Who the other end says it is. Believe it after kDone.
  const Identity& peer() const { return peer_; }
  bool peer_known() const { return peer_known_; }
  // OK unless kFailed. Wrong token: PERMISSION_DENIED; taken rank: ALREADY_EXISTS; a broken message
  // or another protocol: INVALID_ARGUMENT; all else FAILED_PRECONDITION.
  absl::Status status() const { return status_; }
  Refusal refusal() const { return refusal_; }
  bool refused_by_peer() const { return refused_by_peer_; }

 private:
  enum class Stage : uint8_t { kPreamble, kHeader, kBody };

  void SendPreamble(std::string* out);  // once
  void HandlePreamble(std::string* out);
  void HandleHeader(std::string* out);
  void HandleMessage(std::string* out);
  void HandleHello(std::string* out);
  void HandleProof(std::string* out);
  void HandleAccept();
  void HandleRefusal();
  Refusal CheckPeer(std::string* text) const;
  Refusal CheckTask(std::string* text) const;
  Refusal OtherPurpose(std::string* text) const;
  std::string Digest(bool of_connector) const;
  void Refuse(Refusal reason, std::string_view text, std::string* out);
  void Fail(Refusal reason, std::string_view text);

  const Identity own_;
  const bool connecting_;
  const int expected_peer_;
  const std::string expected_task_;  // empty: any
  const Admit admit_;

  State state_ = State::kMore;
  Stage stage_ = Stage::kPreamble;
  std::string buffer_;  // the part of the current preamble, header or body that has arrived
  bool preamble_sent_ = false;
  uint8_t type_ = 0;
  size_t wanted_ = 0;      // size of the whole of what buffer_ is a part of
  std::string own_hello_;  // bodies of the two hellos: what the digests are made of
  std::string peer_hello_;
  Identity peer_;
  bool peer_known_ = false;
  absl::Status status_;
  Refusal refusal_ = Refusal::kNone;
  bool refused_by_peer_ = false;
};

}  // namespace tutti::net
