#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tutti/net/handshake.h"
#include "tutti/net/socket.h"
#include "tutti/net/transport.h"

namespace tutti {
class Cancellation;
}

namespace tutti::net {

struct StarOptions {
  int rank = 0;
  int size = 1;
  // One of them: where rank 0 listens, or a file into which it writes where it listens. Rank 0 with
  // a file listens at the loopback, unless it is given an address too, with port 0 for any.
  std::string address;  // "host:port", "[::1]:port"
  std::string file;
  // Of rank 0: a descriptor that listens at the address already, and is the star's from here on.
  int listener = -1;
  std::string job = "tutti";
  std::string token;
  int64_t generation = 0;
  double timeout_seconds = 60;
  double silence_seconds = 5;
  const Cancellation* cancellation = nullptr;  // ends the waiting for all to come; may be null
  // Why a rank could not be admitted although job, token and version fit: every rank gives lines
  // "name=value", and rank 0 refuses one whose lines differ, showing the first difference.
  std::vector<std::string> fingerprint;
};

// The control plane of a job: every rank holds one TCP connection to rank 0. It is how ranks find
// each other, how they know that the others live, and how the first cause of a failure reaches
// everybody.
//
// Signs of life. Every rank sends a heartbeat to rank 0 ten times per silence_seconds and rank 0
// sends to all; a heartbeat carries a counter (operations started), and rank 0's carries those of
// all ranks. A closed connection is a death (UNAVAILABLE), no heartbeat for silence_seconds is a
// silence (DEADLINE_EXCEEDED). Rank 0 decides who was first, and tells everyone before it closes
// anything.
//
// Thread-safe. Has a thread of its own that sleeps in epoll.
class Star {
 public:
  // Connects all ranks; returns when all are there. DEADLINE_EXCEEDED lists who is missing, and why
  // where that is known (refused, name not found, wrong job, wrong token, other version, other
  // fingerprint with its first difference). A second process with a rank that is taken is refused.
  // If cancelled, it returns the cancellation's status within 0.1 s.
  static absl::StatusOr<std::unique_ptr<Star>> Connect(const StarOptions& options);
  // Tells the others that this rank leaves on purpose. Not from within a failure callback.
  virtual ~Star() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // The address of this process as rank 0 sees it / as this process reaches rank 0, without a port.
  virtual std::string own_address() const = 0;

  // Rank 0's port, to which the others came: "10.0.0.7:4711", at own_address(). Empty at the other
  // ranks and in a job of one, which listen nowhere.
  virtual std::string port() const = 0;
  // Connections to port() for this purpose go to `handler` as soon as the handshake has shown that
  // they are of another rank of this job. Before this call they are refused, and later those that
  // `admit` refuses. Both are called on the star's thread, until the star is destroyed, and must
  // not block. REQUIRES: port() is not empty.
  using Handler = std::function<void(const Identity& peer, Socket socket)>;
  virtual void Serve(Identity::Purpose purpose, Handler handler, Handshake::Admit admit) = 0;

  // Every rank gives its bytes and gets those of all, by rank; 64 MB together at most. All ranks
  // call it in the same order. Waits until all have called it, while they live; who is late is
  // warned about by name. An error is the same on all ranks.
  virtual absl::StatusOr<std::vector<std::string>> AllGather(std::string_view own) = 0;
  // Rank 0's bytes for everybody.
  virtual absl::StatusOr<std::string> Broadcast(std::string_view own) = 0;

  // Called once, when the first cause of the job's failure is known: the rank at fault (or kNoRank)
  // and the status that every rank reports. From the star's thread, with no lock held. At once if
  // it is known already. A rank that left on purpose is no failure until somebody says it is (see
  // ReportLost).
  using FailureCallback = std::function<void(int rank, const absl::Status& status)>;
  virtual void OnFailure(FailureCallback callback) = 0;
  // Called for every rank that left on purpose, also for those that had before, and only for these.
  // From the star's thread, with no lock held. What such a rank sent over other links may still be
  // under way.
  using LeftCallback = std::function<void(int rank, const absl::Status& status)>;
  virtual void OnLeft(LeftCallback callback) = 0;
  // A data link to the rank broke. The verdict follows through OnFailure within half a second: rank
  // 0's, or this one if rank 0 says nothing.
  virtual void ReportLost(int rank, const absl::Status& status) = 0;
  // This rank found out that the job cannot go on (ranks disagree, bad data): everyone gets
  // `status`.
  virtual void ReportFailure(const absl::Status& status) = 0;

  // The counter that this rank's heartbeats carry.
  virtual void SetProgress(uint64_t counter) = 0;
  // The last known counters of all ranks, for "alive but late".
  virtual std::vector<uint64_t> Progress() const = 0;
};

}  // namespace tutti::net
